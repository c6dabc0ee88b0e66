"""Change of importance with time and use: used rows grow stronger, unused ones decay. Pure.

A row has the importance that its author gave it, and a strength that starts with the same value. Consolidation adds to
the strength for uses, mentions and confirmations since the last run, logarithmically, and subtracts for the days since
the last use, linearly. Only elapsed time counts: a second run at the same moment changes nothing, many runs subtract as
much as one, and a clock that was set back changes nothing. Strength and use also decide which rows are
archived above a cap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import PROTECTED_TYPES, Observation

BOOST = 0.1
"""Gain of the first use since the last run, divided by ln 2."""
FLOOR = 0.2
"""Minimum strength as a share of the importance, which keeps the order of importance."""
LASTING_TYPES = PROTECTED_TYPES | {"discovery"}
"""Types that decay at half the rate."""
LEAST_CHANGE = 0.06
"""Smaller changes wait and add up, so that not every row is written at every run. One use is more than this."""
_STEEPEST = 1_000_000


class Decay(Struct, frozen=True):
    """Rate of decay, seen from the moment `at`."""

    at: datetime
    per_day: float

    def __post_init__(self) -> None:
        check_rate(self.per_day)


def check_rate(decay_per_day: object) -> None:
    """Raise `InvalidValue` for a rate below 0 or not a number."""
    if (
        isinstance(decay_per_day, bool)
        or not isinstance(decay_per_day, int | float)
        or not 0 <= decay_per_day < _STEEPEST
    ):
        raise InvalidValue(f"decay_per_day is {decay_per_day!r:.80}: it must be a number of 0 or more")


def settled(standing: float, importance: float, new: int, *, elapsed: float, quiet: float, rate: float) -> float | None:
    """Return the strength after `elapsed` seconds, the last `quiet` without a touch, with `new` touches."""
    if elapsed <= 0 or (new <= 0 and standing <= FLOOR * importance):
        return None
    grown = BOOST * math.log1p(max(0, new))
    floor = FLOOR * importance
    strength = round(max(floor, min(1.0, standing + grown) - rate * quiet / 86_400), 4)
    least = 0.0001 if strength <= floor or strength >= 1 else LEAST_CHANGE  # a step to an end is always written
    return strength if abs(strength - standing) >= least else None


class CapFields(Struct, frozen=True):
    """Fields that decide which rows are archived first. `number` is the order of addition."""

    id: str
    number: int
    type: str
    standing: float
    uses: int
    """Uses and mentions together."""

    @property
    def weight(self) -> tuple[bool, float, int]:
        """Sort key: the lowest goes first. Protected types are last, then by standing and use, then the oldest."""
        return (self.type in PROTECTED_TYPES, self.standing + 0.1 * math.log1p(self.uses), self.number)


def surplus(rows: Iterable[CapFields], cap: int) -> list[str]:
    """Return the ids to archive so that `cap` rows are left, least important first."""
    by_weight = sorted(rows, key=lambda row: row.weight)
    return [row.id for row in by_weight[: max(0, len(by_weight) - cap)]]


def is_overfull(active: int, cap: int) -> bool:
    """Return True if archiving is due: a tenth of slack keeps it rare."""
    return cap > 0 and active > cap + cap // 10


def weigh(row: Observation, number: int) -> CapFields:
    """Return the cap fields of a row."""
    return CapFields(row.id, number, row.type, row.standing, row.use_count + row.mention_count)
