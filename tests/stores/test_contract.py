"""The contract kit on the stores that ship, and on stores as a stranger would write them."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from hypothesis import settings

from stores import KeyValue, KeyValueStore, SessionRef, TranscriptEntry, TranscriptStore
from stores.basic_session import BasicSessionStore
from stores.in_memory import InMemoryStore
from stores.testing import KeyValueStoreContract, StoreMachine, TranscriptStoreContract


class TestBasicSessionStore(KeyValueStoreContract, TranscriptStoreContract):
    kv_cap = 200
    transcript_cap = 500

    def open_store(self, home: Path) -> BasicSessionStore:
        return BasicSessionStore(home)


class TestSmallBasicSessionStore(KeyValueStoreContract, TranscriptStoreContract):
    kv_cap = 5
    transcript_cap = 12

    def open_store(self, home: Path) -> BasicSessionStore:
        return BasicSessionStore(home, kv_cap=5, transcript_cap=12)


class TestInMemoryStore(KeyValueStoreContract, TranscriptStoreContract):
    kv_cap = 5
    transcript_cap = 12

    def open_store(self, home: Path) -> InMemoryStore:
        return InMemoryStore(home, kv_cap=5, transcript_cap=12)


class StrangersKeyValues(KeyValueStore):
    keeps_files = False

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._entries: defaultdict[str, dict[str, KeyValue]] = defaultdict(dict)

    async def kv_get(self, session: SessionRef, key: str) -> str | None:
        found = self._entries[session.id].get(key)
        return found.value if found else None

    async def kv_set(self, session: SessionRef, entry: KeyValue) -> None:
        self._entries[session.id].pop(entry.key, None)
        self._entries[session.id][entry.key] = entry

    async def kv_delete(self, session: SessionRef, key: str) -> bool:
        return self._entries[session.id].pop(key, None) is not None

    async def kv_entries(self, session: SessionRef) -> list[KeyValue]:
        return list(self._entries[session.id].values())


class StrangersTranscript(TranscriptStore):
    keeps_files = False

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._said: defaultdict[str, list[TranscriptEntry]] = defaultdict(list)

    async def transcript_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> None:
        self._said[session.id] += entries

    async def transcript_read_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        return self._said[session.id][-n:] if n > 0 else []


class TestStrangersKeyValues(KeyValueStoreContract):
    def open_store(self, home: Path) -> StrangersKeyValues:
        return StrangersKeyValues(home)


class TestStrangersTranscript(TranscriptStoreContract):
    def open_store(self, home: Path) -> StrangersTranscript:
        return StrangersTranscript(home)


class SmallHistories(StoreMachine):
    def open_store(self, home: Path) -> BasicSessionStore:
        return BasicSessionStore(home, kv_cap=3, transcript_cap=4)

    def open_model(self, home: Path) -> InMemoryStore:
        return InMemoryStore(home, kv_cap=3, transcript_cap=4)


class RoomyHistories(StoreMachine):
    def open_store(self, home: Path) -> BasicSessionStore:
        return BasicSessionStore(home, kv_cap=30, transcript_cap=20)

    def open_model(self, home: Path) -> InMemoryStore:
        return InMemoryStore(home, kv_cap=30, transcript_cap=20)


TestSmallHistories = SmallHistories.TestCase
TestSmallHistories.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestRoomyHistories = RoomyHistories.TestCase
TestRoomyHistories.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
