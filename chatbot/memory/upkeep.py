"""Progress of maintenance: a small file, which may be lost, and a lease so that one process runs at a time."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from chatbot.config import MaintenanceSettings
from chatbot.memory.maintenance import MaintenanceReport, Part, Run, policy_of_part
from chatbot.memory.scope import Scope
from chatbot.stores.backend import Place
from chatbot.stores.errors import LaterFormat, unknown_choice
from chatbot.stores.loops import to_its_end

logger = logging.getLogger(__name__)

NAME = "maintenance.json"
_LEASE = "maintenance"


class MaintenanceOptions(msgspec.Struct, frozen=True):
    """Options of `MemorySystem.maintain`."""

    policy: MaintenanceSettings | None
    part: Part = ""
    dry_run: bool = False
    unless_within: timedelta = timedelta(0)
    whole: bool = False

    def skipped(self, why: Literal["under way", "not due"]) -> MaintenanceReport:
        """Return the report of a run that does nothing."""
        return MaintenanceReport(dry_run=self.dry_run, skipped=why)


class RunPosition(msgspec.Struct, frozen=True):
    """When a part of maintenance was done last, and the last row that was read."""

    done_at: datetime | None = None
    last_row: str | None = None

    def is_due(self, now: datetime, every: timedelta) -> bool:
        """Return whether the next run is due, also if the clock was set back before the last run."""
        return self.done_at is None or not timedelta(0) <= now - self.done_at < every


class _Format(msgspec.Struct, frozen=True):
    v: int = 1


class _File(_Format, frozen=True):
    consolidation: RunPosition = RunPosition()
    compression: RunPosition = RunPosition()


class Upkeep:
    """Runs the maintenance of one memory, in one process at a time."""

    def __init__(self, place: Place) -> None:
        self._document = place.document(NAME)
        self._place = place
        self._known = _File()
        self._erased_at: datetime | None = None
        """When this process erased rows last."""

    async def run(self, scope: Scope, options: MaintenanceOptions) -> MaintenanceReport:
        """Run once, or as often as needed, unless another process runs it or ran it; see `MemorySystem.maintain`."""
        if not _is_due(await asyncio.to_thread(self._read, logging.DEBUG), scope, options):
            return options.skipped("not due")
        lease = self._place.lease(_LEASE)
        try:
            if not await to_its_end(asyncio.to_thread(lease.take)):
                return options.skipped("under way")
            self._known = await asyncio.to_thread(self._read)  # by the holder of the lease only, who writes it
            if not _is_due(self._known, scope, options):  # another process may just have run
                return options.skipped("not due")
            return await self._run_leased(scope, options)
        finally:
            await asyncio.to_thread(lease.release)

    def _read(self, level: int = logging.WARNING) -> _File:
        """Return the content of the file; one that is damaged is as none, and logged. Raises `LaterFormat`."""
        found, form = _File(), _Format()
        try:
            data = self._document.read() or b"{}"
            form = msgspec.json.decode(data, type=_Format)
            found = msgspec.json.decode(data, type=_File)
        except (OSError, ValueError, RecursionError) as error:
            logger.log(level, "%s cannot be read, so maintenance begins again at the oldest row: %s", NAME, error)
        if form.v > _Format().v:
            raise LaterFormat(f"{NAME} was written by a later release: upgrade chatbot to maintain this memory")
        return found

    async def _run_leased(self, scope: Scope, options: MaintenanceOptions) -> MaintenanceReport:
        policy = policy_of_part(options.policy or MaintenanceSettings(), options.part)
        after = None if options.whole else _last_run(self._known, options.part).last_row
        run = Run(scope, policy, dry_run=options.dry_run, whole=options.whole, erased_at=self._erased_at)
        while True:
            before, last = len(run.changes), await run.do_round(after)
            self._erased_at = run.erased_at
            if not options.dry_run:
                await self._keep(options.part, RunPosition(scope.clock(), last))
            is_stuck = last == after and (options.dry_run or len(run.changes) == before)
            if run.is_finished or is_stuck or not options.whole:
                return run.report()
            after = last

    async def _keep(self, part: Part, position: RunPosition) -> None:
        """Record the position for the next run; a run of all parts counts for each part."""
        positions: dict[str, RunPosition] = dict.fromkeys(_parts(part), position)
        self._known = replace(self._known, **positions)
        written = msgspec.json.encode(self._known)
        await asyncio.to_thread(self._document.change, lambda _: written, durable=False)


def _is_due(known: _File, scope: Scope, options: MaintenanceOptions) -> bool:
    return _last_run(known, options.part).is_due(scope.clock(), options.unless_within)


def _last_run(known: _File, part: Part) -> RunPosition:
    """Return the position of a part, or of all parts if they were run together."""
    found: list[RunPosition] = [getattr(known, each) for each in _parts(part)]
    return found[0] if found[0] == found[-1] else RunPosition()


def _parts(part: Part) -> tuple[Part, ...]:
    if part not in (known := get_args(Part)):
        raise unknown_choice("part", part, known)
    return (part,) if part else known[1:]
