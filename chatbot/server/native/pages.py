"""Lists in pages: each says where the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

from stores.errors import InvalidValue

Item = TypeVar("Item")

MOST = 200
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next_cursor` of the page before.")]


class Page(BaseModel, Generic[Item]):
    """A part of a list."""

    data: list[Item]
    next_cursor: str | None = Field(None, description="What to ask for next; null at the end.")


def page_after(
    items: Sequence[Item], key: Callable[[Item], str], *, cursor: str | None, limit: int
) -> tuple[Sequence[Item], str | None]:
    """The part of a list that is at hand whole, from behind the item whose key is `cursor`, and the next cursor.

    Raises `InvalidValue` for a cursor that is not there.
    """
    begin = 0 if cursor is None else _position(items, key, cursor) + 1
    part = items[begin : begin + limit]
    return part, key(part[-1]) if begin + limit < len(items) else None


def gone(cursor: str) -> InvalidValue:
    """The error for a cursor that leads nowhere."""
    return InvalidValue(f"no page begins at the cursor {cursor!r:.80}: begin with the first one again")


def _position(items: Sequence[Item], key: Callable[[Item], str], cursor: str) -> int:
    for position, item in enumerate(items):
        if key(item) == cursor:
            return position
    raise gone(cursor)
