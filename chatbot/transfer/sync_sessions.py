"""Sync of sessions: transcripts, values, receipts and files of two machines become one, and what is known of them.

What is taken out of a transcript is noted before, so that a kill at any point loses nothing of it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from chatbot.memory import MemorySystem
from chatbot.memory.origins import mark_of_deleted
from chatbot.memory.scope import CHOICES
from chatbot.memory.session_catalog import RECEIPTS, TurnOrder
from chatbot.stores.backend import ATTACHMENTS, Document, Lines, is_blob_name
from chatbot.stores.errors import DamagedFile, MissingFolder
from chatbot.stores.records import (
    KeyValue,
    SessionRecord,
    SessionRef,
    TranscriptEntry,
    format_time,
    parse_record,
    parse_time,
)
from chatbot.transfer.storage_copy import STATE, Storage
from chatbot.transfer.union import (
    Said,
    canonical,
    digest_of,
    newest,
    portable,
    united,
    with_ids,
)

_PATIENCE_S = 20.0
_MOST_SAVED = 50
"""Number of sessions in a sync of which each is noted at once; with more of them, only all at the end."""
_STEP = timedelta(microseconds=1)


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
class PlaceState:
    """Contents that a place is known to have, and how far the log was given to it."""

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
class SyncState:
    """State of former syncs on this machine: the document `sync.json` of the identity."""

    identity: str = ""
    machine: str = ""
    was: str = ""
    """The machine that this storage was copied from, whose counts are its own."""
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    """The sessions and facts that are gone on all machines."""
    facts: list[str] = field(default_factory=list)
    doing: _Doing | None = None
    places: dict[str, PlaceState] = field(default_factory=dict)

    @classmethod
    def read(cls, document: Document) -> SyncState:
        """Read the document. Raises `DamagedFile`."""
        try:
            return msgspec.json.decode(document.read() or b"{}", type=cls)
        except msgspec.DecodeError as error:
            raise DamagedFile(f"{document.name} cannot be read: {error}. Restore it from a backup") from error

    def save(self, document: Document) -> None:
        """Write the document. Durable on return."""
        data = msgspec.json.encode(self)
        document.change(lambda _: data)


def _short(value: object) -> str:
    return digest_of(json.dumps(value, sort_keys=True)).hex()


def checked_session(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a session of a place. Raises `ValueError`, `TypeError`, `KeyError` or `AttributeError`."""
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


class SessionSync(ABC):
    """The part of a sync that is about sessions."""

    def __init__(
        self,
        memory: MemorySystem,
        storage: Storage,
        *,
        now: Callable[[], datetime],
        progress: Callable[[int, int], None],
        report: SyncReport,
    ) -> None:
        self._memory = memory
        self._storage = storage
        self._now = now
        self._progress = progress
        self._report = report
        self._document = storage.backend.document(STATE)
        self._state = SyncState()
        self._known = PlaceState()
        """Changed as we go, and kept only with what it says in the place."""
        self._saves_each = True
        self._is_waiting = False
        """True if a file lacks what another one must bring: it is read again next time."""

    @abstractmethod
    def _earlier(self, machine: str, session_id: str) -> dict[str, TranscriptEntry]:
        """Return all entries of a session that the files of a machine hold."""

    def _note_deleted(self) -> None:
        """Note the sessions that were there at the last sync and are missing now."""
        state, here = self._state, {*self._storage.backend.sessions.ids()}
        gone = {each: None for each in state.sessions if each not in here}
        state.erased = [*dict.fromkeys([*state.erased, *gone])]
        for each in gone:
            state.sessions.pop(each, None)

    async def _delete_session(self, session_id: str) -> None:
        sessions = self._storage.backend.sessions
        with suppress(MissingFolder):
            ref = await asyncio.to_thread(sessions.ref, session_id)
            await self._storage.store.forget_session(ref)
            await asyncio.to_thread(sessions.delete, session_id)
            self._report.taken["sessions"] += 1
        self._state.sessions.pop(session_id, None)

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

    async def _take_sessions(self, sessions: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Unite sessions with what other machines know of them."""
        self._saves_each = len(sessions) <= _MOST_SAVED
        here = {*self._storage.backend.sessions.ids()}
        for done, (machine, given) in enumerate(sessions, 1):
            session_id = given["session"]["id"]
            if session_id not in here and self._memory.tombstones.barred([mark_of_deleted(session_id)]):
                self._state.erased.append(session_id)  # it was deleted before the first sync
            if session_id not in self._state.erased:
                await self._take_session(machine, given)
            self._progress(done, len(sessions))
        if sessions:
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
            if self._saves_each:  # what its user takes back before the next sync must be known to have been there
                await self._look(await asyncio.to_thread(storage.backend.sessions.get, session_id), is_merged=True)
                await asyncio.to_thread(self._state.save, self._document)
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


def _like(given: Mapping[str, Any]) -> Callable[[SessionRecord], SessionRecord]:
    def change(record: SessionRecord) -> SessionRecord:
        return replace(parse_record(given), store_types=record.store_types, used_at=record.used_at)

    return change
