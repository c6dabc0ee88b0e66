"""Lists in pages: each says where the next one begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Generic, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from chatbot.memory import SessionHandle
from chatbot.server import request_values
from chatbot.stores.records import TranscriptEntry

Item = TypeVar("Item")

_CURSOR = "`next_cursor` of the page before."
RANK = "^[0-9]{1,6}$"
"""The cursor of a list by rank: how many came before."""

Limit = Annotated[request_values.Limit, Query(description="Maximum results.")]
RankCursor = Annotated[str | None, Query(pattern=RANK, description=_CURSOR)]
EntryCursor = Annotated[str | None, Query(pattern="^[1-9][0-9]{0,7}$", description=_CURSOR)]
SessionId = Annotated[str, Path(max_length=100, description="The session's id.")]


class Page(BaseModel, Generic[Item]):
    """A part of a list."""

    # Described without docstrings: for each `Page[Item]` pydantic would look for their source in the whole stack.
    model_config = ConfigDict(json_schema_extra={"description": "A part of a list."})

    data: list[Item] = Field(description="Items of this page.")
    next_cursor: str | None = Field(None, description="Cursor of the next page; null at the end.")


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
