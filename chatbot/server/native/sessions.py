"""`/v1/sessions`: begin, list, look at, rename, fork and delete conversations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Path
from pydantic import Field

from chatbot.memory import SessionRecord
from chatbot.memory.record import LONGEST_TITLE
from chatbot.server.dependencies import VisitHere
from chatbot.server.native.pages import Cursor, Limit, Page, gone
from chatbot.server.native.shapes import Given, Session
from chatbot.server.responses import PROBLEMS
from stores.errors import InvalidValue
from stores.records import format_time, parse_time

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=PROBLEMS)

SessionId = Annotated[str, Path(max_length=100, description="The session's id.")]


class Titled(Given):
    """A title; empty for none."""

    title: str = Field("", max_length=LONGEST_TITLE)


@router.get("", summary="List sessions, the one used last first")
async def list_sessions(visit: VisitHere, limit: Limit = 20, cursor: Cursor = None) -> Page[Session]:
    """Those that your clearance opens."""
    records = await visit.sessions(limit=limit + 1, before=None if cursor is None else place_of(cursor))
    shown = records[:limit]
    return Page(
        data=[Session.model_validate(record) for record in shown],
        next_cursor=cursor_of(shown[-1]) if len(records) > limit else None,
    )


@router.post("", summary="Begin a session", status_code=201)
async def begin_session(visit: VisitHere, given: Annotated[Titled | None, Body()] = None) -> Session:
    """It is on the disk when this returns, and stays closed to callers of less clearance than you have."""
    session = await visit.new_session(given.title if given else "")
    return Session.model_validate(session.record)


@router.get("/{session_id}", summary="Look at a session")
async def get_session(session_id: SessionId, visit: VisitHere) -> Session:
    """What is known of it without reading what was said."""
    return Session.model_validate((await visit.session(session_id)).record)


@router.patch("/{session_id}", summary="Rename a session")
async def rename_session(session_id: SessionId, visit: VisitHere, given: Annotated[Titled, Body()]) -> Session:
    """An empty title takes it away; the next message then gives it one."""
    session = await visit.session(session_id)
    await session.rename(given.title)
    return Session.model_validate(session.record)


@router.delete("/{session_id}", summary="Erase a session for good", status_code=204)
async def delete_session(session_id: SessionId, visit: VisitHere) -> None:
    """Its files go; what was remembered of it stays until it is forgotten or purged."""
    await visit.delete(session_id)


@router.post("/{session_id}/fork", summary="Copy a session, to go on another way", status_code=201)
async def fork_session(
    session_id: SessionId, visit: VisitHere, given: Annotated[Titled | None, Body()] = None
) -> Session:
    """The copy begins with everything that the session holds, but for its receipts: what they bill was spent once."""
    return Session.model_validate((await visit.fork(session_id, given.title if given else "")).record)


def cursor_of(record: SessionRecord) -> str:
    """What names the place of a session in a list."""
    return f"{format_time(record.used_at)}~{record.id}"


def place_of(cursor: str) -> tuple[datetime, str]:
    """Read what `cursor_of` gave. Raises `InvalidValue`."""
    at, _, session_id = cursor.partition("~")
    try:
        return parse_time(at), session_id
    except InvalidValue:
        raise gone(cursor) from None
