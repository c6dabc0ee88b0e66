"""The store that writes nothing: for tests, demos and `--ephemeral`.

Observations use the same code as in other stores, over a log and a shelf in memory.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from chatbot.stores.access import View
from chatbot.stores.base import KeyValueStore, TranscriptStore, check_caps
from chatbot.stores.cache import MemoryShelf
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.log import Change, Log, Mark, Place, Shelf, Writing
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.query import Stats
from chatbot.stores.records import KeyValue, SessionRef, TranscriptEntry
from chatbot.stores.row_events import Event, parse_event


class InMemoryStore(KeyValueStore, TranscriptStore, LoggedObservations):
    """Keeps everything for as long as it lives, under the same caps as `basic_session` and `observations`."""

    keeps_files: ClassVar[bool] = False

    def __init__(
        self,
        home: Path,
        *,
        kv_cap: int = 200,
        transcript_cap: int = 500,
        max_observations: int = 0,
        ttl_days: float = 0,
    ) -> None:
        super().__init__(home, max_observations=max_observations, ttl_days=ttl_days)
        check_caps(kv_cap=kv_cap, transcript_cap=transcript_cap)
        self._kv_cap = kv_cap
        self._sessions: defaultdict[str, _Session] = defaultdict(_Session)

    def open_log(self, home: Any) -> Log:  # noqa: ARG002 - it is kept nowhere
        return MemoryLog()

    def open_shelf(self, name: str) -> Shelf:
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
        """Drop everything."""
        await super().aclose()
        self._sessions.clear()


class _Session(Struct):
    entries: dict[str, KeyValue] = field(default_factory=dict)
    transcript: list[TranscriptEntry] = field(default_factory=list)


class MemoryLog(Log):
    """A list of lines, and its own `Writing`. The place of a line is its number, until the log is rewritten."""

    name = "the memory of this process"

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._read = 0
        self._alone = threading.RLock()

    @property
    def position(self) -> int:
        return self._read

    def mark(self) -> Mark:
        return Mark(1, self._read, "")

    def resume(self, mark: Mark) -> bool:  # noqa: ARG002 - no snapshot is made of it
        return False

    def is_replaced(self) -> bool:
        return False

    def was_written(self) -> bool:
        """Return False: a snapshot is useless after the end of this process."""
        return False

    def start_again(self) -> None:
        self._read = 0

    def read_new(self) -> Iterator[tuple[Place, bytes]]:
        while self._read < len(self._lines):
            line = self._lines[self._read]
            yield (self._read, len(line)), line
            self._read += 1

    def event_at(self, place: Place) -> Event:
        return parse_event(record_of(self._lines[place[0]]))

    @contextmanager
    def locked(self) -> Iterator[Writing]:
        with self._alone:
            yield self

    def mend(self) -> None:
        """Do nothing: no line is torn."""

    def append(self, event: Event) -> Place:
        self._lines.append(encode(event.as_json()))
        self._read = len(self._lines)
        return self._read - 1, len(self._lines[-1])

    def release(self) -> None:
        """Do nothing: there is no disk to wait for."""

    def sync(self) -> None:
        """Do nothing: nothing is durable."""

    def rewrite(self, change: Change, more: Iterable[Event] = ()) -> dict[int, Place]:
        found = [(number, change(line.rstrip(b"\n"), number)) for number, line in enumerate(self._lines)]
        left = [(number, line) for number, line in found if line is not None]
        self._lines = [line for _, line in left]
        self._read = len(left)
        for event in more:
            self.append(event)
        return {number: (place, len(line)) for place, (number, line) in enumerate(left)}

    def rest(self) -> None:
        """Do nothing: no file is open."""

    def close(self) -> None:
        self._lines.clear()
