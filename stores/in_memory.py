"""The engine that writes nothing, for tests, demos and `--ephemeral`: its store, its log and its backend."""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from chatbot.stores import backend, log
from chatbot.stores.access import View
from chatbot.stores.base import Cap, CapOrNone, Days, KeyValueStore, TranscriptStore
from chatbot.stores.cache import MemoryShelf
from chatbot.stores.errors import MissingFolder
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.query import Stats
from chatbot.stores.records import KeyValue, SessionRecord, SessionRef, TranscriptEntry
from chatbot.stores.row_events import Event, parse_event


class InMemoryStore(KeyValueStore, TranscriptStore, LoggedObservations):
    """Keeps everything until it is closed, under the same caps as `basic_session` and `observations`."""

    is_durable: ClassVar[bool] = False

    def __init__(
        self,
        home: Path,
        *,
        kv_cap: Cap = 200,
        transcript_cap: Cap = 500,  # noqa: ARG002 - as `basic_session` has it
        max_observations: CapOrNone = 0,
        ttl_days: Days = 0,
    ) -> None:
        super().__init__(home, max_observations=max_observations, ttl_days=ttl_days)
        self._kv_cap = kv_cap
        self._sessions: defaultdict[str, _Session] = defaultdict(_Session)

    def open_log(self, home: Any) -> log.Log:  # noqa: ARG002 - it is kept nowhere
        return MemoryLog()

    def open_shelf(self, name: str) -> log.Shelf:
        return MemoryShelf(name)

    async def stats(self, view: View) -> Stats:
        return replace(await super().stats(view), journal_bytes=None, cache_bytes=None)

    async def kv_get(self, session: SessionRef, key: str) -> str | None:
        entry = self._sessions[session.id].entries.get(key)
        return None if entry is None else entry.value

    async def kv_set(self, session: SessionRef, entry: KeyValue) -> None:
        entries = self._sessions[session.id].entries
        entries.pop(entry.key, None)
        entries[entry.key] = entry
        while len(entries) > self._kv_cap:
            del entries[next(iter(entries))]

    async def kv_delete(self, session: SessionRef, key: str) -> bool:
        return self._sessions[session.id].entries.pop(key, None) is not None

    async def kv_entries(self, session: SessionRef) -> list[KeyValue]:
        return list(self._sessions[session.id].entries.values())

    async def transcript_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> None:
        self._sessions[session.id].transcript.extend(entries)

    async def transcript_read_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        return self._sessions[session.id].transcript[-n:] if n > 0 else []

    async def transcript_read_all(self, session: SessionRef) -> list[TranscriptEntry]:
        return list(self._sessions[session.id].transcript)

    async def transcript_drop_last(
        self, session: SessionRef, n: int, instead: Sequence[TranscriptEntry] = ()
    ) -> list[TranscriptEntry]:
        transcript = self._sessions[session.id].transcript
        keep = len(transcript) - max(0, n)
        dropped = transcript[max(0, keep) :]
        transcript[max(0, keep) :] = instead
        return dropped

    async def forget_session(self, session: SessionRef) -> None:
        self._sessions.pop(session.id, None)

    async def aclose(self) -> None:
        await super().aclose()
        self._sessions.clear()


class _Session(Struct):
    entries: dict[str, KeyValue] = field(default_factory=dict)
    transcript: list[TranscriptEntry] = field(default_factory=list)


class MemoryLog(log.Log):
    """A list of lines; also its own `Writing`. The place of a line is its number, until the log is rewritten."""

    name = "the memory of this process"

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._read = 0
        self._alone = threading.RLock()

    @property
    def position(self) -> int:
        return self._read

    def mark(self) -> log.LogMark:
        return log.LogMark(1, self._read, "")

    def resume(self, mark: log.LogMark) -> bool:  # noqa: ARG002 - no snapshot is made of it
        return False

    def is_replaced(self) -> bool:
        return False

    def was_written(self) -> bool:
        """Return False: a snapshot is useless after the end of this process."""
        return False

    def start_again(self) -> None:
        self._read = 0

    def read_new(self) -> Iterator[tuple[log.LinePlace, bytes]]:
        while self._read < len(self._lines):
            line = self._lines[self._read]
            yield (self._read, len(line)), line
            self._read += 1

    def event_at(self, place: log.LinePlace) -> Event:
        return parse_event(record_of(self._lines[place[0]]))

    @contextmanager
    def locked(self) -> Iterator[log.Writing]:
        with self._alone:
            yield self

    def append(self, event: Event) -> log.LinePlace:
        self._lines.append(encode(event.as_json()))
        self._read = len(self._lines)
        return self._read - 1, len(self._lines[-1])

    def release(self) -> None:
        """Do nothing: there is no disk to wait for."""

    def sync(self) -> None:
        """Do nothing: nothing is durable."""

    def rewrite(self, change: log.LineChange, more: Iterable[Event] = ()) -> dict[int, log.LinePlace]:
        found = [(number, change(line.rstrip(b"\n"), number)) for number, line in enumerate(self._lines)]
        left = [(number, line) for number, line in found if line is not None]
        self._lines = [line for _, line in left]
        self._read = len(left)
        for event in more:
            self.append(event)
        return {number: (place, len(line)) for place, (number, line) in enumerate(left)}

    def close(self) -> None:
        self._lines.clear()


