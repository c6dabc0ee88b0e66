"""Rate limits that hold for several processes of one server together."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
import time
import weakref
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from chatbot.server.rates import Rates, taken

_BUCKET = struct.Struct("<Qdd")
_SLOTS = 16_384
_NEAR = 8
"""Slots that a key may be in; where others have them all, the one not used for longest is forgotten."""


class SharedRates(Rates):
    """Buckets of a process and of those that it forks, in memory that they share. A slot: hash of the key, left, at."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._slots = mmap.mmap(-1, _BUCKET.size * _SLOTS)
        self._lock, name = tempfile.mkstemp(prefix="chatbot-")  # a lock on it ends with the process that holds it
        Path(name).unlink()
        weakref.finalize(self, os.close, self._lock)

    def _take(self, key: str, per_minute: int, now: float) -> float:
        name = int.from_bytes(blake2b(key.encode(errors="surrogatepass"), digest_size=8).digest(), "little") or 1
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            at, left, used = self._slot(name, per_minute, now)
            left, wait = taken(left, now - used, per_minute)
            _BUCKET.pack_into(self._slots, at, name, left, now)
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)
        return wait

    def _slot(self, name: int, per_minute: int, now: float) -> tuple[int, float, float]:
        """Return the position of the bucket, what is left in it, and when it was last used."""
        places = [(name + step) % _SLOTS * _BUCKET.size for step in range(_NEAR)]
        found = {place: _BUCKET.unpack_from(self._slots, place) for place in places}
        for place, (known, left, used) in found.items():
            if known == name:
                return place, left, used
        return min(places, key=lambda place: found[place][2]), float(per_minute), now
