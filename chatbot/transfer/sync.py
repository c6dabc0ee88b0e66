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
import base64
import gzip
import json
import secrets
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec

from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.memory.maintenance.run import WHO as MAINTENANCE
from chatbot.memory.notices import LINES as NOTICES
from chatbot.memory.receipt_lines import LINES as RECEIPTS
from chatbot.memory.record import CHOICES
from chatbot.memory.turn_order import TurnOrder
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.backend import ATTACHMENTS, Document, Lines, is_blob_name
from chatbot.stores.errors import DamagedFile, LaterFormat, MissingFolder, StoreBusy, UnknownObservation
from chatbot.stores.log import Mark
from chatbot.stores.records import KeyValue, SessionRef, TranscriptEntry, format_time, parse_time
from chatbot.stores.row_events import Event, check_fields, parse_event
from chatbot.stores.session_record import SessionRecord, parse_record
from chatbot.transfer.storage_copy import STATE, Storage, relabel
from chatbot.transfer.sync_place import NAME, SyncPlace
from chatbot.transfer.union import (
    Counters,
    Incoming,
    Journal,
    Said,
    bringing_in,
    canonical,
    digest_of,
    identity,
    newest,
    parts_of,
    portable,
    united,
    with_ids,
)

VERSION = 1
_LARGEST_UNPACKED = 1 << 30
_PART_BYTES = 16 << 20
"""A file of a place is begun anew once it holds so much."""
_IDS_AT_ONCE = 1_000
_PATIENCE_S = 20.0
_STEP = timedelta(microseconds=1)
_FUTURE = timedelta(days=2)
"""How far a clock may be ahead: what is dated later is set aside."""