class MemoryPlace(backend.Place):
    """Dictionaries. Threads share it, processes do not."""

    name = "memory"

    def __init__(self) -> None:
        self._lines: dict[str, MemoryLines] = {}
        self._documents: dict[str, MemoryDocument] = {}
        self._leases: dict[str, threading.Lock] = {}
        self._blobs: dict[str, MemoryBlobs] = {}

    def lines(self, name: str) -> backend.Lines:
        return self._lines.setdefault(name, MemoryLines())

    def document(self, name: str) -> backend.Document:
        return self._documents.setdefault(name, MemoryDocument(name))

    def lease(self, name: str) -> backend.Lease:
        return MemoryLease(self._leases.setdefault(name, threading.Lock()))

    def blobs(self, name: str) -> backend.Blobs:
        return self._blobs.setdefault(name, MemoryBlobs())


class MemoryBackend(MemoryPlace, backend.Backend):
    """A place for the identity and one for each session, all in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, MemoryPlace] = {}
        self.sessions = MemorySessions(self._places)

    def place_of(self, session: SessionRef) -> backend.Place:
        if session.id not in self._places:
            raise MissingFolder.of(session.id)
        return self._places[session.id]


class MemorySessions(backend.Sessions):
    """Records by id, the one used last at the end."""

    def __init__(self, places: dict[str, MemoryPlace]) -> None:
        self._guard = threading.RLock()
        self._records: dict[str, SessionRecord] = {}
        self._places = places

    def begin(self, record: SessionRecord) -> SessionRef:
        self._places[record.id] = MemoryPlace()
        return self.ref(record.id)

    def publish(self, record: SessionRecord) -> None:
        with self._guard:
            self._records[record.id] = record

    def abandon(self, session_id: str) -> None:
        self._places.pop(session_id, None)

    def ref(self, session_id: str) -> SessionRef:
        return SessionRef(session_id, Path())

    def glance(self, session_id: str) -> SessionRecord | None:
        return self._records.get(session_id)

    def get(self, session_id: str) -> SessionRecord:
        with self._guard:
            if session_id not in self._records:
                raise MissingFolder.of(session_id)
            return self._records[session_id]

    def find(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None = None, *, after_id: str | None = None
    ) -> list[SessionRecord]:
        with self._guard:
            records = list(reversed(self._records.values()))
        begin = next((place + 1 for place, record in enumerate(records) if record.id == after_id), len(records))
        return list(filter(wanted, records[begin if after_id else 0 :]))[:limit]

    def ids(self) -> list[str]:
        return list(self._records)

    def change(self, session_id: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        with self._guard:
            before = self.get(session_id)
            record = change(before)
            if record.used_at > before.used_at:
                del self._records[session_id]  # to add it at the end
            self._records[session_id] = record
        return record

    def note_used(self, session_id: str, now: datetime) -> None:
        self.change(session_id, lambda record: record.used(now))

    def delete(self, session_id: str) -> None:
        with self._guard:
            self.get(session_id)
            del self._records[session_id]
            self._places.pop(session_id, None)


class MemoryLines(backend.Lines):
    """A list of records; also its own `RecordWriter`."""

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._records: list[backend.Record] = []
        self._rewrites = 0

    @contextmanager
    def alone(self) -> Iterator[backend.RecordWriter]:
        with self._guard:
            yield self

    def newest_first(self) -> Iterator[backend.Record]:
        return map(deepcopy, self._records[::-1])

    def since(self, mark: backend.Mark | None) -> backend.Reading:
        rewrites, end = mark if isinstance(mark, tuple) else (-1, 0)
        with self._guard:
            now, starts_over = (self._rewrites, len(self._records)), rewrites != self._rewrites
            records = self._records[0 if starts_over else end :]
        return backend.Reading(deepcopy(records), now, starts_over)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        with self._guard:
            self._records += [deepcopy(dict(record)) for record in records]

    def rewrite(self, change: backend.RecordChange, *, holding: Collection[str] = ()) -> None:
        with self._guard:
            new = [change(each) if not holding or _holds(each, holding) else each for each in self._records]
            self._records = [record for record in new if record is not None]
            self._rewrites += 1


class MemoryDocument(backend.Document):
    """A value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._guard = threading.Lock()
        self._data: bytes | None = None

    def read(self) -> bytes | None:
        return self._data

    def change(self, change: Callable[[bytes | None], bytes], *, durable: bool = True) -> bytes:  # noqa: ARG002
        with self._guard:
            self._data = change(self._data)
            return self._data

    def set_aside(self) -> str:
        """Drop the value: there is no file to set aside."""
        self._data = None
        return ""


class MemoryLease(backend.Lease):
    """A lock."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._is_held = False

    def take(self) -> bool:
        self._is_held = self._is_held or self._lock.acquire(blocking=False)
        return self._is_held

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._lock.release()


class MemoryBlobs(backend.Blobs):
    """Bytes by name."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def put(self, data: bytes, suffix: str = "") -> str:
        name = backend.blob_name(data, suffix)
        self._data[name] = bytes(data)
        return name

    def read(self, name: str) -> bytes | None:
        return self._data.get(backend.checked_blob_name(name))

    def sizes(self) -> dict[str, int]:
        return {name: len(data) for name, data in sorted(self._data.items())}

    def drop(self, name: str) -> None:
        self._data.pop(backend.checked_blob_name(name), None)


def _holds(record: backend.Record, texts: Collection[str]) -> bool:
    whole = str(record)
    return any(text in whole for text in texts)
