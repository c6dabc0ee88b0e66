"""The open storage of an identity, its digest, and its sessions, which are united with those of other machines."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, cast

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from chatbot.errors import ConfigError, SessionError, SessionNotFound, without_folders
from chatbot.memory import MemorySystem
from chatbot.memory.erasure import mark_of_deleted, marks_of_session
from chatbot.memory.handle import CHOICES, Choices, shared_value
from chatbot.memory.session_catalog import NOT_KEPT, RECEIPTS, SESSIONS_AT_ONCE, SessionCatalog
from chatbot.memory.turn_order import TurnOrder
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.backend import ATTACHMENTS, Backend, Blobs, Document, Examination, Flaw, Lines, Sessions, suffix_of
from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.basic_session import KEY_VALUES_NAME
from chatbot.stores.errors import DamagedFile, LaterFormat, MissingFolder, StoreAway, StoreBusy, StoreError
from chatbot.stores.home import Home
from chatbot.stores.json_lines import record_of
from chatbot.stores.log import Log
from chatbot.stores.observation import STATUSES
from chatbot.stores.observations import log_union
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.plugins import GREATEST, STORES, open_backend, open_store
from chatbot.stores.records import (
    KeyValue,
    SessionRecord,
    SessionRef,
    TranscriptEntry,
    canonical,
    chunks,
    format_time,
    parse_record,
    parse_time,
)
from chatbot.stores.transcript import NAME as TRANSCRIPT_NAME
from chatbot.transfer import union
from chatbot.transfer.sync_place import RefusedFile, SyncReport, acceptable
from chatbot.transfer.untrusted import SessionLine, checked_receipt

LONGEST_WAIT_S = 20.0
"""How long a sync waits for a turn of a session, or for another sync."""
_FILES_BYTES = 8 << 20
"""Bytes of attachments that are sent in one line: few lines, as taking one in reads the whole session."""
_WITHOUT_CAPS = {"kv_cap": GREATEST, "transcript_cap": GREATEST}
"""Settings of the session store: everything of another machine is kept; our caps apply at the next change here."""


_LOST = "though nothing was deleted: put it back from a backup or from another machine, which keeps it"


def _digest(value: object) -> str:
    return log_union.digest_of(canonical(value)).hex()


class _SessionStore(KeyValueStore, TranscriptStore):
    """The contracts that `basic_session` keeps, in files as in a database."""


class Storage(Struct, frozen=True):
    """Everything that is kept of an identity, open."""

    backend: Backend
    store: _SessionStore
    observations: LoggedObservations
    log: Log

    @classmethod
    @asynccontextmanager
    async def opened(cls, home: Home | None) -> "AsyncIterator[Storage]":
        """Open a storage for the time of the context. Raises `ConfigError` if memory is kept nowhere."""
        if home is None:
            raise ConfigError("memory is kept nowhere: there is nothing to sync")
        async with AsyncExitStack() as stack:
            backend = open_backend(home)
            stack.callback(backend.close)
            sessions = cast("_SessionStore", open_store(union.SESSIONS, home, _WITHOUT_CAPS))
            store = await stack.enter_async_context(sessions)
            kept = cast("LoggedObservations", open_store(union.OBSERVATIONS, home, {}))
            observations = await stack.enter_async_context(kept)
            log = observations.open_log(home)
            stack.callback(log.close)
            yield cls(backend, store, observations, log)

    @property
    def document(self) -> Document:
        """The document with the state of syncs."""
        return self.backend.document(union.STATE)

    async def save(self, state: union.SyncState) -> None:
        """Keep the state of syncs. Durable on return."""
        await asyncio.to_thread(state.save, self.document)

    def journal(self) -> log_union.Journal:
        """Read the whole log. Needs its lock if it will be changed."""
        self.log.start_again()
        return log_union.Journal(line for _, line in self.log.read_new())

    async def records(self) -> list[SessionRecord]:
        """Return the records of all sessions, most recently used first."""
        return await asyncio.to_thread(self.backend.sessions.find, lambda _: True)

    async def content(self, ref: SessionRef) -> union.SessionContent:
        """Return the stored content of a session without its record."""
        place = self.backend.place_of(ref)
        said = union.with_ids(await self.store.transcript_read_all(ref))
        entries = await self.store.kv_entries(ref)
        choices = next(((each.value, format_time(each.at)) for each in entries if each.key == CHOICES), None)
        receipts = await asyncio.to_thread(place.lines(RECEIPTS).all)
        files = [*await asyncio.to_thread(place.blobs(ATTACHMENTS).sizes)]
        return union.SessionContent(said, _shared(entries), choices, receipts, files)


@dataclass
class SessionUnion:
    """Reads the sessions of a storage, gives them to a place, and unites them with those of other machines."""

    memory: MemorySystem
    storage: Storage
    state: union.SyncState
    report: SyncReport
    _: KW_ONLY
    now: Callable[[], datetime]
    earlier: Callable[[str, str], union.Entries]
    """Returns the entries of a machine's session that the files of the place hold."""
    has_marked: bool = field(default=False, init=False)
    """True once memories were changed, as their session was marked or moved elsewhere."""

    @property
    def _sessions(self) -> Sessions:
        return self.storage.backend.sessions

    def note_deleted(self) -> None:
        """Note the sessions that were there at the last sync and were deleted since; report what is only missing."""
        for each in self.state.sessions.keys() - self._sessions.ids():
            if self.is_deleted(each):
                self.state.erased.add(each)
            elif self.state.places and each not in self.state.erased:
                self.report.set_aside(f"session {each}", f"its folder is gone, {_LOST}, or delete it there")
                continue
            del self.state.sessions[each]

    def is_deleted(self, each: str) -> bool:
        """Return whether a session or fact was deleted here, and is not only missing."""
        return self.memory.tombstones.barred([mark_of_deleted(each)])

    async def is_gone(self, session_id: str) -> bool:
        """Return whether a session was deleted, even before any sync could note that it existed."""
        erased = self.state.erased
        if session_id not in erased and not await self.memory.is_taken(session_id) and self.is_deleted(session_id):
            erased.add(session_id)
        return session_id in erased

    async def delete(self, session_ids: Iterable[str]) -> int:
        """Delete sessions that were deleted elsewhere, for imports too if with their memories; return how many."""
        readable, gone = defaultdict[str, list[SessionRecord]](list), 0
        memories, barred = self.memory.memory().everywhere(), self.memory.tombstones
        for each in session_ids:
            self.state.sessions.pop(each, None)
            with suppress(MissingFolder, SessionNotFound):
                ref, record = await asyncio.to_thread(self._sessions.ref, each), None
                with suppress(DamagedFile, LaterFormat):
                    record = await self._record(each)
                if not await memories.every(session_id=each, sensitivities=SENSITIVITIES, statuses=STATUSES):
                    await barred.bar([*marks_of_session(each, record.origin if record else "")], self.now())
                if record and STORES.own.keys() >= {*record.store_types}:
                    readable[record.namespace].append(record)
                    continue
                await self.storage.store.forget_session(ref)
                gone += len(await SessionCatalog(self.storage.backend).delete(each))
        for namespace, records in readable.items():
            owner = self.memory.cleared_for(namespace=namespace)
            for some in chunks(records, SESSIONS_AT_ONCE):
                with suppress(SessionNotFound):
                    gone += len((await owner.erase_session(*some, keep_memory=True)).sessions)
        return gone

    async def changed(
        self, known: union.PlaceState, *, is_own: bool, progress: Callable[[int, int], None]
    ) -> AsyncIterator[tuple[SessionRecord, union.SessionContent, SessionLine]]:
        """Yield the record and whole content of each session, with the part that a place lacks."""
        records = await self.storage.records()
        for name in sorted({name for each in records for name in each.store_types} - STORES.own.keys()):
            why = f"only {union.SESSIONS} and {union.OBSERVATIONS} are copied, not what sessions keep there"
            self.report.aside.append(RefusedFile(f"store {name}", why))
        for done, record in enumerate(records[::-1], 1):  # the order in which they are made elsewhere
            progress(done, len(records))
            try:
                content = await self._note(record)
                if known.sessions.get(record.id) == (digest := self.state.sessions[record.id].digest):
                    continue
                content = content or await self.storage.content(self._sessions.ref(record.id))
            except MissingFolder:
                continue  # it was deleted meanwhile
            except StoreError as error:
                self._set_aside(f"session {record.id}", error)
                continue
            known.sessions[record.id] = digest
            what = f"receipts of session {record.id}"
            content = replace(content, receipts=acceptable(content.receipts, checked_receipt, what, self.report.aside))
            given = self._session_line(record, content, known, is_own=is_own)
            lost: set[str] = set()
            async for files in self._portions(record.id, known.new(content.files, record.id), lost):
                left = [each for each in content.files if each not in lost]
                yield record, replace(content, files=left), replace(given, files=files)
                given = replace(given, entries={}, receipts=[])
            known.digests -= {log_union.digest_of(f"{record.id}{each}") for each in lost}  # it may be repaired

    async def has_lost(self) -> bool:
        """Return whether a session, or an entry, value or file of one, was erased since it was noted."""
        records = {each.id: each for each in await self.storage.records()}
        for session_id, noted in [*self.state.sessions.items()]:
            try:
                await self._note(records[session_id])
            except (LookupError, MissingFolder):
                if self.is_deleted(session_id):
                    return True  # else its folder was lost
            except StoreError:
                continue  # it was set aside
            now = self.state.sessions[session_id]
            if (now.cut, now.dead) != (noted.cut, noted.dead):
                return True
        return False

    def _session_line(
        self, record: SessionRecord, content: union.SessionContent, known: union.PlaceState, *, is_own: bool
    ) -> SessionLine:
        """Return a session for the place, with the part of its transcript and receipts that the place lacks."""
        state, said = self.state.sessions[record.id], dict(content.said)
        own = {CHOICES: content.choices} if is_own and content.choices else {}
        return SessionLine(
            session=record.as_json() if is_own else union.portable(record),
            digest=state.digest,
            times=state.times,
            ids=[*said],
            cut=state.cut,
            entries={each: said[each] for each in known.new(said, record.id)},
            values={**content.values, **own, **{key: (None, at) for key, at in state.dead.items()}},
            receipts=[json.loads(each) for each in known.new(map(canonical, content.receipts), record.id)],
        )

    async def _portions(self, session_id: str, names: list[str], lost: set[str]) -> AsyncIterator[dict[str, bytes]]:
        """Yield attachments in portions, at least one; what cannot be read is `lost`, and set aside."""
        blobs, files = self._blobs(session_id), dict[str, bytes]()
        for name in names:
            try:
                data = await asyncio.to_thread(blobs.read, name)
            except StoreError as error:
                self._set_aside(f"session {session_id}: {name}", error)
                lost.add(name)
                continue
            if files and sum(map(len, files.values())) + len(data or b"") > _FILES_BYTES:
                yield files
                files = {}
            if data is not None:  # it may have been dropped meanwhile
                files[name] = data
        yield files

    def _set_aside(self, what: str, error: StoreError) -> None:
        """Report what cannot be read. Raises an error that would affect everything else too."""
        if isinstance(error, StoreAway | StoreBusy):
            raise error
        self.report.set_aside(what, str(error))

    def _blobs(self, session_id: str) -> Blobs:
        return self.storage.backend.place_of(self._sessions.ref(session_id)).blobs(ATTACHMENTS)

    def _turn_lock(self, session_id: str) -> TurnOrder:
        """Return the lock of a session, which turns hold too; to be held while the session is changed."""
        lease = self.storage.backend.place_of(self._sessions.ref(session_id)).lease("turn")
        return TurnOrder(lease, longest_wait_s=LONGEST_WAIT_S)

    def _stamp(self, record: SessionRecord, ref: SessionRef) -> str:
        """Return a stamp that changes with the session, without reading it; empty if there is none."""
        if not (files := self._sessions.files(ref)):
            return ""
        stamps = [[each.name, each.size, each.modified] for each in files]
        return _digest([union.portable(record), stamps, [*self._blobs(record.id).sizes()]])

    async def _note(self, record: SessionRecord, *, is_merged: bool = False) -> union.SessionContent | None:
        """Note the state of a session; return its content if it was read. For `is_merged` see `SessionState.next`."""
        ref = self._sessions.ref(record.id)
        stamp = await asyncio.to_thread(self._stamp, record, ref)
        before = self.state.sessions.get(record.id, union.SessionState(union.digests_of(record)))
        if stamp and before.stamp == stamp and not is_merged:
            return None
        content = await self.storage.content(ref)
        if not is_merged:
            await asyncio.to_thread(self._check_whole, ref, before, content)
        for key, (value, at) in content.values.items():  # clocks of machines differ, and what replaced another is later
            if at < (seen := before.set_at.get(key) or before.dead.get(key, "")) and not self.report.dry_run:
                later = union.time_after(seen, parse_time(at))
                content.values[key] = shared_value(key, value, later), later
                text = _with_own(key, content.values[key][0], content.choices and content.choices[0])
                await self.storage.store.kv_set(ref, KeyValue(key, text, parse_time(later)))
        state = before.next(record, content, self.now(), is_merged=is_merged)
        digest = _digest([to_builtins(state), content.values, content.receipts])
        self.state.sessions[record.id] = replace(state, stamp=stamp, digest=digest)
        return content

    def _check_whole(self, ref: SessionRef, before: union.SessionState, content: union.SessionContent) -> None:
        """Raise `DamagedFile` for files and words that are missing and were not deleted: they stay elsewhere."""
        names = {each.name for each in self._sessions.files(ref)}  # none in a database
        kept = {TRANSCRIPT_NAME: before.ids, KEY_VALUES_NAME: before.set_at}
        if gone := [name for name, held in kept.items() if held and names and name not in names]:
            raise DamagedFile(f"{gone[0]} is gone, {_LOST}")
        if before.has_lost(content):
            raise DamagedFile(f"the end of its transcript is gone, {_LOST}")

    async def take(self, machine: str, given: SessionLine, known: union.PlaceState, *, saves: bool) -> bool | None:
        """Unite a session with what another machine knows of it; return whether it is new or has changed.

        None if it is damaged here, or an entry is in a file that has not arrived yet. With `saves`, the state is saved
        at once: an entry that the user takes back before the next sync is then known to have existed.
        """
        if is_new := not await self.memory.is_taken(given.id):
            if await self._transcript_of(machine, given, given.entries) is None:
                return None
            self.state.sessions.pop(given.id, None)  # of a folder that was lost
            await SessionCatalog(self.storage.backend).make(parse_record(given.session))
        async with self._turn_lock(given.id):
            try:
                is_changed = await self._take_parts(machine, given, saves=saves)
            except DamagedFile as error:
                self._set_aside(f"session {given.id}", error)
                return None
            state = self.state.sessions[given.id]
            if is_changed is not None and state.digest == given.digest:  # the place has it as it is here
                known.sessions[given.id] = given.digest
                known.new(state.files, given.id)
        return None if is_changed is None else is_new or is_changed

    async def _take_parts(self, machine: str, given: SessionLine, *, saves: bool) -> bool | None:
        """Unite each part of a session; return whether it changed, or None, and unite none, if an entry is missing."""
        session_id, ref = given.id, self._sessions.ref(given.id)
        await self._note(await self._record(session_id))
        state = self.state.sessions[session_id]
        before = state.digest
        state.cut = list(dict.fromkeys([*state.cut, *given.cut]))
        ours = union.with_ids(await self.storage.store.transcript_read_all(ref))
        if (theirs := await self._transcript_of(machine, given, {**dict(ours), **given.entries})) is None:
            return None
        for name, data in given.files.items():
            await asyncio.to_thread(self._blobs(session_id).put, data, suffix_of(name))
        await self._unite_receipts(session_id, given.receipts)
        await self._take_values(ref, given)  # before a fork is made, which is as private as its session
        await self._take_record(session_id, given)
        await self._unite_transcript(session_id, ours, theirs)
        if saves:
            await self._note(await self._record(session_id), is_merged=True)
            await self.storage.save(self.state)
        said = await self.storage.store.transcript_read_all(ref)
        await asyncio.to_thread(self._drop_files, session_id, said)
        await self._note(await self._record(session_id), is_merged=True)
        return self.state.sessions[session_id].digest != before

    async def _take_record(self, session_id: str, given: SessionLine) -> None:
        """Set each field of a session, such as title or project, that was changed later elsewhere."""
        state, theirs = self.state.sessions[session_id], given.session
        here = union.portable(await self._record(session_id))

        def is_later(name: str) -> bool:
            ours = (state.times.get(name, ""), here.get(name) or "")  # of equal times, what is set wins
            return union.is_newer((given.times.get(name, ""), theirs.get(name) or ""), ours)

        later = [*filter(is_later, {*here, *theirs} - {"store_types", "used_at"})]

        def change(record: SessionRecord) -> SessionRecord:
            kept = {name: value for name, value in record.as_json().items() if name not in later}
            return parse_record(kept | {name: theirs[name] for name in later if name in theirs})

        shared = [each for each in ("sensitivity", "project") if each in later and here.get(each) != theirs.get(each)]
        with suppress(SessionError):  # it has expired
            for name in shared:  # these hold for what was remembered here meanwhile, too
                own = self.memory.cleared_for(namespace=here.get("namespace", ""))
                session, value = await own.load_session(session_id, any_agent=True), theirs.get(name)
                await (session.move(value or "") if name == "project" else session.mark(value or "public"))
                self.has_marked = True
        if any(here.get(name) != theirs.get(name) for name in later):
            changed = await asyncio.to_thread(self._sessions.change, session_id, change)
            state.record = union.digests_of(changed)
        state.times |= {name: given.times[name] for name in later if name in given.times}

    async def _transcript_of(self, machine: str, given: SessionLine, known: union.Entries) -> union.Transcript | None:
        """Return another machine's transcript, complete; None if an entry is in a file that has not arrived yet."""
        cut = {*given.cut, *self.state.sessions.get(given.id, union.SessionState()).cut}
        left = [each for each in given.ids if each not in cut]
        if any(each not in known for each in left):
            known = {**known, **await asyncio.to_thread(self.earlier, machine, given.id)}
        return None if any(each not in known for each in left) else union.with_ids(known[each] for each in left)

    async def _record(self, session_id: str) -> SessionRecord:
        return await asyncio.to_thread(self._sessions.get, session_id)

    async def _unite_transcript(self, session_id: str, ours: union.Transcript, theirs: union.Transcript) -> None:
        """Give a session the transcript of both sides; if both have continued it, one continuation becomes a fork."""
        cut = {*self.state.sessions[session_id].cut}
        left = ([each for each in said if each[0] not in cut] for said in (ours, theirs))
        whole, fork = union.unite(session_id, *left)
        if fork is not None and not await self.is_gone(fork[0]):
            await self._fork(session_id, *fork)
        if whole != ours:
            await self._replace(session_id, ours, whole)

    async def _fork(self, session_id: str, fork_id: str, said: union.Transcript) -> None:
        parent = await self._record(session_id)
        first = said[0][1]
        title = f"{parent.title or first.content[:60]} (continued on another machine)"
        if not await self.memory.is_taken(fork_id):
            record = replace(parent, id=fork_id, parent=session_id, created_at=first.at, used_at=first.at, history="")
            record = replace(record, origin="", pinned_at=None, archived_at=None)
            await SessionCatalog(self.storage.backend).make(record.renamed(title))
            shared = _shared(await self.storage.store.kv_entries(self._sessions.ref(session_id)))
            if CHOICES in shared:  # where memory is off, it stays so
                text, at = shared[CHOICES]
                await self.storage.store.kv_set(self._sessions.ref(fork_id), KeyValue(CHOICES, text, parse_time(at)))
            self.report.forks.append(fork_id)
        async with self._turn_lock(fork_id):
            await self._note(await self._record(fork_id))
            await self._copy_files(session_id, fork_id, said)
            receipts = await asyncio.to_thread(self._receipts(session_id).all)
            await self._unite_receipts(fork_id, [each for each in receipts if each.get("kind") == NOT_KEPT])
            ours = union.with_ids(await self.storage.store.transcript_read_all(self._sessions.ref(fork_id)))
            await self._unite_transcript(fork_id, ours, said)
            await self._note(await self._record(fork_id), is_merged=True)

    def _receipts(self, session_id: str) -> Lines:
        return self.storage.backend.place_of(self._sessions.ref(session_id)).lines(RECEIPTS)

    async def _unite_receipts(self, session_id: str, given: Iterable[dict[str, Any]]) -> None:
        await asyncio.to_thread(unite_lines, self._receipts(session_id), given, receipts=True)

    def _drop_files(self, session_id: str, said: list[TranscriptEntry]) -> None:
        """Erase the attachments that were erased on any side, unless a message names them."""
        blobs, cut = self._blobs(session_id), {*self.state.sessions[session_id].cut}
        for name in blobs.sizes():
            if name in cut and not any(name in entry.content for entry in said):
                blobs.drop(name)

    async def _copy_files(self, session_id: str, fork_id: str, said: union.Transcript) -> None:
        text, cut = "\n".join(entry.content for _, entry in said), self.state.sessions[fork_id].cut
        sizes = await asyncio.to_thread(self._blobs(session_id).sizes)
        names = [each for each in sizes if each in text and each not in cut]
        async for files in self._portions(session_id, names, set()):
            for name, data in files.items():
                await asyncio.to_thread(self._blobs(fork_id).put, data, suffix_of(name))

    async def _replace(self, session_id: str, ours: union.Transcript, whole: union.Transcript) -> None:
        """Replace a transcript. Removed entries are noted first, so that they do not count as removed by the user."""
        differs = next((at for at, (one, other) in enumerate(zip(ours, whole, strict=False)) if one != other), None)
        keep = min(len(ours), len(whole)) if differs is None else differs
        state, ref = self.state, self._sessions.ref(session_id)
        new = [entry for _, entry in whole[keep:]]
        if keep < len(ours):
            state.sessions[session_id].ids = [each for each, _ in ours[:keep]]
            await self.storage.save(self.state)
            await self.storage.store.transcript_drop_last(ref, len(ours) - keep, new)
        elif new:
            await self.storage.store.transcript_append(ref, new)
        if new:
            await asyncio.to_thread(self._sessions.note_used, session_id, new[-1].at)

    async def _take_values(self, ref: SessionRef, given: SessionLine) -> None:
        """Set the values that were set later elsewhere, and delete those that were deleted later."""
        state, store = self.state.sessions[ref.id], self.storage.store
        ours: dict[str, tuple[str, str | None]] = {key: (at, None) for key, at in state.dead.items()}
        entries = await store.kv_entries(ref)
        ours |= {key: (at, value) for key, (value, at) in _shared(entries).items()}
        choices = next((each.value for each in entries if each.key == CHOICES), None)
        later = {key: each for key, each in given.values.items() if union.is_newer(each[::-1], ours.get(key))}
        if dead := {key: at for key, (value, at) in later.items() if value is None}:
            state.dead |= dead
            state.set_at = {key: at for key, at in state.set_at.items() if key not in dead}
            await self.storage.save(self.state)
        for key, (value, at) in later.items():
            if value is not None:
                await store.kv_set(ref, KeyValue(key, _with_own(key, value, choices), parse_time(at)))
            elif key in ours:
                await store.kv_delete(ref, key)


