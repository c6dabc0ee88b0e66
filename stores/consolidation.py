"""How importance changes with time and use: what is used grows stronger, what is not fades. Pure.

A row has the importance that its author gave it, and a strength, which begins as that. Consolidation adds to it for
each use, mention and confirmation since the last time, in logarithmic steps, and takes away for the days since it was
touched last, in a straight line. It works from elapsed time alone: at the same moment a second run changes nothing, and
many runs take away what one would have. A clock that has jumped back changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from stores.errors import InvalidValue
from stores.observation import PROTECTED_TYPES, Observation

BOOST = 0.1
"""What the first use since the last run adds, over the natural logarithm of 2."""
FLOOR = 0.2
"""The share of its importance that a row never falls below, so that what mattered more still does."""
LASTING_TYPES = PROTECTED_TYPES | {"discovery"}
"""What fades at half the rate."""
LEAST_CHANGE = 0.06
"""A smaller change waits and adds up, so that not every row is written at every run. One use is more than this."""
_STEEPEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Decay:
    """How fast what is not used fades, seen from the moment `at`."""

    at: datetime
    per_day: float

    def __post_init__(self) -> None:
        check_rate(self.per_day)


def consolidated(row: Observation, at: datetime, decay_per_day: float) -> float | None:
    """The strength of the row at the moment `at`, from 0 to 1, or None where it stays as it is.

    Raises `InvalidValue` for a rate that is no number of 0 or more.
    """
    check_rate(decay_per_day)
    since = row.consolidated_at or row.updated_at
    elapsed = (at - since).total_seconds()
    quiet = min(elapsed, max(0.0, (at - row.touched_at).total_seconds()))
    rate = decay_per_day / 2 if row.type in LASTING_TYPES else decay_per_day
    new = row.touches - row.consolidated_touches
    return settled(row.standing, row.importance, new, elapsed=elapsed, quiet=quiet, rate=rate)


def check_rate(decay_per_day: object) -> None:
    """Raises `InvalidValue` for what is no number of 0 or more."""
    if (
        isinstance(decay_per_day, bool)
        or not isinstance(decay_per_day, int | float)
        or not 0 <= decay_per_day < _STEEPEST
    ):
        raise InvalidValue(f"decay_per_day is {decay_per_day!r:.80}: it must be a number of 0 or more")


def settled(standing: float, importance: float, new: int, *, elapsed: float, quiet: float, rate: float) -> float | None:
    """The strength after `elapsed` seconds, the last `quiet` of them without a touch, with `new` touches; see above."""
    if elapsed <= 0 or (new <= 0 and standing <= FLOOR * importance):
        return None
    grown = BOOST * math.log1p(max(0, new))
    floor = FLOOR * importance
    strength = round(max(floor, min(1.0, standing + grown) - rate * quiet / 86_400), 4)
    return strength if abs(strength - standing) >= _worth(strength, floor) else None


def _worth(strength: float, floor: float) -> float:
    """The least change that is written; the last step to a bound is worth it however small."""
    return 0.0001 if strength <= floor or strength >= 1 else LEAST_CHANGE
