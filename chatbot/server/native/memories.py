"""`/v1/memories`: what is remembered; to list, search, add, correct, forget and erase."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from chatbot.memory.remembering import Memories
from chatbot.memory.writing import Remembered
from chatbot.server.dependencies import VisitHere
from chatbot.server.native.pages import MOST, Page
from chatbot.server.native.shapes import Given, Memory, Shape
from chatbot.server.responses import PROBLEMS
from chatbot.server.writing import Writing, WritingHere
from stores.access import SENSITIVITIES, Clearance, Sensitivity, Visibility
from stores.errors import UnknownObservation
from stores.observation import LONGEST_LINE, LONGEST_TEXT, Status, Type, is_observation_id
from stores.query import Order
from stores.records import format_time

router = APIRouter(prefix="/v1/memories", tags=["memory"], responses=PROBLEMS)

MemoryId = Annotated[str, Path(max_length=100, description="The id of what is remembered.")]
Line = Annotated[str, Field(max_length=LONGEST_LINE)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Around = Annotated[int, Query(ge=0, le=MOST, description="How many at most.")]
Ask = Annotated[
    list[Sensitivity] | None,
    Query(description="More delicate rows that are wanted too; your clearance still decides."),
]


class Wanted(BaseModel):
    """Which rows; of several values in one field, any will do."""

    model_config = ConfigDict(extra="forbid")

    type: tuple[Type, ...] = ()
    tag: tuple[Line, ...] = ()
    person: tuple[Line, ...] = ()
    subject: Line | None = None
    category: Line | None = None
    project: Line | None = None
    session_id: Annotated[str, Field(max_length=100)] | None = Field(None, description="Noted in that session.")
    visibility: tuple[Visibility, ...] = ()
    after: datetime | None = Field(None, description="Noted at or after this time.")
    before: datetime | None = Field(None, description="Noted before this time.")
    ask: tuple[Sensitivity, ...] = Field(
        (), description="Delicate rows that are wanted too, as far as your clearance goes."
    )
    limit: int = Field(20, ge=1, le=MOST)
    identity: str | None = Field(None, max_length=100, description="Who is asked.")

    def as_filter(self) -> dict[str, Any]:
        """The fields of `Filter` that are asked for."""
        return {
            "types": self.type,
            "tags": self.tag,
            "people": self.person,
            "subject": self.subject,
            "category": self.category,
            "project": self.project,
            "session_id": self.session_id,
            "visibilities": self.visibility,
            "after": self.after,
            "before": self.before,
        }

    @property
    def asked(self) -> tuple[Sensitivity, ...]:
        """The sensitivities that are wanted."""
        return ("public", *self.ask)


class Listed(Wanted):
    """Which rows, in which order."""

    status: tuple[Status, ...] = ("active",)
    order: Order = "updated"
    cursor: Annotated[str, Field(max_length=100)] | None = Field(None, description="`next_cursor` of the page before.")


class Searched(Wanted):
    """Which rows, about what."""

    q: str = Field("", max_length=10_000, description="What it is about; without it, what is newest.")
    max_tokens: int | None = Field(None, ge=1, description="End the list once it would take more in full.")
    count_use: bool = Field(default=False, description="Count what is returned as used, as an agent's own recall is.")


class Draft(Given):
    """What is to be remembered: a title, a narrative or a fact is needed."""

    title: Line = ""
    subtitle: Line = ""
    narrative: Text = ""
    facts: tuple[Text, ...] = ()
    type: Line = "note"
    tags: tuple[Line, ...] = ()
    concepts: tuple[Line, ...] = ()
    people: tuple[Line, ...] = ()
    subject: Line = ""
    category: Line = ""
    project: Line = ""
    metadata: dict[str, Any] | None = None
    importance: float = Field(0.5, ge=0, le=1)
    visibility: Visibility | None = Field(None, description="Default: what your clearance gives.")
    sensitivity: Sensitivity = "public"
    min_clearance: Clearance = "public"
    expires_at: datetime | None = None
    supersedes: str | None = Field(None, description="The id of what it takes the place of.")


class Change(Given):
    """Fields to set to other values; those that are not given stay."""

    title: Line | None = None
    subtitle: Line | None = None
    narrative: Text | None = None
    facts: list[Text] | None = None
    type: Type | None = None
    tags: list[Line] | None = None
    concepts: list[Line] | None = None
    people: list[Line] | None = None
    subject: Line | None = None
    category: Line | None = None
    project: Line | None = None
    metadata: dict[str, Any] | None = Field(None, description="Set one by one; null takes a key away.")
    importance: float | None = Field(None, ge=0, le=1)
    visibility: Visibility | None = None
    sensitivity: Sensitivity | None = None
    min_clearance: Clearance | None = None
    expires_at: datetime | None = Field(None, description="null: never.")

    def fields(self) -> dict[str, Any]:
        """What was given, as it is written. Only `expires_at` may be set to nothing."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if self.expires_at is not None:
            given["expires_at"] = format_time(self.expires_at)
        return {name: value for name, value in given.items() if value is not None or name == "expires_at"}