def _shared(entries: Iterable[KeyValue]) -> dict[str, tuple[str, str]]:
    """Return the values of a session for other machines, with times: of choices, when memory was turned off or on."""
    found = {}
    for each in entries:
        chosen, at = Choices.parse(each.value if each.key == CHOICES else None), format_time(each.at)
        if each.key != CHOICES or chosen.memory_at or not chosen.memory:  # else a model was chosen, and no more
            at = chosen.memory_at or at
            found[each.key] = shared_value(each.key, each.value, at), at
    return found


def _with_own(key: str, shared: str, own: str | None) -> str:
    """Return a shared value, of choices with the `own` model and persona."""
    if key != CHOICES or own is None:
        return shared
    given = Choices.parse(shared)
    return replace(Choices.parse(own), memory=given.memory, memory_at=given.memory_at).as_text()


async def digest_of_storage(storage: Storage) -> str:
    """Return the digest of the storage, as `doctor`, `backup` and `restore` print it."""
    sessions = storage.backend.sessions
    said = [
        union.digested_session(each, await storage.content(sessions.ref(each.id))) for each in await storage.records()
    ]

    def rest() -> str:
        journal = storage.journal()
        rows = (log_union.digested_text(journal, each) for each in journal.touched())
        return union.digest_of_all([*said, *rows, *map(canonical, storage.backend.lines("usage").all())])

    return await asyncio.to_thread(rest)


