"""What an agent holds of a session: async operations over the stores that the session uses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from chatbot.errors import SessionError
from chatbot.memory.catalog import SessionCatalog
from chatbot.memory.record import SessionRecord
from chatbot.memory.remembering import Remembering
from chatbot.memory.scope import Caller, Scope
from chatbot.memory.writing import Remembered
from stores.access import Clearance, least_clearance
from stores.base import CONTRACTS, KeyValueStore, ObservationStore, Store, TranscriptStore, contracts_of
from stores.errors import InvalidValue, MissingFolder, UnsupportedOperation
from stores.files import contained, translated
from stores.records import KeyValue, SessionRef, TranscriptEntry

WORKING_MEMORY = "working_memory"
TOLD_KEYS = ("episode_summary", "episode_told")
"""The keys of what is told of a transcript in short; it is made anew where it is missing."""
_NOTED_FOR = timedelta(minutes=1)
_CHUNK_BYTES = 64 * 1024

Contract = TypeVar("Contract", bound=Store)


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A file in a session's folder: its size in bytes, and when it was last modified, in ISO 8601."""

    name: str
    size: int
    modified: str


class SessionHandle(Remembering):
    """One open session. Small, safe to share between tasks; another process may hold its own at the same time.

    An operation that none of the session's stores keeps raises `UnsupportedOperation`.
    """

    __slots__ = ("_caller", "_catalog", "_clock", "_ref", "_stores", "record", "turn_order")

    def __init__(
        self,
        record: SessionRecord,
        ref: SessionRef,
        stores: Mapping[str, Store],
        catalog: SessionCatalog,
        *,
        caller: Caller,
        turn_order: asyncio.Lock,
    ) -> None:
        self.record = record
        self._caller = caller
        self._ref = ref
        self._stores = stores
        self._catalog = catalog
        self._clock = caller.clock
        self.turn_order = turn_order
        """Held for the length of a turn, so that turns of one session take their order."""

    def __repr__(self) -> str:
        return f"<SessionHandle {self.id} agent={self.agent_id} stores={','.join(self._stores)}>"

    @property
    def id(self) -> str:
        """The session's UUIDv7."""
        return self.record.id

    @property
    def agent_id(self) -> str:
        """The agent that the session belongs to."""
        return self.record.agent_id

    @property
    def clearance(self) -> Clearance:
        """What is seen of what is remembered: the least of the session's own clearance and its holder's."""
        return least_clearance(self._caller.clearance, self.record.clearance)

    def supports(self, contract: type[Store]) -> bool:
        """Whether one of the session's stores keeps `contract`."""
        return any(isinstance(store, contract) for store in self._stores.values())

    async def kv_get(self, key: str) -> str | None:
        """The value of `key`, or None."""
        return await self._keeper(KeyValueStore).kv_get(self._ref, key)

    async def kv_set(self, key: str, value: str) -> None:
        """Keep `value` as the newest entry. Durable on return. Raises `InvalidValue` for an empty key."""
        await self._keeper(KeyValueStore).kv_set(self._ref, KeyValue(key, value, self._clock()))

    async def kv_delete(self, key: str) -> bool:
        """Remove `key`; whether it was there. Durable on return."""
        return await self._keeper(KeyValueStore).kv_delete(self._ref, key)

    async def kv_entries(self) -> list[KeyValue]:
        """All key-value entries, the one set longest ago first."""
        return await self._keeper(KeyValueStore).kv_entries(self._ref)

    async def working_memory_read(self) -> str:
        """The value of the key `working_memory`; empty where it was never set."""
        return await self.kv_get(WORKING_MEMORY) or ""

    async def transcript_append(self, role: str, content: str) -> TranscriptEntry:
        """Add an entry at the end, stamped with the present moment, and return it. Durable on return."""
        entry = TranscriptEntry(role, content, self._clock())
        await self.transcript_extend([entry])
        return entry

    async def transcript_extend(self, entries: Iterable[TranscriptEntry]) -> None:
        """Add entries at the end, next to each other and with the times that they have. Durable on return."""
        if entries := list(entries):
            await self._keeper(TranscriptStore).transcript_append(self._ref, entries)
            await self._note_used()

    async def transcript_read_last(self, n: int = 20) -> list[TranscriptEntry]:
        """The last `n` entries, oldest first; an empty list for `n` below 1."""
        return await self._keeper(TranscriptStore).transcript_read_last(self._ref, n)

    async def transcript_read_all(self) -> list[TranscriptEntry]:
        """Every entry that is still known, archived ones first."""
        return await self._keeper(TranscriptStore).transcript_read_all(self._ref)

    async def transcript_count(self, roles: Collection[str] = ()) -> int:
        """How many entries are still known, archived ones included; where roles are named, how many of those."""
        return await self._keeper(TranscriptStore).transcript_count(self._ref, roles)

    async def transcript_stamp(self) -> str:
        """What differs whenever the transcript has changed; empty where only reading it would tell."""
        return await self._keeper(TranscriptStore).transcript_stamp(self._ref)

    async def transcript_drop_last(self, n: int) -> list[TranscriptEntry]:
        """Remove the last `n` entries for good and return them, oldest first. Durable on return."""
        return await self._keeper(TranscriptStore).transcript_drop_last(self._ref, n)

    async def rename(self, title: str) -> None:
        """Give the session a title; an empty one takes it away. Durable on return."""
        now = self._clock()
        self.record = await self._catalog.change(self.id, lambda record: record.renamed(title).used(now))

    async def entitle(self, title: str, *, instead_of: str = "") -> None:
        """Give the session a title, unless it has another one by now than `instead_of`. Durable on return."""
        now = self._clock()
        self.record = await self._catalog.change(
            self.id, lambda record: record.renamed(title).used(now) if record.title == instead_of else record
        )

    async def receipt_append(self, receipt: dict[str, Any]) -> None:
        """Keep the record of a turn, or of what was done beside turns: that one has a `kind`. Durable on return."""
        await self._catalog.append_receipt(self._ref, receipt)

    async def take_back_turn(self, at: datetime) -> None:
        """The turn whose entry has that time was taken back: no receipt or title tells what was said. Durable."""
        await self._catalog.take_back(self._ref, at)
        self.record = await self._catalog.get(self.id)

    async def receipts(self) -> list[dict[str, Any]]:
        """The record of every turn, oldest first."""
        return [record for record in await self.records() if "kind" not in record]

    async def records(self) -> list[dict[str, Any]]:
        """Every record, oldest first: of turns, and of what was done beside them."""
        return await self._catalog.receipts(self._ref)

    async def receipts_since(self, moment: datetime) -> list[dict[str, Any]]:
        """The record of every turn from `moment` on, newest first; reads no further back."""
        return [record for record in await self._catalog.receipts_since(self._ref, moment) if "kind" not in record]

    async def remembered_since(self, moment: datetime) -> dict[str, str]:
        """The time of each turn from `moment` on that was remembered, by the id that it was remembered under.

        Of a fork also those of before it was made, as long as the session is there that they were said in.
        """
        receipts = await self.receipts_since(moment)
        for ancestor, _ in await self._ancestors():
            with suppress(MissingFolder):  # it was deleted
                receipts += await self._catalog.receipts_since(self._catalog.ref(ancestor), moment)
        return {str(each["remembered"]): str(each["at"]) for each in receipts if each.get("remembered")}

    async def summarize_session(self, request: str, outcome: str = "", **said: Any) -> Remembered:
        """See `Summaries`. What a fork says of the time before it was made is derived from what was remembered then."""
        ancestors = () if said.get("session_id") else await self._ancestors()
        return await super().summarize_session(request, outcome, **{"besides": ancestors, **said})

    async def list_files(self) -> list[SessionFile]:
        """The files in the session's folder, sorted by name; none for a session that lives in memory."""
        return await asyncio.to_thread(_list_files, self._ref)

    async def stream_file(self, name: str) -> AsyncIterator[bytes]:
        """The bytes of one of `list_files`, in chunks of at most 64 KiB. Raises `UnsafePath` or `FileNotFoundError`."""
        import aiofiles

        with translated(self._ref.folder):
            path = contained(self._ref.folder, name)
            async with aiofiles.open(path, "rb", opener=_open_safely) as file:
                while chunk := await file.read(_CHUNK_BYTES):
                    yield chunk

    async def copy_to(self, other: SessionRef, *, entries: int | None = None) -> None:
        """Write everything that the session's stores keep into a session that is being made.

        Of the transcript only the first `entries`, where that is given. Raises `InvalidValue` where it has fewer.
        """
        if self.supports(KeyValueStore):
            store = self._keeper(KeyValueStore)
            for entry in await store.kv_entries(self._ref):
                if entries is None or entry.key not in TOLD_KEYS:
                    await store.kv_set(other, entry)
        if self.supports(TranscriptStore):
            transcripts = self._keeper(TranscriptStore)
            if said := _first(await transcripts.transcript_read_all(self._ref), entries):
                await transcripts.transcript_append(other, said)

    async def take_in(
        self,
        entries: Sequence[TranscriptEntry],
        key_values: Sequence[KeyValue] = (),
        receipts: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Write what a session holds that was held elsewhere. Raises `UnsupportedOperation` without a transcript."""
        if entries:
            await self._keeper(TranscriptStore).transcript_append(self._ref, entries)
        if self.supports(KeyValueStore):
            for entry in key_values:
                await self._keeper(KeyValueStore).kv_set(self._ref, entry)
        for receipt in receipts:
            await self._catalog.append_receipt(self._ref, receipt)

    async def _ancestors(self) -> list[tuple[str, datetime]]:
        """The sessions that this one was forked from, each with the time until which it went along."""
        line: dict[str, datetime] = {}
        record = self.record
        while record.parent is not None and record.parent not in {self.id, *line}:
            line[record.parent] = record.created_at
            try:
                record = await self._catalog.get(record.parent)
            except SessionError:  # it is gone, or damaged; what was remembered in it is there all the same
                break
        return list(line.items())

    def _scope(self) -> Scope:
        store = self._keeper(ObservationStore)
        return self._caller.scope(store, agent_id=self.agent_id, session_id=self.id, clearance=self.clearance)

    def _keeper(self, contract: type[Contract]) -> Contract:
        for store in self._stores.values():
            if isinstance(store, contract):
                return store
        has = ", ".join(f"{name} ({' and '.join(contracts_of(type(store)))})" for name, store in self._stores.items())
        raise UnsupportedOperation(
            f"session {self.id} has no {CONTRACTS[contract]} store: it uses {has or 'no stores at all'}"
        )

    async def _note_used(self) -> None:
        """Often enough for the order of sessions by their last use, and no oftener, for it costs."""
        now = self._clock()
        if self._catalog.used_last != self.id or now - self.record.used_at > _NOTED_FOR:
            self.record = self.record.used(now)
            await self._catalog.note_used(self.id, now)


def _first(said: list[TranscriptEntry], entries: int | None) -> list[TranscriptEntry]:
    if entries is not None and not 0 <= entries <= len(said):
        raise InvalidValue(f"there is no entry {entries}: the session has {len(said)}")
    return said if entries is None else said[:entries]


def _list_files(ref: SessionRef) -> list[SessionFile]:
    if ref.folder.name != ref.id:
        return []
    with translated(ref.folder):
        found = [
            SessionFile(entry.name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC).isoformat())
            for entry in os.scandir(ref.folder)
            if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False)
            for status in [entry.stat(follow_symlinks=False)]
        ]
    return sorted(found, key=lambda file: file.name)


def _open_safely(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
