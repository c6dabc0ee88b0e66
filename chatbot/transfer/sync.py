"""Sync of an identity with a place: a folder that other machines reach, another server, or one file, its backup.

Each machine adds files of its own to the place and reads those of the others:

    chatbot-sync.json                        format, version, and which identity this is
    <machine>/<number>-<digest>.gz           new data of a machine: JSON lines; the digest is the SHA-256, shortened
    key.age                                  if the files are encrypted: their key, sealed by a passphrase
    backup.json                              of a backup: when it was made, and its digest

A file is read again until it has been taken in completely, and taking it in twice changes nothing: after a kill at any
point the next sync continues. The place is not trusted: `chatbot.transfer.untrusted` checks its files. docs/sync.md has
the rules by which two copies become one.
"""

import asyncio
import json
import secrets
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import chain, islice

import msgspec

from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.memory.erasure import erase_alone
from chatbot.memory.turn_order import TurnOrder
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.errors import MISFITS, DamagedFile, LaterFormat, ReadOnlyFolder, UnknownObservation
from chatbot.stores.loops import run_apart
from chatbot.stores.observations import log_union
from chatbot.stores.query import Progress
from chatbot.stores.records import ID, canonical, chunks, format_time
from chatbot.transfer import sync_place, union, untrusted
from chatbot.transfer.sync_storage import LONGEST_WAIT_S, SessionUnion, Storage, unite_lines

_PART_BYTES = 512 << 10
"""Bytes after which a new file of a place is begun."""
_AT_ONCE = 500
_WRONG = (OSError, zlib.error, *MISFITS)
"""Errors of a damaged or forged file."""
_MOST_SAVED = 50
"""Maximum sessions in a sync to note each at once; more are noted together at the end."""


