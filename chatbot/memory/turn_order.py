"""The order of a session's turns across processes; also of other work that must not run twice at once: sync, import."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from chatbot.stores import errors
from chatbot.stores.backend import Lease
from chatbot.stores.loops import LoopsLock, to_its_end

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.25
_SILENT_WAIT_S = 5.0
"""Time until a wait for another process, which may have been suspended with Ctrl-Z, is reported."""


class TurnOrder:
    """One turn of a session, or piece of other `work`, at a time; in a read-only folder only within this process.

    `work` tells a user who waits too long what the other process does.
    """

    def __init__(
        self, lease: Lease, *, work: str = "running a turn in this session", longest_wait_s: float = 600.0
    ) -> None:
        self.in_process = LoopsLock()
        """The order within this process only, for dry runs: a lease would be a write."""
        self.asked_row = ""
        """Id of the row of the message that the running turn answers; no handle of the session recalls it."""
        self._lease = lease
        self._work = work
        self._longest_wait_s = longest_wait_s

    async def __aenter__(self) -> None:
        await self.take()

    async def take(self, reads: Callable[[], Sequence[object]] = tuple) -> None:
        """Take the order, and make the reads of `Store.turn_reads` along with it."""
        await self.in_process.acquire()
        pause, began, silent_s, longest_s = _FIRST_PAUSE_S, time.monotonic(), _SILENT_WAIT_S, self._longest_wait_s
        try:
            while not await self._attempt(reads):
                if (waited_s := time.monotonic() - began) > longest_s:
                    busy = f"another process has been {self._work} for {longest_s:g} s: wait for it, or end it"
                    raise errors.StoreBusy(busy)
                if waited_s > silent_s:
                    logger.warning("another process is %s: waiting for it, %g s at most", self._work, longest_s)
                    silent_s = longest_s
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_PAUSE_S)
        except BaseException:
            self.in_process.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    async def release(self) -> None:
        """Release the order."""
        self.asked_row = ""
        try:
            await to_its_end(asyncio.to_thread(self.release_lease))
        finally:
            self.in_process.release()

    async def is_free(self) -> bool:
        """Return whether nobody holds the order, also in this process."""
        return not self.in_process.locked() and await asyncio.to_thread(self._lease.is_free)

    async def _attempt(self, reads: Callable[[], Sequence[object]]) -> bool:
        try:
            return await to_its_end(asyncio.to_thread(self._try, reads()))
        except asyncio.CancelledError:  # the thread may have taken the lease
            await to_its_end(asyncio.to_thread(self.release_lease))
            raise

    def _try(self, reads: Sequence[object]) -> bool:
        try:
            return self._lease.take_with(reads)
        except errors.ReadOnlyFolder as error:  # a write will report it
            logger.debug("%s is ordered within this process only: %s", self._work, error)
            return True

    def release_lease(self) -> None:
        """Release the lease if it is held; blocking."""
        try:
            self._lease.release()
        except errors.StoreError as error:  # it is not renewed any more
            logger.warning("the lease for %s was not released and will expire: %s", self._work, error)
