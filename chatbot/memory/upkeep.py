"""Progress of maintenance: a small file, and a lease so that one process runs at a time.

The file may be lost: then maintenance begins again at the oldest row, and does nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct, field

from chatbot.config import MaintenanceSettings
from chatbot.memory.maintenance import Run, RunPosition
from chatbot.memory.policy import MaintenanceReport, Part, only, together
from chatbot.memory.scope import Scope
from chatbot.stores.backend import Document
from chatbot.stores.backend import Place as Kept
from chatbot.stores.errors import StoreBusy

logger = logging.getLogger(__name__)

NAME = "maintenance.json"
_LEASE = "maintenance"
_PARTS: tuple[Part, ...] = ("consolidation", "compression")


class UnderWay(StoreBusy):
    """Another process is maintaining this memory."""


class Wish(Struct, frozen=True, kw_only=True):
    """Options of `MemorySystem.maintain`."""

    part: Part = ""
    dry_run: bool = False
    unless_within: timedelta = timedelta(0)
    whole: bool = False


class Upkeep(Struct, frozen=True):
    """State that the last run left behind."""

    done_at: datetime | None = None
    place: RunPosition = field(default_factory=RunPosition)

    def is_due(self, now: datetime, every: timedelta) -> bool:
        """Return whether the next run is due, also if the clock was set back before the last run."""
        return self.done_at is None or not timedelta(0) <= now - self.done_at < every


class UpkeepFile:
    """Stores the state in a place."""

    def __init__(self, place: Kept) -> None:
        self._document = place.document(NAME)
        self._place = place
        self._kept: dict[Part, Upkeep] = {}
        self._is_claimed = False
        self.erased_at: datetime | None = None
        """When this process erased rows last."""

    def may_be_due(self, part: Part, now: datetime, every: timedelta) -> bool:
        """Return False if this process knows that no run is due; another process may have run since."""
        return self._of(part).is_due(now, every)

    async def read(self, part: Part) -> Upkeep:
        """Read the state of the last run of that part, in any process."""
        self._kept = await asyncio.to_thread(_read, self._document)
        return self._of(part)

    @asynccontextmanager
    async def claimed(self) -> AsyncIterator[None]:
        """Claim the maintenance of this memory. Raises `UnderWay` at once if another has claimed it."""
        lease = self._place.lease(_LEASE)
        if not await asyncio.to_thread(lease.take):
            raise UnderWay("another process is already maintaining this memory")
        self._is_claimed = True
        try:
            yield
        finally:
            self._is_claimed = False
            await asyncio.to_thread(lease.release)

    async def keep(self, part: Part, upkeep: Upkeep) -> None:
        """Record the state for the next run; a run of all parts counts for each part. Needs the claim."""
        self._kept |= dict.fromkeys((part,) if part else _PARTS, upkeep)
        if self._is_claimed:
            written = msgspec.json.encode(
                _File(consolidation=self._kept.get("consolidation"), compression=self._kept.get("compression"))
            )
            await asyncio.to_thread(self._document.change, lambda _: written, durable=False)

    def _of(self, part: Part) -> Upkeep:
        """Return the known state of a part, or of all parts if they were run together."""
        known = [self._kept.get(each, Upkeep()) for each in ((part,) if part else _PARTS)]
        return known[0] if known[0] == known[-1] else Upkeep()


async def maintain(scope: Scope, file: UpkeepFile, policy: MaintenanceSettings | None, wish: Wish) -> MaintenanceReport:
    """One run, or as many as needed, unless another process runs or ran it; see `MemorySystem.maintain`."""
    try:
        if not (await file.read(wish.part)).is_due(scope.clock(), wish.unless_within):
            return not_due(dry_run=wish.dry_run)
        async with file.claimed():
            upkeep = await file.read(wish.part)  # again: another process may just have run
            if not upkeep.is_due(scope.clock(), wish.unless_within):
                return not_due(dry_run=wish.dry_run)
            return await _runs(scope, file, policy, wish, RunPosition() if wish.whole else upkeep.place)
    except UnderWay:
        return MaintenanceReport(dry_run=wish.dry_run, skipped="under way")


async def _runs(
    scope: Scope, file: UpkeepFile, policy: MaintenanceSettings | None, wish: Wish, place: RunPosition
) -> MaintenanceReport:
    reports: list[MaintenanceReport] = []
    policy = only(policy or MaintenanceSettings(), wish.part)
    while True:
        run = Run(scope, policy, dry_run=wish.dry_run, whole=wish.whole, first=not reports, erased_at=file.erased_at)
        report, after = await run.go(place)
        reports.append(report)
        file.erased_at = run.erased_at
        if not wish.dry_run:
            await file.keep(wish.part, Upkeep(scope.clock(), after))
        is_stuck = after == place and (wish.dry_run or not report.deeds)
        if report.finished or is_stuck or not wish.whole:
            return together(reports)
        place = after


def not_due(*, dry_run: bool) -> MaintenanceReport:
    """Return the report of a run that was not due."""
    return MaintenanceReport(dry_run=dry_run, skipped="not due")


class _File(Struct):
    v: int = 1
    consolidation: Upkeep | None = None
    compression: Upkeep | None = None


def _read(document: Document) -> dict[Part, Upkeep]:
    try:
        file = msgspec.json.decode(document.read() or b"{}", type=_File)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        logger.warning("%s cannot be read, so maintenance begins again at the oldest row: %s", document.name, error)
        return {}
    return {part: kept for part in _PARTS if (kept := getattr(file, part)) is not None}