@dataclass
class Sync:
    """One sync of an identity with one place. `memory`, opened by the caller, erases what other machines have erased.

    Without `takes` it only gives, without `gives` it only takes. A backup (`is_own`) also has the data that only this
    machine needs. The place of a backup or a dry run is not remembered.
    """

    memory: MemorySystem
    storage: Storage
    place: sync_place.SyncPlace
    _: KW_ONLY
    now: Callable[[], datetime]
    takes: bool = True
    gives: bool = True
    is_own: bool = False
    dry_run: bool = False
    for_dry_run: bool = False
    """True if it answers the dry run of a visitor."""
    progress: Progress | None = None
    texts: list[str] = field(default_factory=list, init=False)
    """Texts of everything given, for a digest; the digest is that of the whole identity if the place was empty."""
    _is_waiting: bool = field(default=False, init=False)
    """True if a file needs another one that has not arrived: it is read again next time."""

    def __post_init__(self) -> None:
        self.report = sync_place.SyncReport(self.place.key, self.dry_run)
        self._forgets_place = self.dry_run or self.is_own or self.for_dry_run
        self._advance: Progress = self.progress or (lambda *_: None)

    async def run(self) -> sync_place.SyncReport:
        """Take in the files of others, and put new ones there. Raises `ConfigError` for another identity."""
        lease = self.storage.backend.lease("sync")
        async with TurnOrder(lease, work="syncing this identity", longest_wait_s=LONGEST_WAIT_S):
            await self._run()
        return self.report

    async def _run(self) -> None:
        self.state = await asyncio.to_thread(union.SyncState.read, self.storage.document)
        self.known = deepcopy(self.state.places.get(self.place.key, union.PlaceState()))
        """Changed during the sync; saved only once the place has the content that it lists."""
        names = await run_apart(self._arrive)
        await run_apart(self._check_identity, names)
        names = await run_apart(self._find_own, names)
        self._sessions = SessionUnion(
            self.memory, self.storage, self.state, self.report, now=self.now, earlier=self._earlier
        )
        batch = await asyncio.to_thread(self._read, names) if self.takes else untrusted.Delivery()
        if self.is_own and self.takes:
            await asyncio.to_thread(self._check_backup, batch)
            self.state.restoring = self.place.key
            await self.storage.save(self.state)
        if self.dry_run:
            self.report.taken["sessions"] = len({*chain(*batch.sessions.values())})
        else:
            await self._erase(batch)
        await asyncio.to_thread(self._sessions.note_deleted)
        journal, rows = await asyncio.to_thread(self._unite_log, batch)
        if not self.dry_run:
            await self._take_sessions(batch)
            await asyncio.to_thread(self._take_lines, batch)
        if self._sessions.has_marked:
            journal, marked = await asyncio.to_thread(self._unite_log, untrusted.Delivery())
            rows += marked
        self.known.digests |= batch.digests
        if not self._is_waiting:
            self.known.taken = {*(self.known.taken if self.place.keeps or not batch.names else ()), *batch.names}
        if self.gives:
            stale, left = await asyncio.to_thread(self._drop_erased, journal)
            await self._give(self._records(journal, rows, left), stale)
        if self.takes and self.is_own:
            self.state.restoring = ""
        if not self._forgets_place:
            self.known.at = format_time(self.now())
            self.state.places[self.place.key] = self.known
        if not (self.dry_run or self.for_dry_run):  # a backup, too: it notes what has existed
            await asyncio.to_thread(self._save)

    def _save(self) -> None:
        """Keep the state. A backup can also be made of a storage that cannot be written."""
        with suppress(*([ReadOnlyFolder] if self.is_own and not self.takes else [])):
            self.state.save(self.storage.document)

    async def is_outdated(self) -> bool:
        """Return whether something that was given has been erased meanwhile."""

        def is_rewritten() -> bool:
            self.storage.log.start_again()
            return self._read_to.size > 0 and not self.storage.log.resume(self._read_to)

        return await asyncio.to_thread(is_rewritten) or await self._sessions.has_lost()

    def _arrive(self) -> list[str]:
        """Introduce this machine to the place, and return the names of the files there."""
        taken = sorted(self.known.taken)
        self.place.meet(sync_place.Visitor(self.state.identity, self.state.machine, taken, dry_run=self.dry_run))
        return self.place.names()

    def _check_identity(self, names: Sequence[str]) -> None:
        """Check that the place is of this identity. A new identity becomes that of the place; a new place gets ours."""
        state, found = self.state, ""
        if sync_place.NAME in names:
            try:
                head = msgspec.json.decode(self.place.read(sync_place.NAME), type=sync_place.PlaceHead)
            except (OSError, ValueError, RecursionError) as error:
                raise DamagedFile(f"{sync_place.NAME} of {self.place.key} cannot be read: {error}") from error
            found = head.identity
            if head.version > untrusted.VERSION:
                raise LaterFormat(f"{self.place.key} was written by a later release: upgrade chatbot to sync")
        is_new = not (state.places or self.storage.backend.sessions.ids() or self.storage.journal().lines)
        if found and found != state.identity and not is_new:
            advice = "sync to a folder of its own, or begin with a new, empty identity"
            if self.is_own:
                advice = "choose an empty target, with `chatbot restore --as NAME` or `chatbot storage copy -i NAME`"
            raise ConfigError(
                f"{self.place.key} holds another identity, which was never synced with this one: nothing was changed; "
                + advice
            )
        state.identity = found or state.identity or secrets.token_hex(16)
        if self.dry_run or (self.is_own and self.takes):  # a backup may turn out to be wrong
            return
        self._save()
        self.report.is_new = not found
        if not found and self.gives:
            self.place.write(sync_place.NAME, msgspec.json.encode(sync_place.PlaceHead(state.identity)))

    def _check_backup(self, batch: untrusted.Delivery) -> None:
        """Raise `DamagedFile` if a backup is invalid, and `ConfigError` if it lacks something that is here."""
        for each in self.report.aside:
            raise DamagedFile(f"{self.place.key}: {each.file} is invalid: {each.why}. Nothing was written")
        rows, sessions = self.storage.journal().touched(), self.storage.backend.sessions.ids()
        if {*rows} - batch.rows.parts.keys() or {*sessions} - {*chain(*batch.sessions.values())}:
            raise ConfigError(f"the target has data that {self.place.key} lacks: nothing was written. Use an empty one")

    def _find_own(self, names: list[str]) -> list[str]:
        """Find our files among these names; if one is lost, everything is given again. Return the names to read.

        A file under our name that we do not know was written by a copy of this storage, or by a killed sync. In a
        folder it is read like those of others. On a server it means that we are a copy, so we take a new name.
        """
        state = self.state
        self._ours = {name for name in names if name.startswith(f"{state.machine}/") or name in self.known.own}
        self._former = {name for name in names if name.partition("/")[0] in state.former}
        if self.dry_run or not self.gives:
            return names
        if self.takes and self._ours:
            kinds = ("/",) if self.place.keeps else ("http://", "https://")
            same = [key for key, each in state.places.items() if key.startswith(kinds) and each.own >= self._ours]
            if len(same) == 1 and not self.known.own:  # a folder or server that got another path or address
                state.places[self.place.key] = state.places.pop(same[0])
                self.known = deepcopy(state.places[self.place.key])
                names = self._arrive()
            elif not same and not self.place.keeps:
                state.former.append(state.machine)  # become another machine, whose files no place has yet
                state.machine, self.known, self._ours = secrets.token_hex(6), union.PlaceState(), set()
                state.places = {key: union.PlaceState(own=each.own, at=each.at) for key, each in state.places.items()}
                return self._arrive()
        own = self.known.own
        lost = self._ours - own if self._ours and not self.place.keeps else own - self._ours
        if lost:  # in a folder, files that are gone; on a server, files that it took in and that we do not know
            self.known = union.PlaceState(taken=self.known.taken, own=own & self._ours)
        return names

    def _read(self, names: Sequence[str]) -> untrusted.Delivery:
        """Parse the files that were not taken in yet; a wrong one is reported, and left there."""
        batch = untrusted.Delivery()
        known = self.known.taken | (self.known.own if self.place.keeps else self._ours)
        waiting = [each for each in names if each.endswith(".gz") and each not in known]
        for done, name in enumerate(waiting, 1):
            part = untrusted.Delivery([name])
            try:
                for line in self._lines(name):
                    part.take(line, is_own=self.is_own)
            except FileNotFoundError:
                continue  # its machine has replaced it by another file
            except ConfigError:
                raise
            except _WRONG as error:
                self.report.aside.append(sync_place.RefusedFile(name, str(error) or type(error).__name__))
                continue
            batch.join(part)
            self._advance(done, len(waiting))
        return batch

    def _lines(self, name: str) -> Iterator[untrusted.Line]:
        if (data := self.place.read(name)).startswith(b"age-encryption.org/"):
            why = f"{self.place.key} is encrypted, and lacks {sync_place.KEY}: put it back, or pass --passphrase"
            raise ConfigError(f"{why} on a machine that knows the key. Nothing was sent")
        return untrusted.unpack(name, data, self.state.identity)

    async def _erase(self, batch: untrusted.Delivery) -> None:
        """Erase what was erased elsewhere: rows, with caches and receipts that quote them, sessions and facts."""
        state = self.state
        fresh = batch.erased - state.erased
        if self.takes:  # and what a sync that was killed had still to erase
            sessions = await asyncio.to_thread(self.storage.backend.sessions.ids)
            fresh |= state.erased & {*state.facts, *sessions}
        if not batch.rows.erased and not fresh:
            return
        journal = await asyncio.to_thread(self.storage.journal)
        facts = journal.facts() & fresh
        there = [*filter(journal.has, batch.rows.erased)]
        alone = [each for each in there if batch.rows.erased[each]]
        whole = [each for each in there if not batch.rows.erased[each]] + [*facts]
        memories = self.memory.memory().everywhere()
        for some in chunks(whole, _AT_ONCE):
            with suppress(UnknownObservation):
                await memories.purge(*some)
        if alone:
            view = View("full", self.now(), frozenset(SENSITIVITIES), namespaces=None, erasing=True)
            with suppress(UnknownObservation):
                await erase_alone(memories.scope, view, alone, "synced")
        self.report.taken["sessions"] += await self._sessions.delete(fresh - facts)
        state.erased |= fresh  # after a kill before this, the file is read again
        await self.storage.save(state)
        self.report.taken["erased"] = len(whole) + len(alone)

    def _note_purged(self, journal: log_union.Journal) -> set[str]:
        """Note the facts that were purged since the last sync; return those that are only missing."""
        missing = self.state.facts - journal.facts() - self.state.erased
        lost = {each for each in missing if not self._sessions.is_deleted(each)}
        self.state.erased |= missing - lost
        return lost

    def _unite_log(self, batch: untrusted.Delivery) -> tuple[log_union.Journal, list[str]]:
        """Add the events of others to the log; return the log as it was, and the rows that are new to the place."""
        log, writes = self.storage.log, self.takes and not self.dry_run
        with log.locked() if writes else nullcontext() as writing:
            journal = after = self.storage.journal()
            self._read_to = log.mark()
            rows = journal.touched(self.known.digests) if self.gives else []
            lost = self._note_purged(journal)
            for each in self.state.erased & batch.rows.parts.keys():
                del batch.rows.parts[each]
            made = log_union.changes_to_unite(
                journal, batch.rows, also=rows if writes else (), now=self.now(), tightens=not self.is_own
            )
            if writing:
                after = made.write(writing, journal)
                writing.release()
                writing.sync()
        self._is_waiting |= made.is_waiting
        self.report.taken["memories"] += made.taken
        self.known.digests |= after.digests() - (set() if self.gives else journal.digests())
        self.state.facts, there = after.facts() | lost, after.added()
        if lost or there < self.state.rows:
            why = "put the journal back from a backup, or begin with a new, empty identity"
            self.report.set_aside("memories", f"some are missing, though none was purged: {why}")
        self.state.rows = max(self.state.rows, there)
        return journal, rows

    async def _take_sessions(self, batch: untrusted.Delivery) -> None:
        done, total = 0, len([*chain(*batch.sessions.values())])
        for name in batch.sessions:
            try:
                sessions = await asyncio.to_thread(self._sessions_in, name)
            except _WRONG:
                self._is_waiting = True  # it was whole a moment ago
                continue
            for given in sessions:
                if not await self._sessions.is_gone(given.id):
                    machine, saves = name.partition("/")[0], total <= _MOST_SAVED
                    is_changed = await self._sessions.take(machine, given, self.known, saves=saves)
                    self._is_waiting |= is_changed is None
                    self.report.taken["sessions"] += bool(is_changed)
                done += 1
                self._advance(done, total)
        if total:
            await asyncio.to_thread(self.storage.backend.sessions.reorder)

    def _take_lines(self, batch: untrusted.Delivery) -> None:
        for name, records in batch.lines.items():
            added = unite_lines(self.storage.backend.lines(name), records)
            self.report.taken["calls"] += added if name == untrusted.BILL else 0
        for name, data in batch.documents.items():
            self.storage.backend.document(name).change(partial(lambda new, before: before or new, data))

    def _earlier(self, machine: str, session_id: str) -> union.Entries:
        """Return all entries of a session that the files of a machine hold."""
        found: union.Entries = {}
        for name in self.place.names():
            if name.startswith(f"{machine}/"):
                with suppress(*_WRONG):
                    for each in self._sessions_in(name):
                        found |= each.entries if each.id == session_id else {}
        return found

    def _sessions_in(self, name: str) -> list[untrusted.SessionLine]:
        lines = (line for line in self._lines(name) if isinstance(line, untrusted.SessionLine))
        return [line.checked(is_own=self.is_own) for line in lines]

    def _drop_erased(self, journal: log_union.Journal) -> tuple[list[str], list[untrusted.Line]]:
        """Return our files with erased lines, to give their sessions again, and the other lines to keep of them."""
        names, left = list[str](), list[untrusted.Line]()
        if self.dry_run or not self.place.keeps:
            return names, left
        cut = chain.from_iterable(each.cut for each in self.state.sessions.values())
        gone = {*self.known.new([*journal.erased, *self.state.erased, *cut], "cleared ")}
        ours = sorted(self._ours | (self._former & self.known.taken)) if gone else ()
        for name in ours:  # every line of such a session may quote what is gone in its title and values
            with suppress(*_WRONG):
                sessions = (line for line in self._lines(name) if isinstance(line, untrusted.SessionLine))
                gone |= {line.id for line in sessions if not gone.isdisjoint([*line.ids, *_ids_in(line)])}
        for name in ours:
            try:
                lines = [*self._lines(name)]
            except _WRONG:
                continue  # damaged: nobody can read it
            kept = [line for line in lines if gone.isdisjoint(_ids_in(line))]
            if len(kept) == len(lines):
                continue
            names.append(name)
            left += [line for line in kept if not isinstance(line, untrusted.SessionLine)]
            for line in lines:
                if isinstance(line, untrusted.SessionLine):
                    self.known.sessions.pop(line.id, None)
                    parts = (*line.entries, *line.files, *map(canonical, line.receipts))
                    self.known.digests -= {log_union.digest_of(line.id + each) for each in parts}
        return names, left

    async def _records(
        self, journal: log_union.Journal, rows: Sequence[str], left: Sequence[untrusted.Line]
    ) -> AsyncIterator[untrusted.Line]:
        """Yield the lines that are left of dropped files, then the lines that the place lacks."""
        for each in left:
            yield each
        found = self._rows(journal, rows)
        while some := await asyncio.to_thread(lambda: [*islice(found, _AT_ONCE)]):
            for each in some:
                yield each
        erased = self.known.new([*journal.erased, *self.state.erased], "erased ")
        self.report.given["erased"] = len(erased)
        for alone in (True, False, None):
            if ids := [each for each in erased if journal.erased.get(each) is alone]:
                yield untrusted.ErasedLine(ids, alone)
        sessions: dict[str, str] = {}
        changed = self._sessions.changed(self.known, is_own=self.is_own, progress=self._advance)
        async for record, content, given in changed:
            sessions[record.id] = union.digested_session(record, content)  # the last of several lines applies
            yield given
        self.report.given["sessions"] = len(sessions)
        self.texts += sessions.values()
        for each in await asyncio.to_thread(self._others):
            yield each

    def _others(self) -> list[untrusted.Line]:
        """Return the lines that the place lacks: of the bill, and those that only a backup holds."""
        records: list[untrusted.Line] = []
        for name in (untrusted.BILL, *(untrusted.OWN_LINES if self.is_own else ())):
            kept = self.storage.backend.lines(name).all()
            if name == untrusted.BILL:
                kept = sync_place.acceptable(kept, untrusted.check_call, f"{untrusted.BILL}.jsonl", self.report.aside)
            new = [json.loads(each) for each in self.known.new(map(canonical, kept))]
            records += [untrusted.RecordsLine(name, [*some]) for some in chunks(new, _AT_ONCE)]
            if name == untrusted.BILL:
                self.report.given["calls"] = len(new)
                self.texts += map(canonical, new)
        for name in untrusted.OWN_DOCUMENTS if self.is_own else ():
            if data := self.storage.backend.document(name).read():
                records.append(untrusted.DocumentLine(name, data))
        return records

    def _rows(self, journal: log_union.Journal, rows: Sequence[str]) -> Iterator[untrusted.RowLine]:
        """Yield the parts and counts of rows and facts that the place lacks."""
        for done, row_id in enumerate(rows, 1):
            new, counts = journal.new_to(self.known.digests, row_id)
            if new or counts is not None:
                self.report.given["memories"] += bool(new)
                yield untrusted.RowLine(row_id, [part.as_json() for part in new], counts)
            if self.is_own:
                self.texts.append(log_union.digested_text(journal, row_id))
            if not done % _AT_ONCE:
                self._advance(done, len(rows))

    async def _give(self, records: AsyncIterator[untrusted.Line], stale: Sequence[str]) -> None:
        """Write lines to new files, then drop stale ones. The state is saved first: later erasures must be noticed."""
        state, ours = self.state, self._ours
        files: set[str] = set()

        async def put(lines: list[str]) -> None:
            data = await asyncio.to_thread(untrusted.pack, untrusted.FileHead(state.identity, state.machine), lines)
            number = len(ours) + len(files) + 1
            name = f"{state.machine}/{number:06}-{sha256(data).hexdigest()[:32]}.gz"
            if not self.place.keeps:  # noted first: an interrupted sync must not leave an unknown file
                state.places.setdefault(self.place.key, union.PlaceState()).own.add(name)
            if not self._forgets_place and not (files and self.place.keeps):
                await self.storage.save(state)
            files.add(name)
            await run_apart(self.place.write, name, data)

        lines, size = list[str](), 0
        async for record in records:
            if self.dry_run:
                continue
            lines.append(json.dumps(msgspec.to_builtins(record), ensure_ascii=False))
            size += len(lines[-1])
            if size > _PART_BYTES:
                await put(lines)
                lines, size = [], 0
        if lines:
            await put(lines)
        for name in stale:
            await asyncio.to_thread(self.place.drop, name)
        there = ours & (self.known.own | self.known.taken) - {*stale}  # without unreadable files
        self.known.own = {*(there if self.place.keeps or not files else ()), *files}


