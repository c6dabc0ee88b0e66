"""The last failures of hooks, kept with the identity for `chatbot doctor`: a small, bounded file."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from itertools import count, islice

from chatbot.memory.session_catalog import FAILURES as LINES
from chatbot.stores.backend import Place
from chatbot.stores.backends import open_place
from chatbot.stores.home import Home

_KEPT = 50
_SLACK = 50
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure: its time in ISO 8601, hook, topic, session, and message."""

    at: str
    hook: str
    topic: str
    session: str
    message: str


class Failures:
    """The last failures of an identity's hooks; a folder or an address stands for its place, None for none."""

    def __init__(self, place: Place | Home | None) -> None:
        self._lines = open_place(place).lines(LINES)

    def acknowledge(self) -> None:
        """Delete what was written down."""
        self._lines.rewrite(lambda _: None)

    async def add(self, failure: Failure) -> None:
        """Write a failure. Raises a `StoreError` where that is not possible."""
        await asyncio.to_thread(self._add, failure)

    def read(self) -> list[Failure]:
        """Return the last ones, oldest first. Unreadable lines are left out."""
        lines = list(islice(self._lines.newest_first(), _KEPT))[::-1]
        return [Failure(**{name: str(line.get(name, "")) for name in Failure.__slots__}) for line in lines]

    def _add(self, failure: Failure) -> None:
        with self._lines.alone() as pen:
            pen.append([asdict(failure) | {"message": failure.message[:_LONGEST]}])
            surplus = sum(1 for _ in self._lines.newest_first()) - _KEPT
            if surplus > _SLACK:
                place = count()
                pen.rewrite(lambda line: line if next(place) >= surplus else None)
