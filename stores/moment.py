"""A moment in which nobody need look twice whether others have written: all that a turn reads at once is as of then.

It is for stores that a look takes a round trip. What the turn itself writes is seen in any case.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LONGEST_S = 1.0
"""How old a look may be: a turn may take minutes, and its tools look anew."""


class Moment:
    """What was looked at in a turn, and when."""

    def __init__(self) -> None:
        self._looked: dict[int, float] = {}
        self.is_over = False

    def has_looked(self, at: object) -> bool:
        """Return whether that was looked at just now."""
        return time.monotonic() - self._looked.get(id(at), -LONGEST_S) < LONGEST_S

    def look(self, at: object) -> None:
        """Note that it is looked at."""
        self._looked[id(at)] = time.monotonic()


_present: ContextVar[Moment | None] = ContextVar("_present", default=None)


def present_moment() -> Moment | None:
    """Return the moment of the turn that is under way here; None outside of turns, and for what outlives one."""
    moment = _present.get()
    return None if moment is None or moment.is_over else moment


@contextmanager
def one_moment() -> Iterator[None]:
    """Begin a moment, which ends with the block."""
    moment = Moment()
    token = _present.set(moment)
    try:
        yield
    finally:
        moment.is_over = True
        _present.reset(token)
