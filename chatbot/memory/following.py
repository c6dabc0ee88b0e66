"""Following a memory: the changes of memories, sessions and users that a caller may know, from a position on.

Changes by other processes are seen too. Every change is told at least once, and some again after a purge; a position
stays good across restarts, and tells nothing that its holder does not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime

from chatbot.memory.notices import ChangeNotice, Notices
from chatbot.memory.scope import Scope, Sensitivities
from chatbot.stores.backend import Hint
from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import Observation
from chatbot.stores.row_changes import Change, ChangeCursor, Position

POLLED_EVERY_S = 0.5
_LONGEST_S = 5.0
"""Between two looks where hints come."""
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """One change, and the position to go on behind it."""

    kind: str
    """`memory.added`, `memory.changed`, `memory.purged`, `session.added`, `session.changed`, `session.deleted` or
    `user.erased`."""
    at: datetime
    position: str
    memory: Observation | None = None
    """The memory that was added or changed, as it is now."""
    change: str = ""
    """Kind of the event, as in the history: `update`, `supersede`, `delete` and so on."""
    ids: tuple[str, ...] = ()
    """Otherwise the ids of memories or sessions; of a user the digest of the namespace, for the name is gone."""


class Following:
    """One caller's way through the changes. `after` is a position, "0" for the beginning, None for what comes next.

    Raises `InvalidValue` for what is no position, and `UnsupportedOperation` for a store that does not report changes.
    """

    def __init__(
        self, scope: Scope, notices: Notices, after: str | None, *, ask: Sensitivities, hint: Hint | None = None
    ) -> None:
        self._scope = scope
        self._ask = ask
        memories, told = _parsed(after)
        self._after: Position | ChangeCursor | None = memories
        self._notices = notices.reader(told)
        self._position = memories or Position(0)
        self._hint = hint or Hint()

    @property
    def position(self) -> str:
        """Where to go on: behind everything that was read."""
        return f"{self._position}.{self._notices.position}"

    async def read(self, limit: int = _AT_ONCE) -> list[MemoryChange]:
        """Return the next changes, at most `limit` of memories and as many others; an empty list for none yet."""
        view = self._scope.view(self._ask)
        changes = await self._scope.store.changes(view, self._after, limit=limit)
        self._after = changes.reached
        found = []
        for each in changes.items:
            self._position = each.position
            found.append(self._of_memory(each))
        self._position = changes.reached.position
        notices = await asyncio.to_thread(self._notices.read, view, limit=limit)
        return [*found, *map(self._of_notice, notices)]

    async def watch(self, every_s: float = POLLED_EVERY_S) -> AsyncGenerator[MemoryChange, None]:
        """Yield the changes as they are made; looks for new ones every so many seconds. Never ends by itself."""
        while True:
            found = await self.read()
            for each in found:
                yield each
            if not found:
                await self.wait(every_s)

    async def wait(self, every_s: float = POLLED_EVERY_S) -> None:
        """Wait until there may be more: so many seconds, or until a database hints at it."""
        await self._hint.wait(every_s, max(every_s, _LONGEST_S))

    def _of_memory(self, change: Change) -> MemoryChange:
        kind = "memory.added" if change.kind == "add" else "memory.changed"
        return MemoryChange(kind, change.at, f"{change.position}.{self._notices.position}", change.row, change.kind)

    def _of_notice(self, notice: ChangeNotice) -> MemoryChange:
        return MemoryChange(notice.kind, notice.at, f"{self._position}.{notice.position}", ids=notice.ids)


def _parsed(after: str | None) -> tuple[Position | None, Position | None]:
    if after is None:
        return None, None
    memories, _, told = after.partition(".")
    try:
        return Position.parse(memories), Position.parse(told or memories.partition("~")[0])
    except InvalidValue as error:
        raise InvalidValue(f"after: {error}") from None
