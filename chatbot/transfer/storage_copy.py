"""Everything that is kept of an identity as one stream of records: copied to another storage, or kept in one file.

    {"k": "document", "name", "data"}           a small file, in base64
    {"k": "session", "record", "entries", …}    a session with its values and receipts
    {"k": "file", "session", "name", "data"}    an attachment of the session before
    {"k": "lines", "name", "v"}                 records of the bill and the like, in order
    {"k": "event", "v"}                         an event of memory, in the order of the journal

A copy that was broken off goes on where it was, and a second one copies nothing. Nothing is ever deleted, and a target
that says something else is refused. Leases, tokens, reservations, caches and keys of providers are not part of it.

A backup is that stream as compressed JSON lines, between a line that says what it is and one with its SHA-256. It is
checked to its end before anything is written, and restored as a copy: the same digest tells that it is the same.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, cast

from chatbot.errors import ConfigError
from chatbot.memory.scope import CHOICES
from chatbot.memory.session_catalog import RECEIPTS
from chatbot.stores.backend import ATTACHMENTS, Backend
from chatbot.stores.backends import open_backend
from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import DamagedFile, LaterFormat, MissingFolder, StoreBusy
from chatbot.stores.home import Home
from chatbot.stores.json_lines import encode
from chatbot.stores.log import Log, Mark
from chatbot.stores.observations.log import event_of
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.plugins import open_store
from chatbot.stores.records import KeyValue, SessionRecord, TranscriptEntry, format_time, parse_record, parse_time
from chatbot.stores.row_events import Event, parse_event
from chatbot.transfer.union import Journal, canonical, portable, relabelled, said_of, with_ids

SESSIONS, OBSERVATIONS = "basic_session", "observations"
STATE = "sync.json"
"""The document that says which identity and machine this is; see `chatbot.transfer.sync`."""
_LINES = ("usage", "tombstones", "hook_failures")
_DOCUMENTS = ("tombstones.key", "maintenance.json", STATE)
_AT_A_TIME = 500
_VERSION = 1
_ATTEMPTS = 5
_LONGEST_LINE = 1 << 30

Record = dict[str, Any]
Progress = Callable[[int, int], None]
"""Told how many sessions, and then memories, are done, and how many there are."""


class _SessionStore(KeyValueStore, TranscriptStore):
    """The contracts that ours keep in every storage."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Everything that is kept of an identity, open."""

    backend: Backend
    store: _SessionStore
    observations: LoggedObservations
    log: Log

    @classmethod
    async def opened(cls, home: Home, stack: AsyncExitStack) -> Storage:
        """Open a storage until the stack ends."""
        backend = open_backend(home)
        stack.callback(backend.close)
        store = cast("_SessionStore", await stack.enter_async_context(open_store(SESSIONS, home, {})))
        observations = cast("LoggedObservations", open_store(OBSERVATIONS, home, {}))
        await stack.enter_async_context(observations)
        log = observations.open_log(home)
        stack.callback(log.close)
        return cls(backend, store, observations, log)

    def events(self) -> list[Event]:
        """Return the events of the journal; what no reader understands is left out."""
        self.log.start_again()
        found = (event_of(line, self.log.name) for _, line in self.log.read_new())
        return [event for event in found if event is not None]


async def records_of(storage: Storage, progress: Progress | None = None) -> AsyncIterator[Record]:
    """Yield everything, memories last: what a session names is then among them."""
    tell = progress or (lambda *_: None)
    backend = storage.backend
    for name in _DOCUMENTS:
        data = await asyncio.to_thread(backend.document(name).read)
        if data is not None:
            data = copied_state(data) if name == STATE else data
            yield {"k": "document", "name": name, "data": base64.b64encode(data).decode()}
    records = (await asyncio.to_thread(backend.sessions.find, lambda _: True))[::-1]
    for done, record in enumerate(records, 1):
        ref = backend.sessions.ref(record.id)
        place = backend.place_of(ref)
        entries = [
            [each.role, each.content, format_time(each.at)] for each in await storage.store.transcript_read_all(ref)
        ]
        values = [[each.key, each.value, format_time(each.at)] for each in await storage.store.kv_entries(ref)]
        receipts = await asyncio.to_thread(place.lines(RECEIPTS).all)
        names = [*await asyncio.to_thread(place.blobs(ATTACHMENTS).sizes)]
        said = {"entries": entries, "values": values, "receipts": receipts, "files": names}
        yield {"k": "session", "record": record.as_json(), **said}
        for name in names:
            data = await asyncio.to_thread(place.blobs(ATTACHMENTS).read, name)
            yield {"k": "file", "session": record.id, "name": name, "data": base64.b64encode(data or b"").decode()}
        tell(done, len(records))
    for name in _LINES:
        kept = await asyncio.to_thread(backend.lines(name).all)
        for begin in range(0, len(kept), _AT_A_TIME):
            yield {"k": "lines", "name": name, "v": kept[begin : begin + _AT_A_TIME]}
    events = await asyncio.to_thread(storage.events)
    for done, event in enumerate(events, 1):
        yield {"k": "event", "v": event.as_json()}
        if not done % _AT_A_TIME or done == len(events):
            tell(done, len(events))


