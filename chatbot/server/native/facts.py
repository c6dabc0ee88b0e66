"""`/v1/facts`: subject, predicate, object."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query
from pydantic import ConfigDict, Field

from chatbot.server.dependencies import VisitHere
from chatbot.server.native.memories import checked
from chatbot.server.native.pages import IdCursor, Limit, Page, page_after
from chatbot.server.native.shapes import Given, Shape, described_as
from chatbot.server.responses import OF_MEMORY
from chatbot.server.values import Named, Share, Switch
from chatbot.server.visit import Visit
from chatbot.server.writing import WritingHere
from stores.access import SENSITIVITIES, Sensitivity, Visibility
from stores.errors import UnknownObservation
from stores.observation import Triple, is_observation_id
from stores.query import MOST_AT_ONCE

router = APIRouter(prefix="/v1/facts", tags=["memory"], responses=OF_MEMORY)

FactId = Annotated[str, Path(max_length=100, description="The id of the fact.")]


class Fact(Shape):
    """A fact."""

    id: str
    """UUIDv7."""
    subject: str
    """What it says something about."""
    predicate: str
    """What it says of it, such as `lives in`."""
    object: str
    """The other end, such as a place, a name or a value."""
    confidence: float
    """How sure it is, from 0 to 1."""
    source: str | None
    """The id of the memory that it was taken from."""
    created_at: datetime
    """When it was stated."""


class NewFact(Given):
    """A fact to state."""

    model_config = ConfigDict(json_schema_extra=described_as(Fact))

    subject: Named
    predicate: Named
    object: Named
    confidence: Share = 1.0
    source: str | None = Field(None, max_length=100)
    visibility: Visibility | None = None
    """Who it is for; by default what your clearance gives, or that of its source."""
    sensitivity: Sensitivity = "public"
    """How delicate it is: what is more than `public` is returned only to who asks for it."""


@router.get("", summary="List facts, newest first")
async def list_facts(
    visit: VisitHere,
    *,
    subject: Annotated[str | None, Query(max_length=1000, description="About exactly that.")] = None,
    predicate: Annotated[str | None, Query(max_length=1000, description="That say exactly that of it.")] = None,
    object: Annotated[str | None, Query(max_length=1000, description="With exactly that at the other end.")] = None,  # noqa: A002 - the third part of a fact is called that
    limit: Limit = 50,
    cursor: IdCursor = None,
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
    if given.source is not None:
        checked(given.source)
    fields = given.model_dump()
    parts = [fields.pop(name) for name in ("subject", "predicate", "object")]
    fact = await visit.memories.store_fact(*parts, **fields)
    writing.note(id=fact.id)
    return Fact.model_validate(fact)


@router.delete("/{fact_id}", summary="Take a fact back", status_code=204)
async def retract_fact(
    fact_id: FactId,
    visit: VisitHere,
    purge: Annotated[Switch, Query(description="Erase it from every file of the memory.")] = False,  # noqa: FBT002
) -> None:
    """For good. The journal still tells of it, unless it is purged."""
    if not is_observation_id(fact_id):
        raise UnknownObservation(f"there is no fact {fact_id!r:.80}")
    await (visit.memories.purge_fact if purge else visit.memories.retract_fact)(fact_id)


async def _again(visit: Visit, given: NewFact, fact_id: str) -> Fact:
    parts = given.model_dump(include={"subject", "predicate", "object"})
    for fact in await visit.memories.query_facts(ask=SENSITIVITIES, limit=MOST_AT_ONCE, **parts):
        if fact.id == fact_id:
            return Fact.model_validate(fact)
    raise UnknownObservation(f"there is no fact {fact_id}")


def _id(fact: Triple) -> str:
    return fact.id
