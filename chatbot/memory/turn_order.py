"""Order of turns in a session: one at a time, first come first served in a process, by a lease between processes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from chatbot.stores.backend import Lease
from chatbot.stores.errors import ReadOnlyFolder, StoreBusy, StoreError
from chatbot.stores.loops import LoopsLock

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.25
_PATIENCE_S = 600.0


class TurnOrder:
    """Held for the length of a turn. Where no lease can be had, as in a folder that is only read, the order is ours."""

    def __init__(self, lease: Lease, *, patience_s: float = _PATIENCE_S) -> None:
        self.here = LoopsLock()
        """The order within this process alone: for looking, which writes nothing."""
        self.answering = ""
        """Row of the message that the turn under way answers."""
        self._lease = lease
        self._patience_s = patience_s

    def locked(self) -> bool:
        """Return whether this process holds it or waits for it."""
        return self.here.locked()

    async def __aenter__(self) -> None:
        await self.take()

    async def take(self, reads: Callable[[], Sequence[object]] = tuple) -> None:
        """Take the order, and make the reads of `Store.turn_begun` along with it."""
        await self.here.acquire()
        try:
            await self._take(reads)
        except BaseException:
            self.here.release()
            raise

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.answering = ""
        try:
            await _to_its_end(self.let_go)
        finally:
            self.here.release()

    async def _take(self, reads: Callable[[], Sequence[object]]) -> None:
        pause, give_up = _FIRST_PAUSE_S, time.monotonic() + self._patience_s
        while not await self._attempt(reads):
            if time.monotonic() > give_up:
                raise StoreBusy(
                    f"another process has been taking a turn in this session for {self._patience_s:g} s: "
                    "wait for it, or end it"
                )
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    async def _attempt(self, reads: Callable[[], Sequence[object]]) -> bool:
        attempt = asyncio.ensure_future(asyncio.to_thread(self._try, reads()))
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:  # what the thread takes yet would never be given back
            await asyncio.wait([attempt])
            await _to_its_end(self.let_go)
            raise

    def _try(self, reads: Sequence[object]) -> bool:
        try:
            return self._lease.take_with(reads)
        except ReadOnlyFolder as error:  # a write will report it
            logger.debug("turns of this session take their order within this process only: %s", error)
            return True

    def let_go(self) -> None:
        """Give back the lease, if it is held; blocking."""
        try:
            self._lease.release()
        except StoreError as error:  # nobody renews it any more
            logger.warning("the turn of this session is over, and its lease lapses by itself: %s", error)


async def _to_its_end(work: Callable[[], None]) -> None:
    """Run `work` in a thread, and wait for it even if we are cancelled."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
