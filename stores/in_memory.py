"""The store that writes nothing: for tests, demos and `--ephemeral`, and the model that other stores are held to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import InvalidSettings
from chatbot.stores.in_memory_observations import InMemoryObservations
from chatbot.stores.records import KeyValue, SessionRef, TranscriptEntry


class InMemoryStore(KeyValueStore, TranscriptStore, InMemoryObservations):
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
        if kv_cap < 1 or transcript_cap < 1:
            raise InvalidSettings("kv_cap and transcript_cap must be at least 1")
        self._kv_cap = kv_cap
        self._sessions: defaultdict[str, _Session] = defaultdict(_Session)

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

    async def transcript_drop_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        transcript = self._sessions[session.id].transcript
        keep = len(transcript) - max(0, n)
        dropped = transcript[max(0, keep) :]
        del transcript[max(0, keep) :]
        return dropped

    async def forget_session(self, session: SessionRef) -> None:
        self._sessions.pop(session.id, None)

    async def aclose(self) -> None:
        """Drop everything."""
        self._sessions.clear()


@dataclass(slots=True)
class _Session:
    entries: dict[str, KeyValue] = field(default_factory=dict)
    transcript: list[TranscriptEntry] = field(default_factory=list)
