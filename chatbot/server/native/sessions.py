"""`/v1/sessions`: begin, list, look at, rename, fork and delete conversations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query
from pydantic import Field

from chatbot.memory import SessionRecord
from chatbot.memory.record import LONGEST_TITLE
from chatbot.server.dependencies import VisitHere
from chatbot.server.native.pages import Limit, Page, RankCursor, TimeCursor, gone
from chatbot.server.native.shapes import Given, Session, Shape
from chatbot.server.responses import OF_IDENTITY
from chatbot.server.writing import WritingHere
from stores.records import micros, moment

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=OF_IDENTITY)

SessionId = Annotated[str, Path(max_length=100, description="The session's id.")]


class Titled(Given):
    """A title; empty for none."""

    title: str = Field("", max_length=LONGEST_TITLE)
    """What it is called; empty lets the next message give it a name."""


class Found(Shape):
    """A session that speaks of something, and where it does so best."""

    session: Session = Field(validation_alias="record")
    """The session."""
    score: float
    """By which they are sorted; it has no upper bound."""
    role: str
    """Of the entry; `memory` for something remembered of the session, or `title`."""
    line: str
    """The line that says so."""
    ranges: list[tuple[int, int]]
    """Where in the line the words stand."""
    at: datetime
    """When it was said."""
    number: int | None
    """Which entry, counted from 1; null where it is none."""
    observation: str | None
    """The id of the memory, where it is one."""
    matches: int
    """How many entries hold any of the words."""


@router.get("", summary="List sessions, the one used last first")
async def list_sessions(visit: VisitHere, limit: Limit = 20, cursor: TimeCursor = None) -> Page[Session]:
    """Those that your clearance opens."""
    records = await visit.sessions(limit=limit + 1, before=None if cursor is None else place_of(cursor))
    shown = records[:limit]
    return Page(
        data=[Session.model_validate(record) for record in shown],
        next_cursor=cursor_of(shown[-1]) if len(records) > limit else None,
    )


@router.get("/search", summary="Search what was said in sessions")
async def search_sessions(
    visit: VisitHere,
    q: Annotated[str, Query(max_length=1_000, description="What it is about; without it, nothing is found.")] = "",
    limit: Limit = 10,
    cursor: RankCursor = None,
) -> Page[Found]:
    """Which sessions speak of something, best first, each with the line that says so."""
    begin = int(cursor or 0)
    hits = (await visit.search_sessions(q, limit=begin + limit + 1))[begin:]
    return Page(
        data=[Found.model_validate(hit) for hit in hits[:limit]],
        next_cursor=str(begin + limit) if len(hits) > limit else None,
    )


@router.post("", summary="Begin a session", status_code=201)
async def begin_session(
    visit: VisitHere, writing: WritingHere, given: Annotated[Titled | None, Body()] = None
) -> Session:
    """It is on the disk when this returns, and stays closed to callers of less clearance than you have."""
    if writing.before:
        session = await visit.session(writing.before["id"])
    else:
        session = await visit.new_session(given.title if given else "")
    writing.note(id=session.id)
    return Session.model_validate(session.record)


@router.get("/{session_id}", summary="Look at a session")
async def get_session(session_id: SessionId, visit: VisitHere) -> Session:
    """What is known of it without reading what was said."""
    return Session.model_validate((await visit.session(session_id)).record)


@router.patch("/{session_id}", summary="Rename a session")
async def rename_session(
    session_id: SessionId, visit: VisitHere, given: Annotated[Titled, Body()], writing: WritingHere
) -> Session:
    """An empty title takes it away; the next message then gives it one."""
    session = await visit.session(session_id)
    if writing.before is None:
        await session.rename(given.title)
    writing.note()
    return Session.model_validate(session.record)


@router.delete("/{session_id}", summary="Erase a session for good", status_code=204)
async def delete_session(session_id: SessionId, visit: VisitHere) -> None:
    """Its files go; what was remembered of it stays until it is forgotten or purged."""
    await visit.delete(session_id)


@router.post("/{session_id}/fork", summary="Copy a session, to go on another way", status_code=201)
async def fork_session(
    session_id: SessionId, visit: VisitHere, writing: WritingHere, given: Annotated[Titled | None, Body()] = None
) -> Session:
    """The copy begins with everything that the session holds, but for its receipts: what they bill was spent once."""
    if writing.before:
        copy = await visit.session(writing.before["id"])
    else:
        copy = await visit.fork(session_id, given.title if given else "")
    writing.note(id=copy.id)
    return Session.model_validate(copy.record)


def cursor_of(record: SessionRecord) -> str:
    """What names the place of a session in a list."""
    return f"{micros(record.used_at)}~{record.id}"


def place_of(cursor: str) -> tuple[datetime, str]:
    """Read what `cursor_of` gave: a place, whether or not a session still stands there. Refuses anything else."""
    at, _, session_id = cursor.partition("~")
    try:
        return moment(int(at)), session_id
    except ValueError:
        raise gone(cursor) from None
