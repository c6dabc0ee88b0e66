"""How much is remembered, and what it takes on the disk: measured when somebody asks, at most once a minute.

The sums are over all identities that are open, so that no name has to stand in a metric.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from chatbot.telemetry import names

if TYPE_CHECKING:
    from chatbot.telemetry.memory import WatchedMemory

logger = logging.getLogger(__name__)

_HOLDS_FOR_S = 60.0
_PATIENCE_S = 2.0


class Sizes:
    """The memory systems that are open, and their sums. Measures only when asked from outside of any event loop."""

    def __init__(self, meter: Meter) -> None:
        self._lock = threading.Lock()
        self._open: dict[WatchedMemory, asyncio.AbstractEventLoop] = {}
        self._measured_at = -math.inf
        self._rows: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        meter.create_observable_gauge("chatbot.memory.rows", [self._tell_rows], description="What is remembered")
        meter.create_observable_gauge("chatbot.memory.storage", [self._tell_bytes], "By", "What memory takes")

    def add(self, system: WatchedMemory, loop: asyncio.AbstractEventLoop) -> None:
        """Count that one too."""
        self._open[system] = loop
        self._measured_at = -math.inf

    def remove(self, system: WatchedMemory) -> None:
        """It is about to be closed."""
        self._open.pop(system, None)

    def _tell_rows(self, _: CallbackOptions) -> Iterable[Observation]:
        self._measure()
        return [Observation(rows, {names.STATUS: status}) for status, rows in self._rows.items()]

    def _tell_bytes(self, _: CallbackOptions) -> Iterable[Observation]:
        self._measure()
        return [Observation(taken, {names.PART: part}) for part, taken in self._bytes.items()]

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


def _add(system: WatchedMemory, loop: asyncio.AbstractEventLoop, rows: Counter[str], taken: Counter[str]) -> None:
    try:
        stats = asyncio.run_coroutine_threadsafe(system.stats_of_all(), loop).result(_PATIENCE_S)
    except Exception as error:  # noqa: BLE001 - a stranger's store, or a loop that has ended: the others shall count
        logger.info("one memory could not be measured: %s", type(error).__name__)
        return
    if stats is not None:
        rows.update(stats.by_status)
        taken.update({"observations": stats.journal_bytes, "cache": stats.cache_bytes})
    if system.home is not None:
        taken["sessions"] += _size(system.home / "sessions")


def _size(folder: Path) -> int:
    """What the files in a folder take; of one that changes meanwhile, about."""
    found = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                found += os.stat(os.path.join(parent, name), follow_symlinks=False).st_size  # noqa: PTH116, PTH118 - there may be many
            except OSError:
                continue
    return found
