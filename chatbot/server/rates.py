"""Rate limits: a bucket of requests per caller, refilled evenly."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_MOST = 10_000


class Rates:
    """Buckets by key; of very many, those not used for longest are forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, per_minute: int) -> float:
        """Take one request; return 0, or the seconds to wait if the bucket is empty. A rate of 0 is no limit."""
        if per_minute <= 0:
            return 0.0
        return self._take(key, per_minute, self._clock())

    def _take(self, key: str, per_minute: int, now: float) -> float:
        left, at = self._buckets.pop(key, (float(per_minute), now))
        left, wait = taken(left, now - at, per_minute)
        self._buckets[key] = (left, now)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return wait


def taken(left: float, seconds: float, per_minute: int) -> tuple[float, float]:
    """Return the requests left in a bucket after one more, and the seconds to wait if there was none."""
    left = min(per_minute, left + seconds * per_minute / 60)
    return (left - 1, 0.0) if left >= 1 else (left, (1 - left) * 60 / per_minute)