def interrupted(storage: Storage) -> Iterator[Flaw]:
    """Report a restore, or a copy to this storage, that was interrupted, or that the state of syncs is damaged."""
    try:
        if key := union.SyncState.read(storage.document).restoring:
            yield Flaw("sessions", "bad", f"only a part of {key} was restored: repeat the command that was interrupted")
    except DamagedFile as error:
        yield Flaw("sync", "bad", str(error))


async def unreadable(storage: Storage, aside: Iterable[RefusedFile]) -> list[str]:
    """Return messages about parts set aside and damaged parts, which a copy lacks; without the names of folders."""
    lines = dict.fromkeys(("usage", "tombstones"), ("bill", record_of))
    found = await asyncio.to_thread(lambda: [*storage.backend.examine(Examination(subjects=lines))])
    found += [*await storage.observations.examine(), *await asyncio.to_thread(lambda: [*interrupted(storage)])]
    wrong = [each for each in found if each.state == "bad" and each.subject in {"sessions", "memory", "bill"}]
    messages = [*(f"{each.file}: {each.why}" for each in aside), *(each.message for each in wrong)]
    return [without_folders(each).encode(errors="replace").decode() for each in messages]  # a name need not be UTF-8


def unite_lines(lines: Lines, new: Iterable[Mapping[str, Any]], *, receipts: bool = False) -> int:
    """Add new records, by time; return how many. Of two versions of a receipt, an undone one wins, then the shorter."""
    with lines.alone() as writer:
        ours = lines.all()

        def key(record: Mapping[str, Any]) -> str:
            names = ("turn", "at", "kind", "remembered")  # imported exchanges may have the same time
            return canonical({name: record.get(name) for name in names} if receipts else record)

        found = {key(each): each for each in ours}
        known = len(found)
        for record in map(dict, new):
            versions = (record, found.get(key(record), record))
            found[key(record)] = min(
                versions, key=lambda each: (not each.get("taken_back"), len(text := canonical(each)), text)
            )
        ordered = sorted(found.values(), key=lambda each: str(each.get("at", "")))
        if ordered == ours:
            return 0
        writer.append([*found.values()][len(ours) :])
        left = iter(ordered)
        writer.rewrite(lambda _: next(left, None))  # line by line in the new order, each once
        return len(found) - known