def _ids_in(line: untrusted.Line) -> set[str]:
    """Return the ids of the rows, facts, sessions, entries and attachments that a line holds or refers to."""
    if isinstance(line, untrusted.RowLine):
        return {line.id, *(part["triple"].get("source", "") for part in line.parts if "triple" in part)}
    if isinstance(line, untrusted.SessionLine):
        return {line.id, *line.entries, *line.files, *ID.findall(json.dumps(line.receipts))}
    return set()


async def sync(
    memory: MemorySystem,
    place: sync_place.SyncPlace,
    *,
    now: Callable[[], datetime],
    dry_run: bool = False,
    progress: Progress | None = None,
) -> sync_place.SyncReport:
    """Make an identity and a place the union of both. Raises `ConfigError` if the place holds another identity."""
    async with Storage.opened(memory.where) as storage:
        return await Sync(memory, storage, place, now=now, dry_run=dry_run, progress=progress).run()


async def exchange(
    memory: MemorySystem, visitor: sync_place.Visitor, files: dict[str, bytes], *, now: Callable[[], datetime]
) -> sync_place.ServerAnswer:
    """Take in the files of another machine; without any, return the files that are new to it. Raises like `sync`."""
    async with Storage.opened(memory.where) as storage:
        place, takes = sync_place.ParcelPlace(visitor, files), bool(files) and not visitor.dry_run
        done = Sync(memory, storage, place, now=now, takes=takes, gives=not files, for_dry_run=visitor.dry_run)
        report = await done.run()
        new = {name: data for name, data in place.new.items() if name != sync_place.NAME}
        aside = [each for each in report.aside if each.file in files]
        return sync_place.ServerAnswer(done.state.identity, new, sorted(done.known.taken), aside)