@dataclass(slots=True)
class SyncReport:
    """Result of a sync: how much was taken and given, and what was set aside with the reason."""

    place: str
    dry_run: bool = False
    is_new: bool = False
    """True if nothing was there before."""
    taken: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    given: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    forks: list[str] = field(default_factory=list)
    """Sessions that were made because both sides went on with one."""
    aside: list[tuple[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        aside = [{"file": name, "why": why} for name, why in self.aside]
        return {
            "place": self.place,
            "dry_run": self.dry_run,
            "taken": dict(self.taken),
            "given": dict(self.given),
            "forks": self.forks,
            "aside": aside,
        }


@dataclass(slots=True)
class _Known:
    """What a place is known to hold, and how far the log was given to it."""

    digests: set[bytes] = field(default_factory=set)
    """Of parts, bills and erased ids."""
    sessions: dict[str, str] = field(default_factory=dict)
    """From a session to the digest of its state."""
    entries: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """From a session to how many entries and receipts the place has, behind a digest of them."""
    files: set[str] = field(default_factory=set)
    """Attachments, each behind its session."""
    mark: tuple[int, int, str] | None = None
    taken: set[str] = field(default_factory=set)
    """Files of others that were taken in."""
    own: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    """Files that were being written."""


@dataclass(slots=True)
class _Doing:
    """A transcript that is being replaced: how much of it stays, what comes first of what goes, and what is written."""

    session: str
    keep: int
    drop: str
    said: list[tuple[str, str, str]]


@dataclass(slots=True)
class _State:
    """What this machine knows of former syncs: the document `sync.json` of the identity."""

    identity: str = ""
    machine: str = ""
    was: str = ""
    """The machine that this storage was copied from, whose counts are its own."""
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    """The sessions and facts that are gone on all machines."""
    facts: list[str] = field(default_factory=list)
    doing: _Doing | None = None
    places: dict[str, _Known] = field(default_factory=dict)

    @classmethod
    def read(cls, document: Document) -> _State:
        """Read the document. Raises `DamagedFile`."""
        try:
            return msgspec.json.decode(document.read() or b"{}", type=cls)
        except msgspec.DecodeError as error:
            raise DamagedFile(f"{document.name} cannot be read: {error}. Restore it from a backup") from error

    def save(self, document: Document) -> None:
        """Write the document. Durable on return."""
        data = msgspec.json.encode(self)
        document.change(lambda _: data)


@dataclass(slots=True)
class _Batch:
    """What files of a place hold, parsed."""

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
                self.sessions.append((machine, _checked_session(record)))
            case other:
                raise DamagedFile(f"unknown line {other!r:.40}")


def _short(value: object) -> str:
    return digest_of(json.dumps(value, sort_keys=True)).hex()


def _checked_session(record: Mapping[str, Any]) -> dict[str, Any]:
    parse_time(record["at"])
    session = parse_record(record["session"])
    for role, content, at in record["entries"].values():
        TranscriptEntry(role, content, parse_time(at))
    for key, (value, at) in record["values"].items():
        KeyValue(key, value or "", parse_time(at))
    if not all(isinstance(each, str) for each in (*record["ids"], *record["cut"])):
        raise TypeError("ids must be texts")
    if not all(is_blob_name(name) for name in record["files"]):
        raise DamagedFile("an attachment has an invalid name")
    receipts = [dict(each) for each in record["receipts"] if isinstance(each["at"], str)]
    return {**record, "session": portable(session), "receipts": receipts}


def _receipt_key(receipt: Mapping[str, Any]) -> str:
    return canonical({name: receipt.get(name) for name in ("turn", "at", "kind")})


def _least_telling(receipt: Mapping[str, Any]) -> tuple[bool, int, str]:
    said = canonical(receipt)
    return not receipt.get("taken_back"), len(said), said


def unite_lines(lines: Lines, new: Iterable[Mapping[str, Any]], *, receipts: bool) -> int:
    """Add records that are not there yet, in the order of time; return how many. Of a receipt the shorter one stays."""
    with lines.alone() as pen:
        ours = lines.all()
        key = _receipt_key if receipts else canonical
        found = {key(each): each for each in ours}
        added = 0
        for record in new:
            known = found.get(key(record))
            added += known is None
            if known is None or (receipts and _least_telling(record) < _least_telling(known)):
                found[key(record)] = dict(record)
        ordered = sorted(found.values(), key=lambda each: str(each.get("at", "")))
        if ordered == ours:
            return 0
        pen.append([*found.values()][len(ours) :])
        left = iter(ordered)
        pen.rewrite(lambda record: next(left, record))
        return added


class Sync:
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
        self._memory = memory
        self._storage = storage
        self._place = place
        self._now = now
        self._progress = progress or (lambda _done, _total: None)
        self._report = SyncReport(place.key, dry_run)
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
        return self._report

    async def _run(self) -> None:
        self._document = self._storage.backend.document(STATE)
        self._state = await asyncio.to_thread(_State.read, self._document)
        names = await asyncio.to_thread(self._place.names)
        await asyncio.to_thread(self._meet, names)
        self._known = deepcopy(self._state.places.get(self._place.key, _Known()))
        """Changed as we go, and kept only with what it says in the place."""
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
            await self._take_sessions(batch)
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
            self._known = _Known()
        elif known.own - ours:
            self._known = _Known(taken=known.taken, own=ours)
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

    def _note_deleted(self) -> None:
        """Note the sessions that were deleted here: a notice tells, or that one is missing."""
        state, here = self._state, {*self._storage.backend.sessions.ids()}
        gone = {each: None for each in state.sessions if each not in here}
        for notice in self._storage.backend.lines(NOTICES).all():
            if notice.get("kind") == "session.deleted" and notice["session"] not in here:
                gone[str(notice["session"])] = None
        state.erased = [*dict.fromkeys([*state.erased, *gone])]
        for each in gone:
            state.sessions.pop(each, None)

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
        memories = self._memory.memories().everywhere()
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

    async def _delete_session(self, session_id: str) -> None:
        sessions = self._storage.backend.sessions
        with suppress(MissingFolder):
            ref = await asyncio.to_thread(sessions.ref, session_id)
            record = await asyncio.to_thread(sessions.get, session_id)
            await self._storage.store.forget_session(ref)
            await asyncio.to_thread(sessions.delete, session_id)
            await asyncio.to_thread(self._memory.notices.of_session, "session.deleted", record)
            self._report.taken["sessions"] += 1
        self._state.sessions.pop(session_id, None)

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

    async def _changed_sessions(self) -> list[dict[str, Any]]:
        """Look at the sessions that changed, note what was deleted, and return what the place does not have."""
        state, known = self._state, self._known
        found = await asyncio.to_thread(self._storage.backend.sessions.find, lambda _: True)
        records = []
        for record in found:
            await self._look(record)
            digest = state.sessions[record.id]["digest"]
            if known.sessions.get(record.id) != digest:
                records.append(await self._given(record.id))
                known.sessions[record.id] = digest
        self._report.given["sessions"] = len(records)
        return records

    def _print(self, record: SessionRecord, ref: SessionRef) -> str:
        """Return what changes with each change of a session, without reading it; empty where nothing tells."""
        files = self._storage.backend.sessions.files(ref)
        blobs = [*self._storage.backend.place_of(ref).blobs(ATTACHMENTS).sizes()]
        return _short([portable(record), [[each.name, each.size, each.modified] for each in files], blobs]) * bool(
            files
        )

    async def _look(self, record: SessionRecord, *, is_merged: bool = False) -> None:
        """Bring what is known of a session up to date; what was taken out of it since is noted, unless we did that."""
        ref = self._storage.backend.sessions.ref(record.id)
        print_ = await asyncio.to_thread(self._print, record, ref)
        before = self._state.sessions.get(record.id, {})
        if print_ and before.get("print") == print_ and not is_merged:
            return
        said, values, receipts, files = await self._content(ref)
        now, ids = self._now(), [each for each, _ in said]
        cut = list(before.get("cut", ()))
        dead = {key: at for key, at in before.get("dead", {}).items() if key not in values}
        if not is_merged:
            cut += [each for each in before.get("ids", ()) if each not in {*ids, *cut}]
            cut += [each for each in before.get("files", ()) if each not in {*files, *cut}]
            dead |= {key: format_time(now) for key in before.get("keys", ()) if key not in values and key not in dead}
        about = _short(portable(record))
        is_same = before.get("record") == about
        at = before.get("at") or format_time(record.created_at)
        if not is_same and before.get("record"):
            at = format_time(max(now, parse_time(at) + _STEP))
        state = {
            "ids": ids,
            "files": files,
            "cut": sorted(cut),
            "keys": sorted(values),
            "dead": dead,
            "record": about,
            "at": at,
        }
        digest = _short([state, values, receipts, files])
        self._state.sessions[record.id] = state | {"print": print_, "digest": digest}

    async def _content(self, ref: SessionRef) -> tuple[Said, dict[str, list[Any]], list[dict[str, Any]], list[str]]:
        """Return what a session says, its values but for its choices, its receipts, and the names of its files."""
        place, store = self._storage.backend.place_of(ref), self._storage.store
        said = with_ids(await store.transcript_read_all(ref))
        values = {each.key: [each.value, format_time(each.at)] for each in await store.kv_entries(ref)}
        values.pop(CHOICES, None)
        receipts = await asyncio.to_thread(place.lines(RECEIPTS).all)
        return said, values, receipts, [*await asyncio.to_thread(place.blobs(ATTACHMENTS).sizes)]

    async def _given(self, session_id: str) -> dict[str, Any]:
        """Return a session for the place: of its transcript, receipts and files what that does not have."""
        state, known = self._state.sessions[session_id], self._known
        record = await asyncio.to_thread(self._storage.backend.sessions.get, session_id)
        ref = self._storage.backend.sessions.ref(session_id)
        said, values, receipts, names = await self._content(ref)
        blobs = self._storage.backend.place_of(ref).blobs(ATTACHMENTS)
        there, entries, billed = known.entries.get(session_id, ("", 0, 0))
        if there != _short([[each for each, _ in said[:entries]], receipts[:billed]]):
            entries = billed = 0
        known.entries[session_id] = (_short([[each for each, _ in said], receipts]), len(said), len(receipts))
        files = {}
        for name in names:
            if f"{session_id}/{name}" not in known.files:
                known.files.add(f"{session_id}/{name}")
                data = await asyncio.to_thread(blobs.read, name)
                files[name] = base64.b64encode(data or b"").decode()
        return {
            "k": "session",
            "session": portable(record),
            "digest": state["digest"],
            "at": state["at"],
            "ids": [each for each, _ in said],
            "cut": state["cut"],
            "entries": {id_: [each.role, each.content, format_time(each.at)] for id_, each in said[entries:]},
            "values": values | {key: [None, at] for key, at in state["dead"].items()},
            "receipts": receipts[billed:],
            "files": files,
        }

    async def _take_sessions(self, batch: _Batch) -> None:
        for done, (machine, given) in enumerate(batch.sessions, 1):
            if given["session"]["id"] not in self._state.erased:
                await self._take_session(machine, given)
            self._progress(done, len(batch.sessions))
        if batch.sessions:
            await asyncio.to_thread(self._storage.backend.sessions.reorder)

    async def _take_session(self, machine: str, given: Mapping[str, Any]) -> None:
        """Unite a session with what another machine knows of it."""
        storage, session_id = self._storage, given["session"]["id"]
        entries = {each: TranscriptEntry(role, content, parse_time(at)) for each, (role, content, at) in
                   given["entries"].items()}  # fmt: skip
        if not await self._is_there(session_id):
            theirs = await self._resolved(machine, given, entries, {})
            if theirs is None:
                return
            await self._make(parse_record(given["session"]), theirs)
            self._report.taken["sessions"] += 1
        ref = storage.backend.sessions.ref(session_id)
        place = storage.backend.place_of(ref)
        async with TurnOrder(place.lease("turn"), patience_s=_PATIENCE_S):
            await self._look(await asyncio.to_thread(storage.backend.sessions.get, session_id))
            state = self._state.sessions[session_id]
            state["cut"] = list(dict.fromkeys([*state["cut"], *given["cut"]]))
            ours = with_ids(await storage.store.transcript_read_all(ref))
            theirs = await self._resolved(machine, given, entries, dict(ours))
            if theirs is None:
                return
            for name, data in given["files"].items():
                await asyncio.to_thread(place.blobs(ATTACHMENTS).put, base64.b64decode(data), name[32:])
            await self._unite_transcript(session_id, ours, theirs)
            await asyncio.to_thread(self._drop_files, session_id, await storage.store.transcript_read_all(ref))
            await self._take_values(ref, given)
            await asyncio.to_thread(unite_lines, place.lines(RECEIPTS), given["receipts"], receipts=True)
            state = self._state.sessions[session_id]
            record = await asyncio.to_thread(storage.backend.sessions.get, session_id)
            ours_said = {"at": state["at"], "record": portable(record)}
            theirs_said = {"at": given["at"], "record": given["session"]}
            if newest(ours_said, theirs_said, lambda each: each["at"]):
                await asyncio.to_thread(storage.backend.sessions.change, session_id, _like(given["session"]))
                state["at"], state["record"] = given["at"], _short(given["session"])
            record = await asyncio.to_thread(storage.backend.sessions.get, session_id)
            await self._look(record, is_merged=True)
            if self._state.sessions[session_id]["digest"] == given["digest"]:  # the place has it already, as it is here
                self._known.sessions[session_id] = given["digest"]
                self._known.files |= {f"{session_id}/{name}" for name in self._state.sessions[session_id]["files"]}
            await asyncio.to_thread(self._memory.notices.of_session, "session.changed", record)

    async def _resolved(
        self,
        machine: str,
        given: Mapping[str, Any],
        entries: Mapping[str, TranscriptEntry],
        here: Mapping[str, TranscriptEntry],
    ) -> Said | None:
        """Return the transcript of another machine, with entries that it has given before or that are here.

        None where one of them is in a file that is not there yet.
        """
        known = {**here, **entries}
        if any(each not in known for each in given["ids"]):
            for fork in await self._forks(given["session"]["id"]):
                ref = self._storage.backend.sessions.ref(fork)
                known |= with_ids(await self._storage.store.transcript_read_all(ref))
        if any(each not in known for each in given["ids"]):
            known |= await asyncio.to_thread(self._earlier, machine, given["session"]["id"])
        state = self._state.sessions.get(given["session"]["id"], {})
        cut = {*given["cut"], *state.get("cut", ())}
        left = [each for each in given["ids"] if each not in cut]
        if any(each not in known for each in left):
            self._is_waiting = True
            return None
        return [(each, known[each]) for each in left]

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

    async def _is_there(self, session_id: str) -> bool:
        try:
            await asyncio.to_thread(self._storage.backend.sessions.get, session_id)
        except MissingFolder:
            return False
        return True

    async def _forks(self, session_id: str) -> list[str]:
        """Return the sessions that were forked from a session, and from those."""
        records = await asyncio.to_thread(self._storage.backend.sessions.find, lambda record: record.parent is not None)
        found = [session_id]
        for each in found:
            found += [record.id for record in records if record.parent == each]
        return found[1:]

    async def _make(self, record: SessionRecord, said: Said) -> None:
        sessions = self._storage.backend.sessions
        used = max([record.created_at, *(entry.at for _, entry in said[-1:])])
        draft = await asyncio.to_thread(sessions.begin, replace(record, used_at=used))
        try:
            if said:
                await self._storage.store.transcript_append(draft, [entry for _, entry in said])
            await asyncio.to_thread(sessions.publish, replace(record, used_at=used))
        except BaseException:
            await asyncio.to_thread(sessions.abandon, record.id)
            raise

    async def _unite_transcript(self, session_id: str, ours: Said, theirs: Said) -> None:
        """Give a session the transcript of both sides; where both went on, one way goes into a fork."""
        cut = {*self._state.sessions[session_id]["cut"]}
        left = [each for each in ours if each[0] not in cut]
        whole, fork = united(session_id, left, theirs)
        if fork is not None and fork[0] not in self._state.erased:
            await self._fork(session_id, *fork)
        if whole != ours:
            await self._replace(session_id, ours, whole)

    async def _fork(self, session_id: str, fork_id: str, said: Said) -> None:
        sessions = self._storage.backend.sessions
        parent = await asyncio.to_thread(sessions.get, session_id)
        first = next(entry for _, entry in said)
        title = f"{parent.title or first.content[:60]} (continued on another machine)"
        if not await self._is_there(fork_id):
            record = replace(parent, id=fork_id, parent=session_id, created_at=first.at, opening="", history="")
            record = replace(record, origin="", pinned_at=None, archived_at=None)
            await self._make(record.renamed(title), said)
            await asyncio.to_thread(self._copy_files, session_id, fork_id, said)
            self._report.forks.append(fork_id)
        async with TurnOrder(
            self._storage.backend.place_of(sessions.ref(fork_id)).lease("turn"), patience_s=_PATIENCE_S
        ):
            await self._look(await asyncio.to_thread(sessions.get, fork_id))
            ours = with_ids(await self._storage.store.transcript_read_all(sessions.ref(fork_id)))
            cut = {*self._state.sessions[fork_id]["cut"]}
            await self._unite_transcript(fork_id, ours, [each for each in said if each[0] not in cut])
            await self._look(await asyncio.to_thread(sessions.get, fork_id), is_merged=True)

    def _drop_files(self, session_id: str, said: Sequence[TranscriptEntry]) -> None:
        """Erase the attachments that were erased on any side, unless a message names them."""
        backend, cut = self._storage.backend, {*self._state.sessions[session_id]["cut"]}
        blobs = backend.place_of(backend.sessions.ref(session_id)).blobs(ATTACHMENTS)
        for name in blobs.sizes():
            if name in cut and not any(name in entry.content for entry in said):
                blobs.drop(name)

    def _copy_files(self, session_id: str, fork_id: str, said: Said) -> None:
        backend = self._storage.backend
        ours, theirs = (
            backend.place_of(backend.sessions.ref(each)).blobs(ATTACHMENTS) for each in (session_id, fork_id)
        )
        for name in ours.sizes():
            if any(name in entry.content for _, entry in said) and (data := ours.read(name)) is not None:
                theirs.put(data, name[32:])

    async def _replace(self, session_id: str, ours: Said, whole: Said) -> None:
        """Make a transcript another one. What is to be written is noted first, so that a kill loses nothing of it."""
        same = next((at for at, (one, other) in enumerate(zip(ours, whole, strict=False)) if one != other), None)
        keep = min(len(ours), len(whole)) if same is None else same
        state = self._state
        said = [(entry.role, entry.content, format_time(entry.at)) for _, entry in whole[keep:]]
        if keep < len(ours):
            state.doing = _Doing(session_id, keep, ours[keep][0], said)
            state.sessions[session_id]["ids"] = [each for each, _ in ours[:keep]]
            await asyncio.to_thread(state.save, self._document)
        ref = self._storage.backend.sessions.ref(session_id)
        if len(ours) > keep:
            await self._storage.store.transcript_drop_last(ref, len(ours) - keep)
        if whole[keep:]:
            await self._storage.store.transcript_append(ref, [entry for _, entry in whole[keep:]])
            await asyncio.to_thread(self._storage.backend.sessions.note_used, session_id, whole[-1][1].at)
        state.doing = None

    async def _finish_transcript(self) -> None:
        """Do to its end what a kill has interrupted in `_replace`."""
        doing, self._state.doing = self._state.doing, None
        if doing is None or not await self._is_there(doing.session):
            return
        ref = self._storage.backend.sessions.ref(doing.session)
        async with TurnOrder(self._storage.backend.place_of(ref).lease("turn"), patience_s=_PATIENCE_S):
            ours = with_ids(await self._storage.store.transcript_read_all(ref))
            said = [TranscriptEntry(role, content, parse_time(at)) for role, content, at in doing.said]
            whole = with_ids([*(entry for _, entry in ours[: doing.keep]), *said])
            if ours[doing.keep : doing.keep + 1] and ours[doing.keep][0] != doing.drop:
                await self._unite_transcript(doing.session, ours, whole)  # something was said since
            else:
                await self._replace(doing.session, ours, whole)
            record = await asyncio.to_thread(self._storage.backend.sessions.get, doing.session)
            await self._look(record, is_merged=True)
        await asyncio.to_thread(self._state.save, self._document)

    async def _take_values(self, ref: SessionRef, given: Mapping[str, Any]) -> None:
        """Set the values that were set later elsewhere, and delete those that were deleted later."""
        state = self._state.sessions[ref.id]
        ours = {each.key: [each.value, format_time(each.at)] for each in await self._storage.store.kv_entries(ref)}
        ours |= {key: [None, at] for key, at in state["dead"].items()}
        later = {
            key: (value, at)
            for key, (value, at) in given["values"].items()
            if key != CHOICES
            and newest(
                {"said": ours[key]} if key in ours else None, {"said": [value, at]}, lambda each: each["said"][1]
            )
        }
        if dead := {key: at for key, (value, at) in later.items() if value is None}:
            state["dead"] |= dead
            state["keys"] = [key for key in state["keys"] if key not in dead]
            await asyncio.to_thread(self._state.save, self._document)
        for key, (value, at) in later.items():
            if value is not None:
                await self._storage.store.kv_set(ref, KeyValue(key, value, parse_time(at)))
            elif key in ours:
                await self._storage.store.kv_delete(ref, key)

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
            before = _State.read(self._document)
            before.places.setdefault(self._place.key, _Known()).pending = {*files}
            before.save(self._document)
        for name, data in files.items():
            self._place.write(name, data)
        known.own, known.pending = known.own | {*files}, set()
        state.places[self._place.key] = known
        state.save(self._document)


def _like(given: Mapping[str, Any]) -> Callable[[SessionRecord], SessionRecord]:
    def change(record: SessionRecord) -> SessionRecord:
        return replace(parse_record(given), store_types=record.store_types, used_at=record.used_at)

    return change


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
