"""Lists in pages: each says where the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Generic, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from chatbot import operations
from chatbot.memory import SessionHandle
from chatbot.operation import NoSuchPage
from chatbot.server import request_values
from chatbot.server.errors import Problem
from chatbot.server.request_values import ID
from chatbot.stores.records import TranscriptEntry

Item = TypeVar("Item")

_CURSOR = "`next_cursor` of the page before."
RANK = "^[0-9]{1,3}$"
"""The cursor of a list by rank: how many came before."""

Limit = Annotated[request_values.Limit, Query(description="Maximum results.")]


IdCursor = Annotated[str | None, Query(pattern=ID, description=_CURSOR)]
EntryCursor = Annotated[str | None, Query(pattern="^[1-9][0-9]{0,7}$", description=_CURSOR)]


SessionId = Annotated[str, Path(max_length=100, description="The session's id.")]


class Page(BaseModel, Generic[Item]):
    """A part of a list."""

    # Described without docstrings: for each `Page[Item]` pydantic would look for their source in the whole stack.
    model_config = ConfigDict(json_schema_extra={"description": "A part of a list."})

    data: list[Item] = Field(description="Items of this page.")
    next_cursor: str | None = Field(None, description="Cursor of the next page; null at the end.")


def page_after(
    items: Sequence[Item], key: Callable[[Item], str], *, cursor: str | None, limit: int
) -> tuple[Sequence[Item], str | None]:
    """Return the part of a complete list after the item with the key `cursor`, and the next cursor.

    Refuses a cursor that is not there.
    """
    begin = 0 if cursor is None else _position(items, key, cursor) + 1
    part = items[begin : begin + limit]
    return part, key(part[-1]) if begin + limit < len(items) else None


def gone(cursor: str) -> Problem:
    """Return the error for an unknown cursor."""
    message = f"no page begins at the cursor {cursor!r:.80}: begin with the first one again"
    return Problem(404, "page_not_found", message, "cursor")


def place_of(cursor: str) -> tuple[datetime, str]:
    """Read the cursor of a list of sessions. Refuses an invalid one."""
    try:
        return operations.place_of(cursor)
    except NoSuchPage:
        raise gone(cursor) from None


def _position(items: Sequence[Item], key: Callable[[Item], str], cursor: str) -> int:
    for position, item in enumerate(items):
        if key(item) == cursor:
            return position
    raise gone(cursor)


async def entries_between(
    session: SessionHandle, place: Callable[[int], tuple[int, int]]
) -> tuple[list[TranscriptEntry], int, int]:
    """Return the entries that `place` selects of the number of all; the number of the first one, and that of all."""
    total = await session.transcript_count()
    while True:  # a turn may add entries between counting and reading
        begin, end = place(total)
        begin, end = max(0, begin), min(end, total)
        last = await session.transcript_read_last(total - begin)
        if (now := await session.transcript_count()) == total:
            return last[: max(0, end - begin)], begin, total
        total = now