class StreamDigest:
    """Digest of all that travels of an identity, in no order: the same on machines that are in sync."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._events: list[bytes] = []

    def take(self, record: Record) -> None:
        """Add a record of the stream."""
        if record["k"] == "event":
            self._events.append(encode(record["v"]))
        elif record["k"] == "lines" and record["name"] == "usage":
            self._said += map(canonical, record["v"])
        elif record["k"] == "session":
            entries = [each for each, _ in with_ids(_entries(record))]
            values = sorted(each for each in record["values"] if each[0] != CHOICES)
            receipts = sorted(map(canonical, record["receipts"]))
            about = portable(parse_record(record["record"]))
            self._said.append(canonical({"session": [about, entries, values, receipts, record["files"]]}))

    def value(self) -> str:
        """Return the digest of what was taken."""
        journal = Journal((((at, 0), line) for at, line in enumerate(self._events)), "")
        said = sorted([*self._said, *(said_of(journal, each) for each in journal.touched())])
        return sha256("\n".join(said).encode(errors="surrogatepass")).hexdigest()[:32]


async def digest_of_storage(storage: Storage) -> str:
    """Return the digest of what is kept, as `doctor`, `backup` and `restore` print it."""
    digest = StreamDigest()
    async for record in records_of(storage):
        if record["k"] != "file":
            digest.take(record)
    return await asyncio.to_thread(digest.value)


def copied_state(data: bytes) -> bytes:
    """Return the state of syncs for a copy of a storage, which is another machine."""
    said = json.loads(data)
    kept = {name: said[name] for name in ("identity", "sessions", "erased", "facts", "doing") if name in said}
    return json.dumps(kept | {"was": said.get("machine") or said.get("was", "")}).encode()


def _entries(record: Record) -> list[TranscriptEntry]:
    return [TranscriptEntry(role, content, parse_time(at)) for role, content, at in record["entries"]]


@dataclass(frozen=True, slots=True)
class CopyCounts:
    """Number of sessions, events of memory and other lines that were written, and that already existed."""

    sessions: int
    events: int
    lines: int
    unchanged: int
    digest: str
    """Digest of everything that travels: the same for both storages."""


@dataclass(slots=True)
class _Writer:
    """Writes a stream into a storage that is empty, or that holds the beginning of the same."""

    target: Storage
    sessions: int = 0
    events: int = 0
    lines: int = 0
    unchanged: int = 0
    _there: dict[str, list[Record]] = field(default_factory=dict)
    """The lines and events that the target has and the stream has not reached; events last first."""
    _waiting: list[Event] = field(default_factory=list)

    async def take(self, record: Record) -> None:
        """Write a record. Raises `ConfigError` where the target says something else."""
        match record["k"]:
            case "document" if record["name"] in _DOCUMENTS:
                data = base64.b64decode(record["data"])
                document = self.target.backend.document(record["name"])
                await asyncio.to_thread(document.change, lambda before: before or data)
            case "session":
                await self._session(record)
            case "file":
                sessions = self.target.backend.sessions
                blobs = self.target.backend.place_of(sessions.ref(record["session"])).blobs(ATTACHMENTS)
                await asyncio.to_thread(blobs.put, base64.b64decode(record["data"]), record["name"][32:])
            case "lines" if record["name"] in _LINES:
                await asyncio.to_thread(self._line, record["name"], record["v"])
            case "event":
                await asyncio.to_thread(self._event, record["v"])
            case other:
                raise DamagedFile(f"unknown record {other!r:.40}")

    async def close(self) -> None:
        """Write what waits, and put the sessions in order."""
        await asyncio.to_thread(self._flush)
        await asyncio.to_thread(self.target.backend.sessions.reorder)

    async def _session(self, record: Record) -> None:
        given = parse_record(record["record"])
        sessions, store = self.target.backend.sessions, self.target.store
        if given.id in await asyncio.to_thread(sessions.ids):
            await self._check_session(given, record)
            self.unchanged += 1
            return
        draft = await asyncio.to_thread(sessions.begin, given)
        try:
            if record["entries"]:
                await store.transcript_append(draft, _entries(record))
            for key, value, at in record["values"]:
                await store.kv_set(draft, KeyValue(key, value, parse_time(at)))
            place = self.target.backend.place_of(draft)
            await asyncio.to_thread(place.lines(RECEIPTS).append, record["receipts"])
            await asyncio.to_thread(sessions.publish, given)
        except BaseException:
            await asyncio.to_thread(sessions.abandon, given.id)
            raise
        self.sessions += 1

    async def _check_session(self, given: SessionRecord, record: Record) -> None:
        backend, store = self.target.backend, self.target.store
        ref = backend.sessions.ref(given.id)
        here = await asyncio.to_thread(backend.sessions.get, given.id)
        said = [[each.role, each.content, format_time(each.at)] for each in await store.transcript_read_all(ref)]
        if (portable(here), said) != (portable(given), record["entries"]):
            raise ConfigError(f"session {given.id} differs in the target: delete it there, then copy again")

    def _line(self, name: str, records: list[Record]) -> None:
        lines = self.target.backend.lines(name)
        there = self._there.setdefault(name, lines.all())
        self._check(there[: len(records)], records, name)
        new = records[len(there) :]
        self.unchanged += len(records) - len(new)
        self.lines += len(new)
        del there[: len(records)]
        lines.append(new)

    def _event(self, record: Record) -> None:
        if "event" not in self._there:
            self._there["event"] = [event.as_json() for event in self.target.events()][::-1]
        if there := self._there["event"]:
            self._check([there.pop()], [record], "memories")
            self.unchanged += 1
            return
        self._waiting.append(parse_event(record))
        if len(self._waiting) == _AT_A_TIME:
            self._flush()

    def _check(self, there: list[Record], given: list[Record], what: str) -> None:
        if there != given[: len(there)]:
            raise ConfigError(f"the target has other {what} than the source: copy into an empty one")

    def _flush(self) -> None:
        if self._there.get("event"):
            raise ConfigError("the target has other memories than the source: copy into an empty one")
        if not self._waiting:
            return
        with self.target.log.locked() as writing:
            writing.mend()
            for event in self._waiting:
                writing.append(event)
            writing.release()
            writing.sync()
        self.events += len(self._waiting)
        self._waiting.clear()


async def _written(records: AsyncIterator[Record], target: Storage) -> CopyCounts:
    """Write a stream, and compare what is there with what was given."""
    writer, digest = _Writer(target), StreamDigest()
    async for record in records:
        digest.take(record)
        await writer.take(record)
    await writer.close()
    said = await asyncio.to_thread(digest.value)
    if said != await digest_of_storage(target):
        raise ConfigError("the copy differs from its source: another process is writing to the source or the target")
    return CopyCounts(writer.sessions, writer.events, writer.lines, writer.unchanged, said)


async def copy_storage(source: Home, target: Home, progress: Progress | None = None) -> CopyCounts:
    """Copy everything that is kept of an identity. Raises `ConfigError` where the target says something else."""
    if isinstance(source, Path) and not source.is_dir():
        raise MissingFolder(f"folder not found: {source}")
    async with AsyncExitStack() as stack:
        one, other = await Storage.opened(source, stack), await Storage.opened(target, stack)
        return await _written(records_of(one, progress), other)


@dataclass(frozen=True, slots=True)
class Backup:
    """Head of a backup: the name and the settings of the identity, when it was made, and its digest."""

    name: str
    made_at: str
    settings: str
    digest: str


async def backup(
    home: Home, file: BinaryIO, *, name: str, settings: str, made_at: str, progress: Progress | None = None
) -> Backup:
    """Write everything that is kept of an identity into an open file, while others go on writing.

    Where something is erased meanwhile, it is done again, so the file holds nothing that was erased when it is done.
    """
    async with AsyncExitStack() as stack:
        storage = await Storage.opened(home, stack)
        await asyncio.to_thread(ensure_identity, storage.backend)
        for _ in range(_ATTEMPTS):
            file.seek(0)
            file.truncate()
            storage.log.start_again()
            begun = await asyncio.to_thread(lambda: ([*storage.log.read_new()], storage.log.mark())[1])
            head = {"format": "chatbot-backup", "version": _VERSION, "name": name, "made_at": made_at}
            try:
                digest = await _packed(records_of(storage, progress), file, head | {"settings": settings})
            except MissingFolder:
                continue  # a session was deleted
            if await asyncio.to_thread(_goes_on, storage.log, begun):
                return Backup(name, made_at, settings, digest)
    raise StoreBusy("memories are being erased all the time: try again later")


def relabel(log: Log, machine: str) -> None:
    """Note in a copy of a journal that what was counted so far was counted on that machine. Nothing else changes."""
    with log.locked() as writing:
        writing.mend()
        log.start_again()
        journal = Journal(log.read_new(), machine)
        made = relabelled(journal, journal.touched())
        if made.events:
            made.write(writing)
        writing.release()
        writing.sync()


async def _become_another(storage: Storage) -> None:
    """Make a restored storage a machine of its own, before it counts anything or takes anything back."""
    document = storage.backend.document(STATE)
    known = await asyncio.to_thread(document.read)
    said = json.loads(known or b"{}")
    if not said.get("was"):
        return
    await asyncio.to_thread(relabel, storage.log, said["was"])
    sessions = said.setdefault("sessions", {})
    for record in await asyncio.to_thread(storage.backend.sessions.find, lambda _: True):
        entries = await storage.store.transcript_read_all(storage.backend.sessions.ref(record.id))
        sessions.setdefault(record.id, {})["ids"] = [each for each, _ in with_ids(entries)]
    data = json.dumps(said | {"was": "", "machine": token_hex(6)}).encode()
    await asyncio.to_thread(document.change, lambda _: data)


def ensure_identity(backend: Backend) -> None:
    """Let a storage know which identity it is, so that its copies can be told from strangers."""
    said = json.dumps({"identity": token_hex(16), "machine": token_hex(6)}).encode()
    backend.document(STATE).change(lambda before: before or said)


def _goes_on(log: Log, begun: Mark) -> bool:
    return not begun.size or log.resume(begun)


async def _packed(records: AsyncIterator[Record], file: BinaryIO, head: Record) -> str:
    hashed, digest = sha256(), StreamDigest()
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:

        def put(record: Record) -> None:
            line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            hashed.update(line)
            packed.write(line)

        put(head)
        async for record in records:
            digest.take(record)
            await asyncio.to_thread(put, record)
        said = await asyncio.to_thread(digest.value)
        put({"k": "end", "digest": said, "sha256": hashed.hexdigest()})
    return said


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a backup. Raises `DamagedFile`."""
    try:
        with gzip.open(path, "rb") as packed:
            while line := packed.readline(_LONGEST_LINE):
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedFile(f"{path} cannot be read to its end: {error}") from error


