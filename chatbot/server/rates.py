"""Rate limits: a bucket of requests per caller, refilled evenly; one for all servers that share a database."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from weakref import WeakValueDictionary

from chatbot.stores.backend import Document
from chatbot.stores.backends import open_place
from chatbot.stores.errors import StoreError
from chatbot.stores.home import Address, Home

logger = logging.getLogger(__name__)

_MOST = 10_000
_PORTION = 20
"""A server takes this share of a bucket at a time, so that few requests ask the storage."""
_KEPT_S = 10.0
"""How long a server may use what it took."""


class Rates:
    """Buckets of this server; if there are too many, the least recently used are dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def take(self, key: str, per_minute: int) -> float:
        """Take one request; return 0, or the seconds to wait if the bucket is empty. A rate of 0 is no limit."""
        if per_minute <= 0:
            return 0.0
        left, at = self._buckets.pop(key, (float(per_minute), self._clock()))
        left, now = _filled(left, at, self._clock(), per_minute)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / per_minute
        self._buckets[key] = (left if wait else left - 1, now)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return wait


class SharedRates(Rates):
    """Buckets in a document, which all servers draw from. While it cannot be changed, each server has its own."""

    def __init__(self, document: Document, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self._document = document
        self._portions: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._drawing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, key: str, per_minute: int) -> float:
        """Override `Rates`."""
        if per_minute <= 0:
            return 0.0
        name = blake2b(key.encode(), digest_size=12).hexdigest()  # stored data contains no names
        if self._spend(name):
            return 0.0
        async with self._drawing.setdefault(name, asyncio.Lock()):
            if self._spend(name):  # another request may have drawn meanwhile
                return 0.0
            try:
                drawn, wait = await asyncio.to_thread(self._draw, name, per_minute)
            except (StoreError, OSError) as error:
                logger.warning("requests are counted by this server alone: %s", error)
                return await super().take(key, per_minute)
            if drawn:
                self._portions[name] = (drawn - 1, self._clock() + _KEPT_S)
                while len(self._portions) > _MOST:
                    self._portions.popitem(last=False)
            return wait

    def _spend(self, name: str) -> bool:
        """Take one of the requests that this server has drawn; False if none are left."""
        left, until = self._portions.get(name, (0, 0.0))
        if not left or self._clock() >= until:
            return False
        self._portions[name] = (left - 1, until)
        return True

    def _draw(self, name: str, per_minute: int) -> tuple[int, float]:
        """Return how many requests were taken from the bucket, at least one, or 0 and the seconds to wait."""
        drawn, wait = 0, 0.0

        def change(before: bytes | None) -> bytes:
            nonlocal drawn, wait
            buckets = _buckets_in(before)
            left, at = buckets.pop(name, (float(per_minute), self._clock()))
            left, now = _filled(left, at, self._clock(), per_minute)
            drawn = int(min(left, max(1, per_minute // _PORTION)))
            wait = 0.0 if drawn else (1 - left) * 60 / per_minute
            kept = {each: found for each, found in buckets.items() if found[1] > now - 60}  # the others are full
            return json.dumps({**kept, name: (left - drawn, now)}).encode()

        self._document.change(change, durable=False)
        return drawn, wait


def rates_of(home: Home) -> Rates:
    """The buckets of a server with that home."""
    return SharedRates(open_place(home).document("rates")) if isinstance(home, Address) else Rates()


def _filled(left: float, at: float, now: float, per_minute: int) -> tuple[float, float]:
    """Return what is in a bucket by now, and when that was; a clock that is behind fills nothing."""
    now = max(now, at)
    return min(per_minute, left + (now - at) * per_minute / 60), now


def _buckets_in(value: bytes | None) -> dict[str, tuple[float, float]]:
    try:
        found = json.loads(value or b"{}")
        return {str(name): (float(left), float(at)) for name, (left, at) in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
