"""The backend that keeps everything in memory for as long as it lives: for tests, and for `--ephemeral`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any

from chatbot.stores.backend import (
    Backend,
    Blobs,
    Document,
    Lease,
    Lines,
    Mark,
    Pen,
    Place,
    Reading,
    Record,
    Sessions,
    blob_name,
    checked_blob_name,
)
from chatbot.stores.errors import MissingFolder
from chatbot.stores.records import SessionRecord, SessionRef


class MemoryPlace(Place):
    """Dictionaries. Threads share it, processes do not."""

    name = "memory"

    def __init__(self) -> None:
        self._lines: dict[str, MemoryLines] = {}
        self._documents: dict[str, MemoryDocument] = {}
        self._leases: dict[str, threading.Lock] = {}
        self._blobs: dict[str, MemoryBlobs] = {}

    def lines(self, name: str) -> Lines:
        return self._lines.setdefault(name, MemoryLines())

    def document(self, name: str) -> Document:
        return self._documents.setdefault(name, MemoryDocument(name))

    def lease(self, name: str) -> Lease:
        return MemoryLease(self._leases.setdefault(name, threading.Lock()))

    def blobs(self, name: str) -> Blobs:
        return self._blobs.setdefault(name, MemoryBlobs())


class MemoryBackend(MemoryPlace, Backend):
    """A place for the identity and one for each session, all in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, MemoryPlace] = {}
        self.sessions = MemorySessions(self._places)

    def place_of(self, session: SessionRef) -> Place:
        if session.id not in self._places:
            raise MissingFolder(f"no session has the id {session.id}")
        return self._places[session.id]

    def close(self) -> None:
        """Do nothing: no file or connection is open."""


class MemorySessions(Sessions):
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
                raise MissingFolder(f"no session has the id {session_id}")
            return self._records[session_id]

    def find(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None = None, *, behind: str | None = None
    ) -> list[SessionRecord]:
        with self._guard:
            records = list(reversed(self._records.values()))
        begin = next((place + 1 for place, record in enumerate(records) if record.id == behind), len(records))
        return list(filter(wanted, records[begin if behind else 0 :]))[:limit]

    def ids(self) -> list[str]:
        return list(self._records)

    def change(self, session_id: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        """Replace the record and move it to the end, as the one used last."""
        with self._guard:
            record = change(self.get(session_id))
            del self._records[session_id]
            self._records[session_id] = record
        return record

    def note_used(self, session_id: str, now: datetime) -> None:
        self.change(session_id, lambda record: record.used(now))

    def delete(self, session_id: str) -> None:
        with self._guard:
            self.get(session_id)
            del self._records[session_id]
            self._places.pop(session_id, None)


class MemoryLines(Lines):
    """A list of records, and its own `Pen`."""

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._records: list[Record] = []
        self._rewrites = 0

    @contextmanager
    def alone(self) -> Iterator[Pen]:
        with self._guard:
            yield self

    def newest_first(self) -> Iterator[Record]:
        return iter(deepcopy(self._records)[::-1])

    def since(self, mark: Mark | None) -> Reading:
        rewrites, end = mark if isinstance(mark, tuple) else (-1, 0)
        starts_over = rewrites != self._rewrites
        records = deepcopy(self._records[0 if starts_over else end :])
        return Reading(records, (self._rewrites, len(self._records)), starts_over)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        with self._guard:
            self._records += [deepcopy(dict(record)) for record in records]

    def rewrite(self, change: Callable[[Record], Record | None], *, holding: Collection[str] = ()) -> None:
        with self._guard:
            new = [change(each) if not holding or _holds(each, holding) else each for each in self._records]
            self._records = [record for record in new if record is not None]
            self._rewrites += 1


class MemoryDocument(Document):
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


class MemoryLease(Lease):
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


class MemoryBlobs(Blobs):
    """Bytes by name."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def put(self, data: bytes, suffix: str = "") -> str:
        name = blob_name(data, suffix)
        self._data[name] = bytes(data)
        return name

    def read(self, name: str) -> bytes | None:
        return self._data.get(checked_blob_name(name))

    def sizes(self) -> dict[str, int]:
        return {name: len(data) for name, data in sorted(self._data.items())}

    def drop(self, name: str) -> None:
        self._data.pop(checked_blob_name(name), None)


def _holds(record: Record, texts: Collection[str]) -> bool:
    said = str(record)
    return any(text in said for text in texts)
