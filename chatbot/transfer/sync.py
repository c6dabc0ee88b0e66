"""Sync of an identity with a place: a folder that other machines reach, another server, or one file, its backup.

Each machine adds files of its own to the place and reads those of the others:

    chatbot-sync.json                        format, version, and which identity this is
    <machine>/<number>-<mark>-<digest>.gz    what is new there: JSON lines, named by the SHA-256 of their bytes
    key.age                                  where the files are encrypted: the key to them, sealed by a passphrase
    backup.json                              of a backup: when it was made, and its digest

The lines after the first one, which says whose they are:

    {"k": "row", "id", "parts", "counts"}    events of a row or fact, and how often it was used
    {"k": "gone", "ids", "alone"}            rows that were erased
    {"k": "session", …}                      of a session what is new
    {"k": "lines", "name", "v"}              calls of the bill; of a backup also what belongs to the machine
    {"k": "erased", "ids"}                   sessions and facts that were erased
    {"k": "document", "name", "data"}        only in a backup: a small file, in base64

A file is read again until it was taken in as a whole, and taking it in twice changes nothing; so a kill at any point
costs no more than doing it again. The rules by which two copies become one are those of docs/sync.md.

The place is not trusted. A file is taken only if it is whole and of this identity; its lines are checked like those of
an import, and none of them names a store, a model, a persona or a path.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import secrets
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain, islice
from typing import Any

import msgspec

from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.memory.maintenance import WHO as MAINTENANCE
from chatbot.memory.origins import mark_of_deleted
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.errors import DamagedFile, LaterFormat, StoreBusy, UnknownObservation
from chatbot.stores.fields import how_many
from chatbot.stores.loops import unawaited
from chatbot.stores.records import format_time
from chatbot.stores.row_events import Event, check_fields, parse_event
from chatbot.transfer.sync_place import NAME, Meeting, ParcelPlace, PlaceHead, RefusedFile, ServerAnswer, SyncPlace
from chatbot.transfer.sync_sessions import Entries, SessionUnion, checked_session
from chatbot.transfer.sync_storage import PlaceState, Record, Storage, SyncState, said_of_session, unite_lines
from chatbot.transfer.union import Counts, Journal, bringing_in, canonical, digest_of, identity, parts_of, said_of
from chatbot.transfer.untrusted import checked_call, past

VERSION = 1
_LARGEST_UNPACKED = 256 << 20
_PART_BYTES = 512 << 10
"""A file of a place is begun anew once it holds so much."""
_AT_ONCE = 500
_FUTURE = timedelta(days=2)
"""How far a clock may be ahead: what is dated later is set aside."""
_WRONG = (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, zlib.error)
"""Errors of a damaged or forged file."""
_MOST_SAVED = 50
"""Number of sessions in a sync of which each is noted at once; with more of them, only all at the end."""
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BILL = "usage"
_OWN_LINES = ("tombstones", "hook_failures")
_OWN_DOCUMENTS = ("tombstones.key", "maintenance.json")
"""Parts of a backup that a sync leaves out."""

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class SyncReport:
    """Result of a sync: how much was taken and given, and what was set aside with the reason."""

    place: str
    dry_run: bool = False
    is_new: bool = False
    """True if nothing was there before."""
    taken: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("memories", "sessions", "calls", "erased"), 0))
    given: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("memories", "sessions", "calls", "erased"), 0))
    forks: list[str] = field(default_factory=list)
    """Sessions that were made because both sides went on with one."""
    aside: list[tuple[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        values = asdict(self) | {"aside": [{"file": name, "why": why} for name, why in self.aside]}
        return {name: value for name, value in values.items() if name != "is_new"}


_WORDS = {
    "memories": ("change of memory", "changes of memory"),
    "sessions": ("session",),
    "calls": ("billed call",),
    "erased": ("erasure",),
}


def counted(counts: Mapping[str, int]) -> str:
    """Return what was taken or given in words."""
    return ", ".join(how_many(count, *_WORDS[what]) for what, count in counts.items())


@dataclass(slots=True)
class Delivery:
    """Contents of the files of a place, parsed; of sessions only their number."""

    names: list[str] = field(default_factory=list)
    parts: defaultdict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    """Events by the id of their row or fact."""
    counts: dict[str, Counts] = field(default_factory=dict)
    gone: dict[str, bool] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    sessions: dict[str, list[str]] = field(default_factory=dict)
    """Their ids by file."""
    lines: dict[str, list[Record]] = field(default_factory=dict)
    documents: dict[str, bytes] = field(default_factory=dict)
    digests: set[bytes] = field(default_factory=set)

    def join(self, other: Delivery) -> None:
        """Add the contents of another one; a row that went alone on one machine and not on another did not."""
        self.names += other.names
        for row_id, parts in other.parts.items():
            self.parts[row_id] += parts
        for row_id, counts in other.counts.items():
            self._count(row_id, counts)
        self.gone |= {each: alone and self.gone.get(each, True) for each, alone in other.gone.items()}
        self.erased += other.erased
        self.sessions |= other.sessions
        for name, records in other.lines.items():
            self.lines.setdefault(name, []).extend(records)
        self.documents |= other.documents
        self.digests |= other.digests

    def take(self, record: Record, until: datetime, *, is_own: bool) -> None:
        """Add a line. Raises one of `_WRONG` for one that is invalid, or dated later than `until`."""
        match record["k"]:
            case "row":
                self._take_row(record, until)
            case "gone":
                self.gone |= {str(each): bool(record["alone"]) for each in record["ids"]}
                self.digests |= {digest_of(f"gone {each}") for each in record["ids"]}
            case "erased":
                self.erased += map(str, record["ids"])
                self.digests |= {digest_of(f"erased {each}") for each in record["ids"]}
            case "lines" if record["name"] == BILL or (is_own and record["name"] in _OWN_LINES):
                self.lines.setdefault(record["name"], []).extend(map(dict, record["v"]))
                self.digests |= {digest_of(canonical(each)) for each in record["v"]}
                for each in record["v"] if record["name"] == BILL else ():
                    checked_call(each, until)
            case "session":
                given = checked_session(record, until, is_own=is_own)
                self.sessions.setdefault(self.names[0], []).append(given["session"]["id"])
            case "document" if is_own and record["name"] in _OWN_DOCUMENTS:
                self.documents[record["name"]] = base64.b64decode(record["data"], validate=True)
            case other:
                raise DamagedFile(f"unknown line {other!r:.40}")

    def _take_row(self, record: Record, until: datetime) -> None:
        for part in map(parse_event, record["parts"]):
            check_fields(part)
            if [each for each, _ in parts_of(part)] != [record["id"]]:
                raise DamagedFile("an event is of another row than it says, or is one that is counted")
            past(part.at, until)
            self.parts[record["id"]].append(part)
            self.digests.add(digest_of(identity(part)))
        if record["counts"]:
            self._count(str(record["id"]), Counts.parse(record["counts"], until))

    def _count(self, row_id: str, counts: Counts) -> None:
        self.counts[row_id] = self.counts.get(row_id, Counts()).joined(counts)


class Sync:
    """One sync of an identity with one place. `memory` is opened by its owner, and erases what others have erased.

    Without `takes` it only gives, without `gives` it only takes. A backup (`is_own`) also has what belongs to the
    machine, and is forgotten afterwards; so is a trial.
    """

    def __init__(
        self,
        memory: MemorySystem,
        storage: Storage,
        place: SyncPlace,
        *,
        now: Callable[[], datetime],
        takes: bool = True,
        gives: bool = True,
        is_own: bool = False,
        dry_run: bool = False,
        is_trial: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._memory = memory
        self._storage = storage
        self._place = place
        self._now = now
        self._takes, self._gives, self._is_own = takes, gives, is_own
        self._dry_run = dry_run
        self._is_trial, self._is_forgotten = is_trial, dry_run or is_own or is_trial
        self._progress = progress or (lambda _done, _total: None)
        self.report = SyncReport(place.key, dry_run)
        self.said: list[str] = []
        """Texts of everything that was given, for a digest of the identity: all of it where the place had nothing."""
        self._is_waiting = False
        """True if a file lacks what another one must bring: it is read again next time."""

    async def run(self) -> SyncReport:
        """Take in what others have put there, and put there what is new here. Raises `ConfigError` for a stranger."""
        lease = self._storage.backend.lease("sync")
        if not await asyncio.to_thread(lease.take):
            raise StoreBusy("another sync of this identity is under way: wait for it")
        try:
            await self._run()
        finally:
            await asyncio.to_thread(lease.release)
        return self.report

    async def _run(self) -> None:
        self._state = await asyncio.to_thread(SyncState.read, self._storage.document)
        known = PlaceState() if self._is_own else self._state.places.get(self._place.key, PlaceState())
        self._known = deepcopy(known)
        """Changed as we go, and kept only with what it says in the place."""
        meeting = Meeting(self._state.identity, self._state.machine, known.taken, is_trial=self._dry_run)
        names = await unawaited(self._place.names, meeting)
        await unawaited(self._meet, names)
        await asyncio.to_thread(self._settle, names)
        barred = self._memory.tombstones.barred
        self._sessions = SessionUnion(
            self._storage,
            self._state,
            now=self._now,
            earlier=self._earlier,
            was_deleted=lambda each: barred([mark_of_deleted(each)]),
        )
        batch = await asyncio.to_thread(self._read, names) if self._takes else Delivery()
        await asyncio.to_thread(self._sessions.note_deleted)
        if self._is_own and self._takes:
            await asyncio.to_thread(self._check_nothing_else, batch)
            await self._save()
        if self._dry_run:
            self.report.taken["sessions"] = len({*chain(*batch.sessions.values())})
        else:
            await self._sessions.finish()
            await self._erase(batch)
        journal, rows = await asyncio.to_thread(self._unite_log, batch)
        if not self._dry_run:
            await self._take_sessions(batch)
            await asyncio.to_thread(self._take_lines, batch)
        self._known.digests |= batch.digests
        if not self._is_waiting:
            self._known.taken = {*(self._known.taken if self._place.keeps or not batch.names else ()), *batch.names}
        if self._gives:
            stale, left = await asyncio.to_thread(self._cleared, journal)
            await self._give(self._records(journal, rows, left), stale)
        if not self._is_forgotten:
            self._known.at = format_time(self._now())
            self._state.places[self._place.key] = self._known
        if not self._dry_run and not self._is_trial:  # what was given to a backup is known to have been there, too
            await self._save()
        self.report.forks = self._sessions.forks
        self.report.aside += self._sessions.aside

    def known_of(self) -> tuple[str, list[str]]:
        """Return which identity this is, and the files that were taken in from the place."""
        return self._state.identity, sorted(self._known.taken)

    async def _save(self) -> None:
        await asyncio.to_thread(self._state.save, self._storage.document)

    def _meet(self, names: Sequence[str]) -> None:
        """Check that the place is of this identity. A new identity joins it; a new place is of the first that comes."""
        state, found = self._state, ""
        if NAME in names:
            try:
                head = msgspec.json.decode(self._place.read(NAME), type=PlaceHead)
            except (OSError, ValueError, RecursionError) as error:
                raise DamagedFile(f"{NAME} of {self._place.key} cannot be read: {error}") from error
            found = head.identity
            if head.version > VERSION:
                raise LaterFormat(f"{self._place.key} was written by a later release: upgrade chatbot to sync")
        is_new = not state.identity and not self._storage.backend.sessions.ids() and not self._has_memories()
        if found and found != state.identity and not is_new:
            raise ConfigError(
                f"{self._place.key} holds another identity, which was never one with this: nothing was changed. "
                "Sync to a folder of its own, or begin with a new, empty identity"
            )
        if not state.identity:
            state.identity = found or secrets.token_hex(16)
        if self._dry_run or (self._is_own and self._takes):  # a backup may turn out to be wrong
            return
        state.save(self._storage.document)
        self.report.is_new = not found
        if not found and self._gives:
            data = {"format": "chatbot-sync", "version": VERSION, "identity": state.identity}
            self._place.write(NAME, json.dumps(data).encode())

    def _has_memories(self) -> bool:
        self._storage.log.start_again()
        return any(True for _ in self._storage.log.read_new())

    def _check_nothing_else(self, batch: Delivery) -> None:
        """Raise `DamagedFile` where a backup is invalid, and `ConfigError` where it lacks something that is here."""
        for name, why in self.report.aside:
            raise DamagedFile(f"{self._place.key}: {name} is invalid: {why}. Nothing was written")
        rows, sessions = self._storage.journal().touched(), self._storage.backend.sessions.ids()
        if {*rows} - batch.parts.keys() or {*sessions} - {*chain(*batch.sessions.values())}:
            raise ConfigError(
                f"the target holds what {self._place.key} does not: nothing was written. Use an empty one"
            )

    def _settle(self, names: Sequence[str]) -> None:
        """Find out which files of our own are there: one that is lost is given again, an unknown one is a twin's."""
        state, known = self._state, self._known
        ours = {name for name in names if name.startswith(f"{state.machine}/")}
        if self._dry_run or not self._gives:
            return
        moved = [key for key, each in state.places.items() if ours and each.own >= ours and self._place.keeps]
        if not known.own and moved:  # a stick that is found elsewhere today
            self._known = known = state.places[self._place.key] = state.places.pop(moved[0])
        if any(name.split("-")[1:2] != [known.pending] for name in ours - known.own):
            self._become_another()  # a copy of this storage was here before, with our name
        elif known.own - ours:
            self._known = PlaceState(taken=known.taken, own=ours)
        else:
            known.own, known.pending = ours, ""

    def _become_another(self) -> None:
        """Become another machine, to which everything is new."""
        self._state.machine, self._state.places, self._known = secrets.token_hex(6), {}, PlaceState()
        self._state.save(self._storage.document)

    def _read(self, names: Sequence[str]) -> Delivery:
        """Parse the files that were not taken in yet; what is wrong with one is reported, and it is left there."""
        batch, ours = Delivery(), f"{self._state.machine}/"
        waiting = [each for each in names if each.endswith(".gz") and each not in self._known.taken]
        waiting = [each for each in waiting if not each.startswith(ours)]
        for done, name in enumerate(waiting, 1):
            part, until = Delivery([name]), self._now() + _FUTURE
            try:
                for line in self._lines(name):
                    part.take(line, until, is_own=self._is_own)
            except FileNotFoundError:
                continue  # its machine has put another one in its place
            except _WRONG as error:
                self.report.aside.append((name, str(error) or type(error).__name__))
                continue
            batch.join(part)
            self._progress(done, len(waiting))
        return batch

    def _lines(self, name: str) -> list[Record]:
        """Return the lines of a file after its head. Raises `DamagedFile` or `LaterFormat` among others."""
        data, machine = self._place.read(name), name.partition("/")[0]
        if sha256(data).hexdigest()[:32] != name.rpartition("-")[2].partition(".")[0]:
            raise DamagedFile("its digest differs from its name: it is not complete yet, or damaged")
        unpacking = zlib.decompressobj(wbits=31)
        text = unpacking.decompress(data, _LARGEST_UNPACKED)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise DamagedFile("it unpacks to more than it may, or is cut off")
        head, *lines = map(msgspec.json.decode, text.splitlines())  # which takes no NaN and no half of a character
        if head.get("identity") != self._state.identity or head.get("machine") != machine:
            raise DamagedFile("it is not of this identity and machine")
        if head["version"] > VERSION:
            raise LaterFormat("it was written by a later release: upgrade chatbot")
        return lines

    async def _erase(self, batch: Delivery) -> None:
        """Erase what was erased elsewhere: rows with the caches and receipts that tell of them, sessions and facts."""
        state = self._state
        fresh = [each for each in dict.fromkeys(batch.erased) if each not in state.erased]
        if not batch.gone and not fresh:
            return
        journal = await asyncio.to_thread(self._storage.journal)
        facts = [each for each in fresh if journal.has_fact(each)]
        state.erased += fresh
        await self._save()
        there = {each: is_alone for each, is_alone in batch.gone.items() if journal.has(each)}
        alone = [each for each, is_alone in there.items() if is_alone]
        whole = [each for each, is_alone in there.items() if not is_alone] + facts
        memories = self._memory.memory().everywhere()
        for some in _portions(whole):
            with suppress(UnknownObservation):
                await memories.purge(*some)
        if alone:
            view = View("full", self._now(), frozenset(SENSITIVITIES), None, erasing=True)
            with suppress(UnknownObservation):
                await self._storage.observations.purge(view, alone, who=MAINTENANCE, why="synced", alone=True)
        for each in fresh:
            if each not in facts:
                self.report.taken["sessions"] += await self._sessions.delete(each)
        self.report.taken["erased"] = len(whole) + len(alone)

    def _unite_log(self, batch: Delivery) -> tuple[Journal, list[str]]:
        """Bring the events of others into the log; return it as it was, and the rows that are new to the place."""
        log, state, writes = self._storage.log, self._state, self._takes and not self._dry_run
        with log.locked() if writes else nullcontext() as writing:
            if writing:
                writing.mend()
            journal = after = self._storage.journal()
            rows = journal.touched(self._known.digests) if self._gives else []
            gone = {each: alone for each, alone in batch.gone.items() if each not in journal.erased}
            journal.erased |= gone
            for each in {*state.erased} & batch.parts.keys():
                del batch.parts[each]
            made = bringing_in(journal, batch.parts, batch.counts, also=rows if writes else ())
            self._is_waiting |= made.is_waiting
            if writing:
                for alone in (True, False):
                    who = MAINTENANCE if alone else "sync"
                    for ids in _portions([each for each, is_alone in gone.items() if is_alone is alone]):
                        made.events.append(Event(kind="purge", at=self._now(), ids=tuple(ids), who=who))
                after = made.write(writing, journal)
                writing.release()
                writing.sync()
        self.report.taken["memories"] = made.taken
        self._known.digests |= after.digests() - (set() if self._gives else journal.digests())
        facts = [each for each in state.facts if after.has_fact(each)]
        state.erased += [each for each in state.facts if each not in {*facts, *state.erased}]
        state.facts = [*dict.fromkeys([*facts, *filter(after.has_fact, (*rows, *batch.parts))])]
        return journal, rows

    async def _take_sessions(self, batch: Delivery) -> None:
        """Unite sessions with what other machines know of them."""
        done, total = 0, len([*chain(*batch.sessions.values())])
        for name in batch.sessions:
            try:
                lines = await asyncio.to_thread(self._lines, name)
            except _WRONG:
                self._is_waiting = True  # it was whole a moment ago
                continue
            for line in lines:
                if line["k"] == "session":
                    given = checked_session(line, self._now() + _FUTURE, is_own=self._is_own)
                    session_id = given["session"]["id"]
                    if not await self._sessions.is_gone(session_id):
                        machine, saves = name.partition("/")[0], total <= _MOST_SAVED
                        is_new = await self._sessions.take(machine, given, self._known, saves=saves)
                        self._is_waiting |= is_new is None
                        self.report.taken["sessions"] += bool(is_new)
                    done += 1
                    self._progress(done, total)
        if total:
            await asyncio.to_thread(self._storage.backend.sessions.reorder)

    def _take_lines(self, batch: Delivery) -> None:
        for name, records in batch.lines.items():
            added = unite_lines(self._storage.backend.lines(name), records)
            self.report.taken["calls"] += added if name == BILL else 0
        for name, data in batch.documents.items():

            def kept(before: bytes | None, data: bytes = data) -> bytes:
                return before or data

            self._storage.backend.document(name).change(kept)

    def _earlier(self, machine: str, session_id: str) -> Entries:
        """Return all entries of a session that the files of a machine hold."""
        found: Entries = {}
        for name in self._place.names():
            if name.startswith(f"{machine}/"):
                with suppress(*_WRONG):
                    for line in self._lines(name):
                        if line["k"] == "session" and line["session"]["id"] == session_id:
                            found |= checked_session(line, self._now() + _FUTURE, is_own=False)["entries"]
        return found

    def _cleared(self, journal: Journal) -> tuple[list[str], list[Record]]:
        """Return our files in which something was erased by now, and the lines of them that are left.

        Sessions of which a line is dropped are given anew.
        """
        cut = chain.from_iterable(each["cut"] for each in self._state.sessions.values())
        gone = {*self._known.new([*journal.erased, *self._state.erased, *cut], "cleared ")}
        names: list[str] = []
        left: list[Record] = []
        for name in sorted(self._known.own) if gone and self._place.keeps and not self._dry_run else ():
            try:
                lines = self._lines(name)
            except _WRONG:
                continue  # damaged: nobody can read it
            kept = [line for line in lines if gone.isdisjoint(_quoted(line))]
            if len(kept) == len(lines):
                continue
            names.append(name)
            left += kept
            for line in (line for line in lines if line["k"] == "session"):
                about, receipts = line["session"]["id"], map(canonical, line["receipts"])
                self._known.sessions.pop(about, None)
                self._known.digests -= {
                    digest_of(about + each) for each in (*line["entries"], *line["files"], *receipts)
                }
        return names, [line for line in left if line["k"] != "session"]

    async def _records(self, journal: Journal, rows: Sequence[str], left: Sequence[Record]) -> AsyncIterator[Record]:
        """Yield what the place does not have, after what it had in files that are dropped."""
        for each in left:
            yield each
        found = self._rows(journal, rows)

        def some_rows() -> list[Record]:
            return [*islice(found, _AT_ONCE)]

        while some := await asyncio.to_thread(some_rows):
            for each in some:
                yield each
        gone = self._known.new(journal.erased, "gone ")
        self.report.given["erased"] = len(gone)
        for alone in (True, False):
            if ids := [each for each in gone if journal.erased[each] is alone]:
                yield {"k": "gone", "ids": ids, "alone": alone}
        last = ""
        async for record, content, given in self._sessions.changed(
            self._known, is_own=self._is_own, progress=self._progress
        ):
            if record.id != last:
                self.report.given["sessions"] += 1
                self.said.append(said_of_session(record, content))
            last = record.id
            yield given
        for each in await asyncio.to_thread(self._others):
            yield each

    def _others(self) -> list[Record]:
        """Return what the place does not have of the bill, of what was erased, and of what only a backup holds."""
        records: list[Record] = []
        for name in (BILL, *(_OWN_LINES if self._is_own else ())):
            new = [
                json.loads(each) for each in self._known.new(map(canonical, self._storage.backend.lines(name).all()))
            ]
            records += [{"k": "lines", "name": name, "v": some} for some in _portions(new)]
            if name == BILL:
                self.report.given["calls"] = len(new)
                self.said += map(canonical, new)
        if ids := self._known.new(self._state.erased, "erased "):
            self.report.given["erased"] += len(ids)
            records.append({"k": "erased", "ids": ids})
        for name in _OWN_DOCUMENTS if self._is_own else ():
            if data := self._storage.backend.document(name).read():
                records.append({"k": "document", "name": name, "data": base64.b64encode(data).decode()})
        return records

    def _rows(self, journal: Journal, rows: Sequence[str]) -> Iterator[Record]:
        """Yield the parts and counts of rows and facts that the place does not have."""
        known = self._known.digests
        for done, row_id in enumerate(rows, 1):
            history = journal.history(row_id)
            parts = {digest_of(identity(part)): part for part in history.parts}
            new = [part.as_json() for digest, part in parts.items() if digest not in known]
            counts = history.counts.settled(history.parts)
            digest = digest_of(f"{row_id} {canonical(counts.as_json())}")
            known |= parts.keys()
            if new or (any(counts) and digest not in known):
                self.report.given["memories"] += len(new)
                yield {"k": "row", "id": row_id, "parts": new, "counts": counts.as_json() if any(counts) else None}
            known.add(digest)
            if self._is_own:
                self.said.append(said_of(journal, row_id))
            if not done % _AT_ONCE:
                self._progress(done, len(rows))

    async def _give(self, records: AsyncIterator[Record], stale: Sequence[str]) -> None:
        """Put what is new into files of the place. Their mark is noted before, so a kill leaves no doubt about them."""
        state, known, mark = self._state, self._known, secrets.token_hex(4)
        head = {"format": "chatbot-sync", "version": VERSION, "identity": state.identity, "machine": state.machine}
        files: set[str] = set()

        async def put(lines: list[str]) -> None:
            if not files and not self._is_forgotten:
                state.places.setdefault(self._place.key, PlaceState()).pending = mark
                await self._save()
            text = "\n".join([json.dumps(head), *lines])
            data = await asyncio.to_thread(gzip.compress, text.encode(errors="surrogatepass"), 6, mtime=0)
            number = len(known.own) + len(files) + 1
            name = f"{state.machine}/{number:06}-{mark}-{sha256(data).hexdigest()[:32]}.gz"
            files.add(name)
            await unawaited(self._place.write, name, data)

        lines: list[str] = []
        size = 0
        async for record in records:
            if self._dry_run:
                continue
            lines.append(json.dumps(record, ensure_ascii=False))
            size += len(lines[-1])
            if size > _PART_BYTES:
                await put(lines)
                lines, size = [], 0
        if lines:
            await put(lines)
        for name in stale:
            await asyncio.to_thread(self._place.drop, name)
        known.own = {*(known.own - {*stale} if self._place.keeps or not files else ()), *files}
        known.pending = ""