class Successor(Given):
    """What takes the place of another."""

    by: str = Field(max_length=100, description="The id of what is true now.")


class Outcome(Shape):
    """What became of it."""

    id: str
    outcome: str = Field(description="added, exact_dup, updated, deleted or skipped")
    reason: str
    redacted: list[str] = Field(description="The kinds of secrets that were taken out before anything was kept.")
    warning: str


class Hit(BaseModel):
    """Something found, best first; the score lies in 0 to 1, and is 0 where nothing was ranked."""

    score: float
    memory: Memory


class Happening(BaseModel):
    """One thing that happened to it."""

    kind: str
    at: datetime
    by: str | None = Field(description="What took its place.")
    who: str
    times: int = Field(1, description="How often, since the event before, where that is told in one.")
    fields: dict[str, Any] = Field(description="The fields that were set.")


class Version(BaseModel):
    """One in the line of succession, with what happened to it."""

    memory: Memory
    events: list[Happening]


@router.get("", summary="List what is remembered")
async def list_memories(visit: VisitHere, wanted: Annotated[Listed, Query()]) -> Page[Memory]:
    """By time, newest first."""
    page = await visit.memories.list_observations(
        order=wanted.order,
        limit=wanted.limit,
        cursor=wanted.cursor,
        ask=wanted.asked,
        statuses=wanted.status,
        **wanted.as_filter(),
    )
    return Page(data=[Memory.model_validate(row) for row in page.rows], next_cursor=page.after)


@router.get("/search", summary="Search what is remembered")
async def search_memories(visit: VisitHere, wanted: Annotated[Searched, Query()]) -> Page[Hit]:
    """Best first."""
    hits = await visit.memories.search(
        wanted.q,
        limit=wanted.limit,
        max_tokens=wanted.max_tokens,
        ask=wanted.asked,
        count_use=wanted.count_use,
        **wanted.as_filter(),
    )
    return Page(data=[Hit(score=hit.score, memory=Memory.model_validate(hit.observation)) for hit in hits])


@router.post("", summary="Remember something", status_code=201)
async def remember(visit: VisitHere, draft: Annotated[Draft, Body()], writing: WritingHere) -> Outcome:
    """On the disk when this returns. What was remembered before is not kept twice: `exact_dup`."""
    if writing.before:
        return _outcome_again(writing)
    given = {name: getattr(draft, name) for name in draft.model_fields_set}
    return _outcome(await visit.memories.remember(**given, source="user"), writing)


@router.get("/{memory_id}", summary="Read one in full")
async def get_memory(memory_id: MemoryId, visit: VisitHere, ask: Ask = None) -> Memory:
    """Whatever its status."""
    line = await _history(visit.memories, memory_id, ("public", *(ask or ())))
    return Memory.model_validate(next(each.observation for each in line if each.observation.id == memory_id))


