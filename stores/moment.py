"""A moment in which nobody need look twice whether others have written: all that a turn reads at once is as of then.

It is for stores that a look takes a round trip. What the turn itself writes is seen in any case.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

LONGEST_S = 1.0
"""How old a look may be: a turn may take minutes, and its tools look anew."""


class Moment:
    """The answers that a turn was given by its stores, with the time of each."""

    def __init__(self, ahead: Sequence[object] = ()) -> None:
        self.ahead = ahead
        """Reads that are made anyway (`Store.ahead`): an engine may make them along with the lease of the turn."""
        self._read: dict[Hashable, tuple[float, Any]] = {}
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

    def drop(self, key: Hashable) -> None:
        """Forget what was read: it is written now."""
        self._read.pop(key, None)


_present: ContextVar[Moment | None] = ContextVar("_present", default=None)


def present_moment() -> Moment | None:
    """Return the moment of the turn that is under way here; None outside of turns, and for what outlives one."""
    moment = _present.get()
    return None if moment is None or moment.is_over else moment


@contextmanager
def one_moment(ahead: Sequence[object] = ()) -> Iterator[None]:
    """Begin a moment, which ends with the block, and in which these reads will be asked for."""
    moment = Moment(ahead)
    token = _present.set(moment)
    try:
        yield
    finally:
        moment.is_over = True
        _present.reset(token)
