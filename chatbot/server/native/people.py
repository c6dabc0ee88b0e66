"""`/v1/people`: who is mentioned in what is remembered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query
from pydantic import Field

from chatbot.memory.people import Person as Known
from chatbot.server.dependencies import VisitHere
from chatbot.server.native.facts import Fact
from chatbot.server.native.memories import Line
from chatbot.server.native.pages import Cursor, Limit, Page, page_after
from chatbot.server.native.shapes import Given, Shape
from chatbot.server.responses import PROBLEMS
from chatbot.server.writing import WritingHere

router = APIRouter(prefix="/v1/people", tags=["memory"], responses=PROBLEMS)


class Person(Shape):
    """Someone who is mentioned, by the name used most."""

    name: str
    aliases: list[str]
    mention_count: int
    last_mentioned: datetime
    facts: list[Fact]


class Alias(Given):
    """Two names of one person."""

    name: Line = Field(min_length=1)
    alias: Line = Field(min_length=1)


class Kept(Shape):
    """The fact that was kept."""

    id: str


@router.get("", summary="List people, whoever is mentioned most first")
async def list_people(
    visit: VisitHere,
    q: Annotated[str, Query(max_length=200, description="A part of a name.")] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Person]:
    """With what is stated about each."""
    people = await visit.memories.people(q)
    part, following = page_after(people, _name, cursor=cursor, limit=limit)
    return Page(data=[Person.model_validate(person) for person in part], next_cursor=following)


@router.post("", summary="Say that two names are one person", status_code=201)
async def add_alias(visit: VisitHere, given: Annotated[Alias, Body()], writing: WritingHere) -> Kept:
    """It is a fact like any other, and can be taken back as one."""
    fact = writing.before["id"] if writing.before else await visit.memories.add_alias(given.name, given.alias)
    writing.note(id=fact)
    return Kept(id=fact)


def _name(person: Known) -> str:
    return person.name
