"""Event feed for any number of readers: each reads it from the start, whenever they join."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Feed(Generic[Item]):
    """A growing list that can be read while it grows, until it ends."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._has_ended = False
        self._grown = asyncio.Event()

    @property
    def items(self) -> Sequence[Item]:
        """All that has come so far."""
        return self._items

    def add(self, item: Item) -> None:
        """Add an event for every reader."""
        self._items.append(item)
        self._wake()

    def end(self) -> None:
        """End the feed."""
        self._has_ended = True
        self._wake()

    async def read(self) -> AsyncIterator[Item]:
        """Yield every item, from the first on; ends when the feed does."""
        at = 0
        while True:
            while at < len(self._items):
                yield self._items[at]
                at += 1
            if self._has_ended:
                return
            await self._grown.wait()

    def _wake(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()
