"""`/v1/memories`: what is remembered; to list, search, add, correct, forget and erase."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from chatbot.memory.reading import DEFAULT_LIMIT
from chatbot.memory.remembering import Memories
from chatbot.memory.writing import DEFAULT_TYPE, Remembered
from chatbot.server.dependencies import VisitHere
from chatbot.server.native.pages import RANK, Page
from chatbot.server.native.shapes import Given, Memory, Shape, described_as
from chatbot.server.responses import OF_MEMORY
from chatbot.server.values import ID, VISIBLE, Limit, LimitOrNone, Line, Moment, Share, Switch, Text, TokensAsked
from chatbot.server.writing import Writing, WritingHere
from stores.access import SENSITIVITIES, Clearance, Sensitivity, Visibility
from stores.errors import UnknownObservation
from stores.observation import Status, Type, is_observation_id
from stores.query import Order
from stores.records import format_time

router = APIRouter(prefix="/v1/memories", tags=["memory"], responses=OF_MEMORY)

MemoryId = Annotated[str, Path(max_length=100, description="The id of what is remembered.")]
Around = Annotated[LimitOrNone, Query(description="How many at most.")]
Ask = Annotated[
    list[Sensitivity] | None,
    Query(description="More delicate rows that are wanted too; your clearance still decides."),
]
_SOMETHING = {
    "anyOf": [
        *({"required": [name], "properties": {name: {"pattern": VISIBLE}}} for name in ("title", "narrative")),
        {"required": ["facts"], "properties": {"facts": {"contains": {"pattern": VISIBLE}}}},
    ]
}


class Wanted(BaseModel):
    """Which rows; of several values in one field, any will do."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: tuple[Type, ...] = ()
    """Of that type."""
    tag: tuple[Line, ...] = ()
    """With that tag."""
    person: tuple[Line, ...] = ()
    """That mention someone, by any of their names."""
    subject: Line | None = None
    """About exactly that."""
    category: Line | None = None
    """Of that category."""
    project: Line | None = None
    """Of that project."""
    session_id: Annotated[str, Field(max_length=100)] | None = None
    """Noted in that session."""
    visibility: tuple[Visibility, ...] = ()
    """For those readers."""
    after: Moment | None = None
    """Noted at or after this time."""
    before: Moment | None = None
    """Noted before this time."""
    ask: tuple[Sensitivity, ...] = ()
    """Delicate rows that are wanted too, as far as your clearance goes."""
    limit: Limit = 20
    """How many at most."""
    identity: str | None = Field(None, max_length=100)
    """Who is asked; default: the first that the token opens."""

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
    """What became of them."""
    order: Order = "updated"
    """By which of their times."""
    cursor: Annotated[str, Field(pattern=ID)] | None = None
    """`next_cursor` of the page before."""


class Searched(Wanted):
    """Which rows, about what."""

    q: str = Field("", max_length=10_000)
    """What it is about; without it, what is newest."""
    limit: LimitOrNone = 20
    """How many at most; 0 means 10."""
    max_tokens: TokensAsked | None = None
    """End the list once it would take more in full."""
    count_use: Switch = False
    """Count what is returned as used, as an agent's own recall is."""
    cursor: Annotated[str, Field(pattern=RANK)] | None = None
    """`next_cursor` of the page before."""


class Draft(Given):
    """What is to be remembered: a title, a narrative or a fact is needed."""

    model_config = ConfigDict(json_schema_extra=described_as(Memory, **_SOMETHING))

    title: Line = ""
    subtitle: Line = ""
    narrative: Text = ""
    facts: tuple[Text, ...] = ()
    type: Line = DEFAULT_TYPE
    """What kind of thing it is; one that is not known becomes a note, with a warning."""
    tags: tuple[Line, ...] = ()
    concepts: tuple[Line, ...] = ()
    people: tuple[Line, ...] = ()
    subject: Line = ""
    category: Line = ""
    project: Line = ""
    metadata: dict[str, Any] | None = None
    importance: Share = 0.5
    visibility: Visibility | None = None
    """Who it is for; by default what your clearance gives."""
    sensitivity: Sensitivity = "public"
    min_clearance: Clearance = "public"
    expires_at: Moment | None = None
    supersedes: str | None = None
    """The id of what it takes the place of."""


