"""The number of rows and their size on the disk: measured on request, at most once a minute.

The sums are over all open identities, so that no metric names one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from chatbot.memory import MemorySystem
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.query import Stats

logger = logging.getLogger(__name__)

_HOLDS_FOR_S = 60.0
_PATIENCE_S = 2.0


class Sizes:
    """The memory systems that are open, and their sums. Measures only when asked from outside of any event loop."""

    def __init__(self, meter: Meter) -> None:
        self._lock = threading.Lock()
        self._open: dict[MemorySystem, asyncio.AbstractEventLoop] = {}
        self._measured_at = -math.inf
        self._rows: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        meter.create_observable_gauge("chatbot.memory.rows", [self._rows_by_status], description="Rows by status")
        meter.create_observable_gauge("chatbot.memory.storage", [self._bytes_by_part], "By", "Size of memory")

    def add(self, system: MemorySystem, loop: asyncio.AbstractEventLoop) -> None:
        """Count that one too."""
        self._open[system] = loop
        self._measured_at = -math.inf

    def remove(self, system: MemorySystem) -> None:
        """Stop counting one that is about to be closed."""
        self._open.pop(system, None)

    def _rows_by_status(self, _: CallbackOptions) -> Iterable[Observation]:
        self._measure()
        return [Observation(rows, {"chatbot.status": status}) for status, rows in self._rows.items()]

    def _bytes_by_part(self, _: CallbackOptions) -> Iterable[Observation]:
        self._measure()
        return [Observation(taken, {"chatbot.part": part}) for part, taken in self._bytes.items()]

    def _measure(self) -> None:
        if _is_in_a_loop():
            return  # waiting for what may be this very loop would stop it: the last numbers stand
        with self._lock:
            if time.monotonic() - self._measured_at < _HOLDS_FOR_S:
                return
            self._measured_at = time.monotonic()
            rows, taken = Counter[str](), Counter[str]()
            for system, loop in list(self._open.items()):
                _add(system, loop, rows, taken)
            self._rows, self._bytes = rows, taken


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _add(system: MemorySystem, loop: asyncio.AbstractEventLoop, rows: Counter[str], taken: Counter[str]) -> None:
    try:
        stats = asyncio.run_coroutine_threadsafe(_stats(system), loop).result(_PATIENCE_S)
    except Exception as error:  # noqa: BLE001 - a plug-in store, or a loop that has ended: the others still count
        logger.info("one memory could not be measured: %s", type(error).__name__)
        return
    if stats is not None:
        rows.update(stats.by_status)
        taken.update({"observations": stats.journal_bytes or 0, "cache": stats.cache_bytes or 0})
    taken.update(system.backend.sizes())


async def _stats(system: MemorySystem) -> Stats | None:
    memories = system.unobserved()
    return None if memories is None else await memories.stats(ask=SENSITIVITIES)
