"""Lists in pages: each says where the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict

from chatbot.server import values
from chatbot.server.errors import UNKNOWN, Problem, Refused
from chatbot.server.values import ID

Item = TypeVar("Item")

_CURSOR = "`next_cursor` of the page before."
_TIME = "[0-9]{1,16}"
"""A time in microseconds since 1970, for which any number will do."""
RANK = "^[0-9]{1,3}$"
"""The cursor of a list by rank: how many came before."""

Limit = Annotated[values.Limit, Query(description="How many at most.")]


IdCursor = Annotated[str | None, Query(pattern=ID, description=_CURSOR)]
TimeCursor = Annotated[str | None, Query(pattern=f"^{_TIME}~{ID[1:]}", description=_CURSOR)]
"""A time, and the id of what was there then."""
EntryCursor = Annotated[str | None, Query(pattern=f"^{_TIME}~[1-9][0-9]{{0,7}}$", description=_CURSOR)]
NameCursor = Annotated[str | None, Query(pattern="^[0-9a-f]{16}$", description=_CURSOR)]
RankCursor = Annotated[str | None, Query(pattern=RANK, description=_CURSOR)]


class Page(BaseModel, Generic[Item]):
    """A part of a list."""

    model_config = ConfigDict(use_attribute_docstrings=True, json_schema_extra={"description": "A part of a list."})

    data: list[Item]
    """What is on this page."""
    next_cursor: str | None = None
    """What to ask for next, as `cursor`; null at the end."""


def page_after(
    items: Sequence[Item], key: Callable[[Item], str], *, cursor: str | None, limit: int
) -> tuple[Sequence[Item], str | None]:
    """The part of a list that is at hand whole, from behind the item whose key is `cursor`, and the next cursor.

    Refuses a cursor that is not there.
    """
    begin = 0 if cursor is None else _position(items, key, cursor) + 1
    part = items[begin : begin + limit]
    return part, key(part[-1]) if begin + limit < len(items) else None


def gone(cursor: str) -> Refused:
    """The error for a cursor that leads nowhere."""
    message = f"no page begins at the cursor {cursor!r:.80}: begin with the first one again"
    return Refused(Problem(404, UNKNOWN, "page_not_found", message, "cursor"))


def _position(items: Sequence[Item], key: Callable[[Item], str], cursor: str) -> int:
    for position, item in enumerate(items):
        if key(item) == cursor:
            return position
    raise gone(cursor)