class Change(Given):
    """Fields to set to other values; those that are not given stay."""

    model_config = ConfigDict(json_schema_extra=described_as(Memory))

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
    metadata: dict[str, Any] | None = None
    """Anything else, set key by key; null takes a key away."""
    importance: Share | None = None
    visibility: Visibility | None = None
    sensitivity: Sensitivity | None = None
    min_clearance: Clearance | None = None
    expires_at: Moment | None = None

    def fields(self) -> dict[str, Any]:
        """What was given, as it is written. Only `expires_at` may be set to nothing."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if self.expires_at is not None:
            given["expires_at"] = format_time(self.expires_at)
        return {name: value for name, value in given.items() if value is not None or name == "expires_at"}


class Successor(Given):
    """What takes the place of another."""

    by: str = Field(max_length=100)
    """The id of what is true now."""


class Outcome(Shape):
    """What became of it."""

    id: str
    """The memory that it is now; empty where it was skipped."""
    outcome: str
    """added, exact_dup, updated, deleted or skipped"""
    reason: str
    """Why it was skipped."""
    redacted: list[str]
    """The kinds of secrets that were taken out before anything was kept."""
    warning: str
    """What was not taken as it was given."""


class Hit(Shape):
    """Something found, best first."""

    score: float
    """From 0 to 1; 0 where nothing was ranked."""
    memory: Memory
    """What was found."""


class Happening(Shape):
    """One thing that happened to it."""

    kind: str
    """add, update, mention, use, confirm, supersede, expire, archive, compress, consolidate, restore or delete"""
    at: datetime
    """When it happened."""
    by: str | None
    """What took its place."""
    who: str
    """The agent that did it."""
    why: str
    """The reason, where one is told."""
    times: int = 1
    """How often, since the event before, where that is told in one."""
    fields: dict[str, Any]
    """The fields that were set."""


class Version(Shape):
    """One in the line of succession."""

    memory: Memory
    """As it is now."""
    events: list[Happening]
    """What happened to it, oldest first."""


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
    limit, offset = wanted.limit or DEFAULT_LIMIT, int(wanted.cursor or 0)
    hits = await visit.memories.search(
        wanted.q,
        limit=limit + 1,
        offset=offset,
        max_tokens=wanted.max_tokens,
        ask=wanted.asked,
        count_use=False,
        **wanted.as_filter(),
    )
    if wanted.count_use:
        await visit.memories.note_use([hit.observation.id for hit in hits[:limit]])
    return Page(
        data=[Hit(score=hit.score, memory=Memory.model_validate(hit.observation)) for hit in hits[:limit]],
        next_cursor=str(offset + limit) if len(hits) > limit else None,
    )


@router.post("", summary="Remember something", status_code=201)
async def remember(visit: VisitHere, draft: Annotated[Draft, Body()], writing: WritingHere) -> Outcome:
    """On the disk when this returns. What was remembered before is not kept twice: `exact_dup`."""
    if writing.before:
        return _outcome_again(writing)
    given = {name: getattr(draft, name) for name in draft.model_fields_set}
    if draft.supersedes is not None:
        checked(draft.supersedes)
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
    return _outcome(await visit.memories.update(checked(memory_id), **change.fields()), writing)


@router.delete("/{memory_id}", summary="Forget one", status_code=204)
async def forget_memory(
    memory_id: MemoryId,
    visit: VisitHere,
    purge: Annotated[Switch, Query(description="Erase it from memory for good, with what was derived.")] = False,  # noqa: FBT002
) -> None:
    """It can be restored, unless it is purged."""
    memories = visit.memories
    if purge:
        await memories.purge(checked(memory_id))
    else:
        await memories.forget(checked(memory_id))


@router.get("/{memory_id}/history", summary="See how it came to be")
async def get_history(memory_id: MemoryId, visit: VisitHere, ask: Ask = None) -> Page[Version]:
    """What it took the place of, what took its, and what happened to each, oldest first."""
    line = await _history(visit.memories, memory_id, ("public", *(ask or ())))
    return Page(
        data=[
            Version(
                memory=Memory.model_validate(version.observation),
                events=[Happening.model_validate(event) for event in version.events],
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
    rows = await visit.memories.timeline(checked(memory_id), before=before, after=after, ask=asked)
    return Page(data=[Memory.model_validate(row) for row in rows])


@router.post("/{memory_id}/supersede", summary="Let another take its place", status_code=204)
async def supersede_memory(memory_id: MemoryId, visit: VisitHere, given: Annotated[Successor, Body()]) -> None:
    """It is recalled no more, and stays in the history of what took its place."""
    await visit.memories.supersede(checked(memory_id), checked(given.by))


@router.post("/{memory_id}/restore", summary="Bring one back", status_code=204)
async def restore_memory(memory_id: MemoryId, visit: VisitHere) -> None:
    """Whatever became of it, unless it was purged."""
    await visit.memories.restore(checked(memory_id))


@router.post("/{memory_id}/confirm", summary="Vouch for one", status_code=204)
async def confirm_memory(memory_id: MemoryId, visit: VisitHere) -> None:
    """It then weighs more when it is recalled."""
    await visit.memories.confirm(checked(memory_id))


def checked(memory_id: str) -> str:
    """The id. What has not the form of one is no other error than one that is not there."""
    if not is_observation_id(memory_id):
        raise UnknownObservation(f"there is no observation {memory_id!r:.80}")
    return memory_id


async def _history(memories: Memories, memory_id: str, ask: tuple[Sensitivity, ...]) -> list[Any]:
    return await memories.history(checked(memory_id), ask=[each for each in SENSITIVITIES if each in ask])


def _outcome(remembered: Remembered, writing: Writing) -> Outcome:
    outcome = Outcome.model_validate(dataclasses.asdict(remembered))
    writing.note(id=outcome.id, outcome=outcome.outcome, redacted=",".join(outcome.redacted))
    return outcome


def _outcome_again(writing: Writing) -> Outcome:
    made = dict(writing.before or {})
    redacted = list(filter(None, made.pop("redacted").split(",")))
    return Outcome(**made, redacted=redacted, reason="", warning="")