def verified(path: Path) -> Backup:
    """Check a backup to its end, and return what it is of. Raises `DamagedFile` or `LaterFormat`."""
    hashed, line, head = sha256(), b"", b""
    for each in _lines(path):
        hashed.update(line)
        line, head = each, head or each
    try:
        first, end = json.loads(head), json.loads(line)
        if first["format"] != "chatbot-backup":
            raise DamagedFile(f"{path} is not a backup of chatbot")
        if first["version"] > _VERSION:
            raise LaterFormat(f"{path} was written by a later release: upgrade chatbot to restore it")
        if end["k"] != "end" or end["sha256"] != hashed.hexdigest():
            raise DamagedFile(f"{path} is damaged: its SHA-256 differs from the one at its end")
        return Backup(str(first["name"]), str(first["made_at"]), str(first["settings"]), str(end["digest"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, DamagedFile | LaterFormat):
            raise
        raise DamagedFile(f"{path} is not a whole backup of chatbot: {error}") from error


async def restore(path: Path, home: Home) -> CopyCounts:
    """Write a verified backup into a storage that is empty, or that holds the beginning of the same restore.

    Raises `ConfigError` where the storage holds something else, and `DamagedFile` where a record is invalid.
    """

    async def records() -> AsyncIterator[Record]:
        lines = _lines(path)
        next(lines)
        for line in lines:
            record = json.loads(line)
            if record["k"] != "end":
                yield record

    async with AsyncExitStack() as stack:
        storage = await Storage.opened(home, stack)
        try:
            done = await _written(records(), storage)
        except (KeyError, TypeError, AttributeError) as error:
            raise DamagedFile(f"{path} holds a record that is invalid: {error!r}") from error
        await _become_another(storage)
        return done
