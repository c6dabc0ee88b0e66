"""Sync of an identity between machines through a place that all of them reach: a folder, or what holds files by name.

Each machine adds files of its own to the place and reads those of the others; none is ever changed:

    chatbot-sync.json                  format, version, and which identity this is
    <machine>/<number>-<digest>.gz     what is new there: JSON lines, named by the SHA-256 of their bytes
    key.age                            where the files are encrypted: the key to them, sealed by a passphrase

A file is read again until it was taken in as a whole, and taking it in twice changes nothing; so a kill at any point
costs no more than doing it again. The rules by which two copies become one are those of docs/sync.md.

The place is not trusted. A file is taken only if it is whole and of this identity; its lines are checked like those of
an import, and none of them names a store, a model, a persona or a path.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.memory.maintenance import WHO as MAINTENANCE
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.errors import DamagedFile, LaterFormat, StoreBusy, UnknownObservation
from chatbot.stores.log import Mark
from chatbot.stores.records import TranscriptEntry, format_time, parse_time
from chatbot.stores.row_events import Event, check_fields, parse_event
from chatbot.transfer.storage_copy import Storage, relabel
from chatbot.transfer.sync_place import NAME, SyncPlace
from chatbot.transfer.sync_sessions import PlaceState, SessionSync, SyncReport, SyncState, checked_session, unite_lines
from chatbot.transfer.union import (
    Counters,
    Incoming,
    Journal,
    bringing_in,
    canonical,
    digest_of,
    identity,
    parts_of,
)

VERSION = 1
_LARGEST_UNPACKED = 1 << 30
_PART_BYTES = 16 << 20
"""A file of a place is begun anew once it holds so much."""
_IDS_AT_ONCE = 1_000
_FUTURE = timedelta(days=2)
"""How far a clock may be ahead: what is dated later is set aside."""


@dataclass(slots=True)
class _Batch:
    """Contents of the files of a place, parsed."""

    rows: Incoming = field(default_factory=Incoming)
    gone: dict[str, bool] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    sessions: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """With the machine that each is from."""
    bill: list[dict[str, Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    digests: set[bytes] = field(default_factory=set)

    def lose(self, gone: Mapping[str, bool]) -> None:
        """Add ids of erased rows; one that went alone on one machine and not on another went with what came of it."""
        self.gone |= {each: alone and self.gone.get(each, True) for each, alone in gone.items()}

    def take(self, machine: str, record: dict[str, Any], now: datetime) -> None:
        """Add a line. Raises `ValueError`, `TypeError`, `KeyError` or `AttributeError` for one that is invalid."""
        match record["k"]:
            case "event":
                event = parse_event(record["v"])
                check_fields(event)
                [(row_id, part)] = parts_of(event)
                if event.at > now + _FUTURE:
                    raise DamagedFile(f"an event is dated {format_time(event.at)}, which is to come")
                self.rows.parts[row_id].append(part)
                self.digests.add(digest_of(identity(part)))
            case "counts":
                self.rows.count(str(record["id"]), Counters.parse(record))
            case "gone":
                self.lose({str(each): bool(record["alone"]) for each in record["ids"]})
                self.digests |= {digest_of(f"gone {each}") for each in record["ids"]}
            case "erased":
                self.erased += map(str, record["ids"])
                self.digests |= {digest_of(f"erased {each}") for each in record["ids"]}
            case "bill":
                parse_time(record["v"]["at"])
                self.bill.append(dict(record["v"]))
                self.digests.add(digest_of(canonical(record["v"])))
            case "session":
                self.sessions.append((machine, checked_session(record)))
            case other:
                raise DamagedFile(f"unknown line {other!r:.40}")


class Sync(SessionSync):
    """One sync of an identity with one place. `memory` is opened by its owner, and erases what others have erased."""

    def __init__(
        self,
        memory: MemorySystem,
        storage: Storage,
        place: SyncPlace,
        *,
        now: Callable[[], datetime],
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        tell = progress or (lambda _done, _total: None)
        super().__init__(memory, storage, now=now, progress=tell, report=SyncReport(place.key, dry_run))
        self._place = place

    async def run(self) -> SyncReport:
        """Take in what others have put there, and put there what is new here. Raises `ConfigError` for a stranger."""
        lease = self._storage.backend.lease("sync")
        if not await asyncio.to_thread(lease.take):
            raise StoreBusy("another sync of this identity is under way: wait for it")
        try:
            await self._run()
        finally:
            await asyncio.to_thread(lease.release)
        return self._report

    async def _run(self) -> None:
        self._state = await asyncio.to_thread(SyncState.read, self._document)
        names = await asyncio.to_thread(self._place.names)
        await asyncio.to_thread(self._meet, names)
        self._known = deepcopy(self._state.places.get(self._place.key, PlaceState()))
        await asyncio.to_thread(self._settle, names)
        batch = await asyncio.to_thread(self._read, names)
        records: list[dict[str, Any]] = []
        await asyncio.to_thread(self._note_deleted)
        if self._report.dry_run:
            self._report.taken["sessions"] = len({record["session"]["id"] for _, record in batch.sessions})
        else:
            await self._finish_transcript()
            await self._erase(batch)
        records += await asyncio.to_thread(self._unite_log, batch)
        if not self._report.dry_run:
            await self._take_sessions(batch.sessions)
        records += await self._changed_sessions()
        records += await asyncio.to_thread(self._unite_bill, batch)
        records += self._erasures()
        if self._report.dry_run:
            return
        self._known.digests |= batch.digests
        if not self._is_waiting:
            self._known.taken |= set(batch.names)
        await asyncio.to_thread(self._give, records)

    def _meet(self, names: Sequence[str]) -> None:
        """Check that the place is of this identity. A new identity joins it; a new place is of the first that comes."""
        state, found = self._state, ""
        if NAME in names:
            try:
                said = json.loads(self._place.read(NAME))
                found, version = str(said["identity"]), int(said["version"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise DamagedFile(f"{NAME} of {self._place.key} cannot be read: {error}") from error
            if version > VERSION:
                raise LaterFormat(f"{self._place.key} was written by a later release: upgrade chatbot to sync")
        is_new = not state.identity and not self._storage.backend.sessions.ids() and not self._has_memories()
        if found and found != state.identity and not is_new:
            raise ConfigError(
                f"{self._place.key} holds another identity, which was never one with this: nothing was changed. "
                "Sync to a folder of its own, or begin with a new, empty identity"
            )
        if not state.identity:
            state.identity = found or secrets.token_hex(16)
        if self._report.dry_run:
            state.machine = state.machine or "new"
            return
        if not state.machine:
            self._begin_anew(state.was)
        state.save(self._document)
        self._report.is_new = not found
        if not found:
            data = {"format": "chatbot-sync", "version": VERSION, "identity": state.identity}
            self._place.write(NAME, json.dumps(data).encode())

    def _has_memories(self) -> bool:
        self._storage.log.start_again()
        return any(True for _ in self._storage.log.read_new())

    def _begin_anew(self, was: str) -> None:
        """Become another machine, to which everything is new. What was counted under the former name stays that's."""
        if was:
            relabel(self._storage.log, was)
        self._state.machine, self._state.was, self._state.places = secrets.token_hex(6), "", {}

    def _settle(self, names: Sequence[str]) -> None:
        """Find out which files of our own are there: one that is lost is given again, an unknown one is a twin's."""
        state, known = self._state, self._known
        ours = {name for name in names if name.startswith(f"{state.machine}/")}
        if self._report.dry_run:
            return
        if ours - known.own - known.pending:  # a copy of this storage was here before, with our name
            self._begin_anew(state.machine)
            state.save(self._document)
            self._known = PlaceState()
        elif known.own - ours:
            self._known = PlaceState(taken=known.taken, own=ours)
        else:
            known.own, known.pending = ours, set()

    def _read(self, names: Sequence[str]) -> _Batch:
        """Parse the files that were not taken in yet; what is wrong with one is reported, and it is left there."""
        batch = _Batch()
        waiting = [
            name
            for name in names
            if name.endswith(".gz") and not name.startswith(f"{self._state.machine}/") and name not in self._known.taken
        ]
        for done, name in enumerate(waiting, 1):
            part = _Batch(names=[name])
            try:
                self._parse(name, part)
            except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
                self._report.aside.append((name, str(error) or type(error).__name__))
                continue
            _join(batch, part)
            self._progress(done, len(waiting))
        return batch

    def _parse(self, name: str, batch: _Batch) -> None:
        machine, _, last = name.partition("/")
        head, *lines = self._lines(name, last)
        if head.get("identity") != self._state.identity or head.get("machine") != machine:
            raise DamagedFile("it is not of this identity and machine")
        if head["version"] > VERSION:
            raise LaterFormat("it was written by a later release: upgrade chatbot")
        now = self._now()
        for line in lines:
            batch.take(machine, line, now)

    def _lines(self, name: str, last: str) -> list[dict[str, Any]]:
        data = self._place.read(name)
        if sha256(data).hexdigest()[:32] != last.partition("-")[2].partition(".")[0]:
            raise DamagedFile("its digest differs from its name: it is not complete yet, or damaged")
        unpacking = zlib.decompressobj(wbits=31)
        text = unpacking.decompress(data, _LARGEST_UNPACKED)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise DamagedFile("it unpacks to more than it may, or is cut off")
        return [json.loads(line) for line in text.splitlines()]

    def _journal(self, machine: str = "") -> Journal:
        """Read the whole log. Needs its lock where it is to be changed."""
        self._storage.log.start_again()
        return Journal(self._storage.log.read_new(), machine or self._state.machine)

    async def _erase(self, batch: _Batch) -> None:
        """Erase what was erased elsewhere: rows with the caches and receipts that tell of them, sessions and facts."""
        state = self._state
        fresh = [each for each in dict.fromkeys(batch.erased) if each not in state.erased]
        if not batch.gone and not fresh:
            return
        journal = await asyncio.to_thread(self._journal)
        facts = [each for each in journal.facts() if each in fresh]
        state.erased += fresh
        await asyncio.to_thread(state.save, self._document)
        there = {each: is_alone for each, is_alone in batch.gone.items() if journal.has(each)}
        alone = [each for each, is_alone in there.items() if is_alone]
        whole = [each for each, is_alone in there.items() if not is_alone] + facts
        memories = self._memory.memory().everywhere()
        for begin in range(0, len(whole), _IDS_AT_ONCE):
            with suppress(UnknownObservation):
                await memories.purge(*whole[begin : begin + _IDS_AT_ONCE])
        if alone:
            view = View("full", self._now(), frozenset(SENSITIVITIES), None, erasing=True)
            with suppress(UnknownObservation):
                await self._storage.observations.purge(view, alone, who=MAINTENANCE, why="synced", alone=True)
        for each in fresh:
            if each not in facts:
                await self._delete_session(each)
        self._report.taken["erased"] = len(whole) + len(alone)

    def _unite_log(self, batch: _Batch) -> list[dict[str, Any]]:
        """Bring the events of others into the log, and return what is new here for the place."""
        state, known, log = self._state, self._known, self._storage.log
        with log.locked() as writing:
            writing.mend()
            is_going_on = known.mark is not None and log.resume(Mark(*known.mark))
            behind = known.mark[1] if is_going_on and known.mark else 0
            journal = self._journal()
            here = journal.touched(behind)
            erased = set(state.erased)
            records = [*self._new_parts(journal, here, batch)]
            missing = {each: alone for each, alone in batch.gone.items() if each not in journal.erased}
            journal.erased |= missing
            for each in erased & batch.rows.parts.keys():
                del batch.rows.parts[each]
            made = bringing_in(journal, batch.rows, state.machine, also=here)
            self._is_waiting |= made.is_waiting
            self._report.taken["memories"] += made.taken
            if self._report.dry_run:
                return records
            for alone in (True, False):
                those = [each for each, is_alone in missing.items() if is_alone is alone]
                for begin in range(0, len(those), _IDS_AT_ONCE):
                    ids = tuple(those[begin : begin + _IDS_AT_ONCE])
                    who = MAINTENANCE if alone else "sync"
                    made.events.append(Event(kind="purge", at=self._now(), ids=ids, who=who))
            made.write(writing)
            writing.release()
            writing.sync()
            mark = log.mark()
        known.mark = (mark.inode, mark.size, mark.digest)
        if not is_going_on:
            facts = journal.facts()
            state.erased += [each for each in state.facts if each not in {*facts, *erased}]
            state.facts = facts
        else:
            state.facts = [*dict.fromkeys([*state.facts, *journal.facts()])]
        return records

    def _new_parts(self, journal: Journal, here: Sequence[str], batch: _Batch) -> Iterator[dict[str, Any]]:
        """Yield the parts and counters that the place does not have."""
        known = self._known.digests | batch.digests
        for row_id in here:
            history = journal.history(row_id)
            for part in history.shared():
                digest = digest_of(identity(part))
                if digest not in known:
                    self._known.digests.add(digest)
                    self._report.given["memories"] += 1
                    yield {"k": "event", "v": part.as_json()}
            counters = history.counters
            if counters.uses or counters.mentions or counters.strength:
                yield {"k": "counts", "id": row_id, **counters.as_json()}
        gone = [each for each in journal.erased if digest_of(f"gone {each}") not in known]
        self._known.digests |= {digest_of(f"gone {each}") for each in gone}
        for alone in (True, False):
            if ids := [each for each in gone if journal.erased[each] is alone]:
                yield {"k": "gone", "ids": ids, "alone": alone}

    def _erasures(self) -> Iterator[dict[str, Any]]:
        known = self._known.digests
        if ids := [each for each in self._state.erased if digest_of(f"erased {each}") not in known]:
            known |= {digest_of(f"erased {each}") for each in ids}
            yield {"k": "erased", "ids": ids}

    def _unite_bill(self, batch: _Batch) -> Iterable[dict[str, Any]]:
        lines, known = self._storage.backend.lines("usage"), self._known.digests
        new = [each for each in lines.all() if digest_of(canonical(each)) not in known | batch.digests]
        if batch.bill and not self._report.dry_run:
            self._report.taken["calls"] = unite_lines(lines, batch.bill, receipts=False)
        known |= {digest_of(canonical(each)) for each in new}
        self._report.given["calls"] = len(new)
        return [{"k": "bill", "v": each} for each in new]

    def _earlier(self, machine: str, session_id: str) -> dict[str, TranscriptEntry]:
        """Return all entries of a session that the files of a machine hold."""
        found: dict[str, TranscriptEntry] = {}
        for name in self._place.names():
            if name.startswith(f"{machine}/"):
                with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                    for line in self._lines(name, name.partition("/")[2]):
                        if line.get("k") == "session" and line["session"]["id"] == session_id:
                            for each, (role, content, at) in line["entries"].items():
                                found[each] = TranscriptEntry(role, content, parse_time(at))
        return found

    def _give(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Put what is new into files of the place; it is noted before, so that a kill leaves no doubt about them."""
        state, known = self._state, self._known
        files: dict[str, bytes] = {}
        for number, some in enumerate(_portions(records), len(known.own) + 1):
            head = {"format": "chatbot-sync", "version": VERSION, "identity": state.identity, "machine": state.machine}
            data = gzip.compress(
                "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in (head, *some)).encode(), 6, mtime=0
            )
            files[f"{state.machine}/{number:06}-{sha256(data).hexdigest()[:32]}.gz"] = data
        if files:
            state.places.setdefault(self._place.key, PlaceState()).pending = {*files}
            state.save(self._document)
        for name, data in files.items():
            self._place.write(name, data)
        known.own, known.pending = known.own | {*files}, set()
        state.places[self._place.key] = known
        state.save(self._document)


def _join(batch: _Batch, part: _Batch) -> None:
    for row_id, parts in part.rows.parts.items():
        batch.rows.parts[row_id] += parts
    for row_id, counters in part.rows.counters.items():
        batch.rows.count(row_id, counters)
    batch.lose(part.gone)
    batch.erased += part.erased
    batch.sessions += part.sessions
    batch.bill += part.bill
    batch.names += part.names
    batch.digests |= part.digests


def _portions(records: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    some: list[Mapping[str, Any]] = []
    size = 0
    for record in records:
        some.append(record)
        size += len(json.dumps(record))
        if size > _PART_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


async def sync(
    memory: MemorySystem,
    place: SyncPlace,
    *,
    now: Callable[[], datetime],
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> SyncReport:
    """Make an identity and a place the union of both. Raises `ConfigError` where they were never one."""
    if memory.where is None:
        raise ConfigError("memory is kept nowhere: there is nothing to sync")
    async with AsyncExitStack() as stack:
        storage = await Storage.opened(memory.where, stack)
        return await Sync(memory, storage, place, now=now, dry_run=dry_run, progress=progress).run()