def _quoted(line: Record) -> set[str]:
    """Return the ids of what a line says something of: of rows, sessions and entries."""
    if line["k"] == "row":
        return {line["id"], *(part["triple"].get("source", "") for part in line["parts"] if "triple" in part)}
    if line["k"] == "session":
        return {line["session"]["id"], *line["entries"], *_ID.findall(json.dumps(line["receipts"]))}
    return set()


def _portions(items: Sequence[Any]) -> Iterator[list[Any]]:
    for begin in range(0, len(items), _AT_ONCE):
        yield [*items[begin : begin + _AT_ONCE]]


async def sync(
    memory: MemorySystem,
    place: SyncPlace,
    *,
    now: Callable[[], datetime],
    dry_run: bool = False,
    progress: Progress | None = None,
) -> SyncReport:
    """Make an identity and a place the union of both. Raises `ConfigError` where they were never one."""
    if memory.where is None:
        raise ConfigError("memory is kept nowhere: there is nothing to sync")
    async with Storage.opened(memory.where) as storage:
        return await Sync(memory, storage, place, now=now, dry_run=dry_run, progress=progress).run()


async def exchange(
    memory: MemorySystem, meeting: Meeting, files: dict[str, bytes], *, now: Callable[[], datetime]
) -> ServerAnswer:
    """Take in the files of another machine; without any, return what is new for it. Raises like `sync`."""
    if memory.where is None:
        raise ConfigError("memory is kept nowhere: there is nothing to sync")
    async with Storage.opened(memory.where) as storage:
        place, is_trial = ParcelPlace(meeting, files), meeting.is_trial
        takes = bool(files) and not is_trial
        done = Sync(memory, storage, place, now=now, takes=takes, gives=not files, is_trial=is_trial)
        report = await done.run()
        identity, taken = done.known_of()
        new = {name: data for name, data in place.new.items() if name != NAME}
        return ServerAnswer(identity, new, taken, [RefusedFile(*each) for each in report.aside if each[0] in files])
