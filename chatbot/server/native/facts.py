"""`/v1/facts`: subject, predicate, object."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query
from pydantic import Field

from chatbot.server.dependencies import VisitHere
from chatbot.server.native.memories import Line, MemoryId
from chatbot.server.native.pages import Cursor, Limit, Page, page_after
from chatbot.server.native.shapes import Given, Shape
from chatbot.server.responses import PROBLEMS
from chatbot.server.visit import Visit
from chatbot.server.writing import WritingHere
from stores.access import SENSITIVITIES, Sensitivity, Visibility
from stores.errors import UnknownObservation
from stores.observation import Triple, is_observation_id
from stores.query import MOST_AT_ONCE

router = APIRouter(prefix="/v1/facts", tags=["memory"], responses=PROBLEMS)

Part = Annotated[str | None, Query(max_length=1000)]


class Fact(Shape):
    """A fact, with the confidence in it."""

    id: str
    subject: str
    predicate: str
    object: str
    confidence: float
    source: str | None = Field(description="The id of the memory that it was taken from.")
    created_at: datetime


class NewFact(Given):
    """A fact to state."""

    subject: Line = Field(min_length=1)
    predicate: Line = Field(min_length=1)
    object: Line = Field(min_length=1)
    confidence: float = Field(1.0, ge=0, le=1)
    source: str | None = Field(None, max_length=100, description="The memory that it was taken from.")
    visibility: Visibility | None = None
    sensitivity: Sensitivity = "public"


@router.get("", summary="List facts, newest first")
async def list_facts(
    visit: VisitHere,
    *,
    subject: Part = None,
    predicate: Part = None,
    object: Part = None,  # noqa: A002 - the third part of a fact is called that
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Fact]:
    """The newest thousand that fit; narrow it down to see older ones."""
    facts = await visit.memories.query_facts(subject=subject, predicate=predicate, object=object, limit=MOST_AT_ONCE)
    part, following = page_after(facts, _id, cursor=cursor, limit=limit)
    return Page(data=[Fact.model_validate(fact) for fact in part], next_cursor=following)


@router.post("", summary="State a fact", status_code=201)
async def state_fact(visit: VisitHere, given: Annotated[NewFact, Body()], writing: WritingHere) -> Fact:
    """One with a source is seen as long as that is."""
    if writing.before:
        return await _again(visit, given, writing.before["id"])
    fields = given.model_dump()
    parts = [fields.pop(name) for name in ("subject", "predicate", "object")]
    fact = await visit.memories.store_fact(*parts, **fields)
    writing.note(id=fact.id)
    return Fact.model_validate(fact)


@router.delete("/{memory_id}", summary="Take a fact back", status_code=204)
async def retract_fact(
    memory_id: MemoryId,
    visit: VisitHere,
    purge: Annotated[bool, Query(description="Erase it from every file of the memory.")] = False,  # noqa: FBT002
) -> None:
    """For good. The journal still tells of it, unless it is purged."""
    if not is_observation_id(memory_id):
        raise UnknownObservation(f"there is no fact {memory_id!r:.80}")
    await (visit.memories.purge_fact if purge else visit.memories.retract_fact)(memory_id)


async def _again(visit: Visit, given: NewFact, fact_id: str) -> Fact:
    parts = given.model_dump(include={"subject", "predicate", "object"})
    for fact in await visit.memories.query_facts(ask=SENSITIVITIES, limit=MOST_AT_ONCE, **parts):
        if fact.id == fact_id:
            return Fact.model_validate(fact)
    raise UnknownObservation(f"there is no fact {fact_id}")


def _id(fact: Triple) -> str:
    return fact.id
