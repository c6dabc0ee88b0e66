"""A moment in which nobody need look twice whether others have written: all that a turn reads at once is as of then.

It is for stores that a look takes a round trip. What the turn itself writes is seen in any case. A write that says so
(`soon`) may wait for the next operation of the moment and go along with it; at its end nothing waits any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from typing import Any

from chatbot.stores.errors import StoreError

LONGEST_S = 1.0
"""How old a look may be: a turn may take minutes, and its tools look anew."""


Failed = Callable[[StoreError], None]
"""Is told, where the write was asked for, that it failed after it had waited."""
Place = tuple[Any, str]
"""An engine and an identity: what waits there goes together."""


class Moment:
    """The answers that a turn was given by its stores, with the time of each."""

    def __init__(self, ahead: Sequence[object] = ()) -> None:
        self.ahead = ahead
        """Reads that are made anyway (`Store.ahead`); an engine may make them once, along with the turn's lease."""
        self._read: dict[Hashable, tuple[float, Any]] = {}
        self._waiting: dict[Place, list[Any]] = {}
        self._lock = Lock()
        self.is_over = False

    def known(self, key: Hashable) -> Any:
        """Return what was read just now; None for nothing."""
        at, value = self._read.get(key, (-LONGEST_S, None))
        return value if time.monotonic() - at < LONGEST_S else None

    def keep(self, key: Hashable, value: Any) -> None:
        """Note what was read."""
        self._read[key] = (time.monotonic(), value)

    def extend(self, key: Hashable, value: Any) -> None:
        """Note what it has become by a write of ours, which looks at nothing else."""
        self._read[key] = (self._read[key][0], value)

    def take(self, key: Hashable) -> Any:
        """Return what was read just now and forget it: who asks again looks again."""
        value = self.known(key)
        self.drop(key)
        return value

    def put_off(self, place: Place, write: Any) -> None:
        """Have a write wait. The engine of the place has a method `write_waiting`, for an identity."""
        with self._lock:
            self._waiting.setdefault(place, []).append(write)

    def waiting(self, place: Place) -> list[Any]:
        """Return the writes that waited there, which the caller makes now."""
        with self._lock:
            return self._waiting.pop(place, [])

    async def write(self) -> None:
        """Make the writes that still wait, even if we are cancelled."""
        for engine, identity in list(self._waiting):
            await asyncio.shield(asyncio.to_thread(engine.write_waiting, identity))

    def drop(self, key: Hashable) -> None:
        """Forget what was read: it is written now."""
        self._read.pop(key, None)


_present: ContextVar[Moment | None] = ContextVar("_present", default=None)


def present_moment() -> Moment | None:
    """Return the moment of the turn that is under way here; None outside of turns, and for what outlives one."""
    moment = _present.get()
    return None if moment is None or moment.is_over else moment


_carried: ContextVar[tuple[Moment, ...]] = ContextVar("_carried", default=())


def present_moments() -> tuple[Moment, ...]:
    """Return the moments whose waiting writes go along with what is done here: those of `carrying`, or our own."""
    return _carried.get() or ((moment,) if (moment := present_moment()) is not None else ())


@contextmanager
def carrying(moments: Sequence[Moment]) -> Iterator[None]:
    """Do work of these moments, in a thread that belongs to none of them."""
    token = _carried.set(tuple(moments))
    try:
        yield
    finally:
        _carried.reset(token)


async def nothing_waits() -> None:
    """Have all that was written so far written down: before anything that takes long."""
    if (moment := present_moment()) is not None:
        await moment.write()


_failed: ContextVar[Failed | None] = ContextVar("_failed", default=None)


@contextmanager
def soon(failed: Failed) -> Iterator[None]:
    """Let writes within the block wait for the next operation of this moment, where that saves a round trip.

    One that did not wait raises its error as ever; one that did tells it to `failed`, in the event loop of the block.
    """
    loop = asyncio.get_running_loop()
    token = _failed.set(lambda error: _told(loop, failed, error))
    try:
        yield
    finally:
        _failed.reset(token)


def may_wait() -> Failed | None:
    """Return who is told of the failure of a write that waits; None where it may not."""
    return None if present_moment() is None else _failed.get()


def _told(loop: asyncio.AbstractEventLoop, failed: Failed, error: StoreError) -> None:
    with suppress(RuntimeError):  # the loop has ended, and with it everyone who could be told
        loop.call_soon_threadsafe(failed, error)


@asynccontextmanager
async def moment_of_turn(ahead: Sequence[object] = ()) -> AsyncIterator[None]:
    """Begin a moment as `one_moment` does, at whose end nothing waits to be written."""
    with one_moment(ahead) as moment:
        try:
            yield
        finally:
            await moment.write()


@contextmanager
def one_moment(ahead: Sequence[object] = ()) -> Iterator[Moment]:
    """Begin a moment, which ends with the block, and in which these reads will be asked for."""
    moment = Moment(ahead)
    token = _present.set(moment)
    try:
        yield moment
    finally:
        moment.is_over = True
        _present.reset(token)