@router.patch("/{memory_id}", summary="Correct one")
async def change_memory(
    memory_id: MemoryId, visit: VisitHere, change: Annotated[Change, Body()], writing: WritingHere
) -> Outcome:
    """Its history keeps what it said before. What has *changed* is better superseded: see `supersedes`."""
    if writing.before:
        return _outcome_again(writing)
    return _outcome(await visit.memories.update(_checked(memory_id), **change.fields()), writing)


@router.delete("/{memory_id}", summary="Forget one", status_code=204)
async def forget_memory(
    memory_id: MemoryId,
    visit: VisitHere,
    purge: Annotated[bool, Query(description="Erase it from memory for good, with what was derived.")] = False,  # noqa: FBT002
) -> None:
    """It can be restored, unless it is purged."""
    memories = visit.memories
    if purge:
        await memories.purge(_checked(memory_id))
    else:
        await memories.forget(_checked(memory_id))


@router.get("/{memory_id}/history", summary="See how it came to be")
async def get_history(memory_id: MemoryId, visit: VisitHere, ask: Ask = None) -> Page[Version]:
    """What it took the place of, what took its, and what happened to each, oldest first."""
    line = await _history(visit.memories, memory_id, ("public", *(ask or ())))
    return Page(
        data=[
            Version(
                memory=Memory.model_validate(version.observation),
                events=[
                    Happening(
                        kind=each.kind,
                        at=each.at,
                        by=each.by,
                        who=each.who,
                        times=each.times,
                        fields=dict(each.fields),
                    )
                    for each in version.events
                ],
            )
            for version in line
        ]
    )


@router.get("/{memory_id}/timeline", summary="See what was noted around it")
async def get_timeline(
    memory_id: MemoryId, visit: VisitHere, *, before: Around = 5, after: Around = 5, ask: Ask = None
) -> Page[Memory]:
    """What was remembered just before and after it, which stands among them, oldest first."""
    asked = ("public", *(ask or ()))
    rows = await visit.memories.timeline(_checked(memory_id), before=before, after=after, ask=asked)
    return Page(data=[Memory.model_validate(row) for row in rows])


@router.post("/{memory_id}/supersede", summary="Let another take its place", status_code=204)
async def supersede_memory(memory_id: MemoryId, visit: VisitHere, given: Annotated[Successor, Body()]) -> None:
    """It is recalled no more, and stays in the history of what took its place."""
    await visit.memories.supersede(_checked(memory_id), _checked(given.by))


@router.post("/{memory_id}/restore", summary="Bring one back", status_code=204)
async def restore_memory(memory_id: MemoryId, visit: VisitHere) -> None:
    """Whatever became of it, unless it was purged."""
    await visit.memories.restore(_checked(memory_id))


@router.post("/{memory_id}/confirm", summary="Vouch for one", status_code=204)
async def confirm_memory(memory_id: MemoryId, visit: VisitHere) -> None:
    """It then weighs more when it is recalled."""
    await visit.memories.confirm(_checked(memory_id))


def _checked(memory_id: str) -> str:
    """The id. What has not the form of one is no other error than one that is not there."""
    if not is_observation_id(memory_id):
        raise UnknownObservation(f"there is no observation {memory_id!r:.80}")
    return memory_id


async def _history(memories: Memories, memory_id: str, ask: tuple[Sensitivity, ...]) -> list[Any]:
    return await memories.history(_checked(memory_id), ask=[each for each in SENSITIVITIES if each in ask])


def _outcome(remembered: Remembered, writing: Writing) -> Outcome:
    outcome = Outcome.model_validate(dataclasses.asdict(remembered))
    writing.note(id=outcome.id, outcome=outcome.outcome, redacted=",".join(outcome.redacted))
    return outcome


def _outcome_again(writing: Writing) -> Outcome:
    made = dict(writing.before or {})
    redacted = list(filter(None, made.pop("redacted").split(",")))
    return Outcome(**made, redacted=redacted, reason="", warning="")
