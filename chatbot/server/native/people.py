"""`/v1/people`: who is mentioned in what is remembered."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query

from chatbot.memory.people import Person as Known
from chatbot.server.dependencies import VisitHere
from chatbot.server.native.facts import Fact
from chatbot.server.native.pages import Limit, NameCursor, Page, page_after
from chatbot.server.native.shapes import Given, Shape
from chatbot.server.responses import OF_MEMORY
from chatbot.server.values import Named
from chatbot.server.writing import WritingHere

router = APIRouter(prefix="/v1/people", tags=["memory"], responses=OF_MEMORY)


class Person(Shape):
    """Someone who is mentioned."""

    name: str
    """The name used most."""
    aliases: list[str]
    """Other names of theirs."""
    mention_count: int
    """How often they are mentioned."""
    last_mentioned: datetime
    """When that was last."""
    facts: list[Fact]
    """What is stated about them."""


class Alias(Given):
    """Two names of one person."""

    name: Named
    """One of them."""
    alias: Named
    """The other."""


class Kept(Shape):
    """The fact that was kept."""

    id: str
    """By which it can be taken back, see `/v1/facts`."""


@router.get("", summary="List people, whoever is mentioned most first")
async def list_people(
    visit: VisitHere,
    q: Annotated[str, Query(max_length=200, description="A part of a name.")] = "",
    limit: Limit = 50,
    cursor: NameCursor = None,
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
    return hashlib.sha256(person.name.encode()).hexdigest()[:16]
