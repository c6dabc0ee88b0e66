"""Requests to stop a turn that another server runs, stored as lines of the identity.

Servers with running turns read them twice a second. The session's lease shows whether anyone runs a turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from uuid import uuid4

from chatbot.memory.scope import utc_now
from chatbot.stores.backend import Backend, Lease, Mark
from chatbot.stores.errors import StoreError
from chatbot.stores.records import format_time

logger = logging.getLogger(__name__)

_LINES = "stops"
_LOOK_EVERY_S = 0.5
_LINGER_S = 5.0
"""Seconds to keep reading requests after a turn may have begun."""
_LONGEST_WAIT_S = 15.0
"""Longest wait for another server to stop."""
_MOST_REQUESTS = 200
_KEPT_FOR = timedelta(hours=1)


class StopRequests:
    """The requests for one identity. `stop` ends turns of a session here; `is_busy` returns whether any run here."""

    def __init__(self, backend: Backend, stop: Callable[[str], Awaitable[object]], is_busy: Callable[[], bool]) -> None:
        self._backend = backend
        self._lines = backend.lines(_LINES)
        self._stop = stop
        self._is_busy = is_busy
        self._mark: Mark | None = None
        self._seen: set[str] = set()
        self._wanted_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()

    async def listen(self) -> None:
        """Read requests from now on, while a turn runs here."""
        async with self._beginning:
            self._wanted_until = time.monotonic() + _LINGER_S
            if self._task is None or self._task.done():
                await asyncio.to_thread(self._read_new)
                self._task = asyncio.create_task(self._watch(), name="stop requests")

    async def is_running(self, session_id: str) -> bool:
        """Return whether anyone runs a turn of the session."""
        return not await asyncio.to_thread(is_free, self.lease(session_id))

    async def ask_to_stop(self, session_id: str) -> int:
        """Stop a turn of the session that another server runs; return 1 if there was one and it has ended, else 0."""
        lease = self.lease(session_id)
        if await asyncio.to_thread(is_free, lease):
            return 0
        await asyncio.to_thread(self._write, session_id, utc_now())
        give_up = time.monotonic() + _LONGEST_WAIT_S
        while not await asyncio.to_thread(is_free, lease):
            if time.monotonic() > give_up:
                return 0
            await asyncio.sleep(_LOOK_EVERY_S / 4)
        return 1

    async def aclose(self) -> None:
        """Stop reading requests."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def lease(self, session_id: str) -> Lease:
        """Return the lease that a running turn of the session holds."""
        return self._backend.place_of(self._backend.sessions.ref(session_id)).lease("turn")

    async def _watch(self) -> None:
        while self._is_busy() or time.monotonic() < self._wanted_until:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                for session_id in await asyncio.to_thread(self._read_new):
                    await self._stop(session_id)
            except StoreError as error:
                logger.warning("requests of other servers about a turn cannot be read: %s", error)

    def _read_new(self) -> list[str]:
        mark, read, starts_over = self._mark, dict[str, str](), False
        while (reading := self._lines.since(mark)).records:
            mark = reading.mark
            starts_over |= reading.starts_over
            read |= {record["id"]: str(record["session"]) for record in reading.records}
        sessions = [session for request, session in read.items() if request not in self._seen]
        self._mark = reading.mark
        self._seen = set(read) if starts_over else self._seen | set(read)  # no more than there are lines
        return sessions

    def _write(self, session_id: str, now: datetime) -> None:
        since = format_time(now - _KEPT_FOR)
        with self._lines.alone() as writer:
            writer.append([{"id": str(uuid4()), "session": session_id, "at": format_time(now)}])
            if sum(1 for _ in self._lines.newest_first()) > _MOST_REQUESTS:
                writer.rewrite(lambda record: record if record["at"] >= since else None)


def is_free(lease: Lease) -> bool:
    """Return whether nobody holds the lease. Blocking."""
    if not lease.take():
        return False
    lease.release()
    return True
