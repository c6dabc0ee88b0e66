"""The open storage of an identity, the state of its syncs, and the digest of everything that is synced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_hex
from typing import Any, cast

import msgspec
from msgspec import Struct

from chatbot.errors import ConfigError, without_folders
from chatbot.memory.scope import CHOICES
from chatbot.memory.session_catalog import RECEIPTS
from chatbot.stores.backend import ATTACHMENTS, Backend, Document, Examination, Lines
from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import DamagedFile
from chatbot.stores.home import Home
from chatbot.stores.json_lines import record_of
from chatbot.stores.log import Log
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.plugins import open_backend, open_store
from chatbot.stores.records import SessionRecord, SessionRef, format_time
from chatbot.transfer.sync_place import RefusedFile
from chatbot.transfer.union import (
    OBSERVATIONS,
    SESSIONS,
    Journal,
    Said,
    canonical,
    digest_of,
    portable,
    said_of,
    with_ids,
)

STATE = "sync.json"

Record = dict[str, Any]


class _SessionStore(KeyValueStore, TranscriptStore):
    """The contracts of our own session stores, in every storage."""


@dataclass(slots=True)
class PlaceState:
    """Contents that a place is known to have."""

    digests: set[bytes] = field(default_factory=set)
    """Of lines of the journal and of parts of them, of counts, entries, receipts, attachments, bills and erased ids."""
    sessions: dict[str, str] = field(default_factory=dict)
    """Digest of the state of each session."""
    taken: set[str] = field(default_factory=set)
    """Files of others that were taken in."""
    own: set[str] = field(default_factory=set)
    pending: str = ""
    """Mark in the names of files that were being written."""
    at: str = ""
    """When the last sync with it was done."""

    def new(self, said: Iterable[str], about: str = "") -> list[str]:
        """Return those of these texts that the place lacks, and note that it gets them."""
        found = {digest_of(f"{about}{each}"): each for each in said}
        new = [each for digest, each in found.items() if digest not in self.digests]
        self.digests |= found.keys()
        return new


@dataclass(slots=True)
class Replacement:
    """A transcript that is being replaced: the number of entries to keep, the first one to drop, and those to write."""

    session: str
    keep: int
    drop: str
    said: list[tuple[str, str, str]]


@dataclass(slots=True)
class SyncState:
    """State of former syncs on this machine: the document `sync.json` of the identity."""

    identity: str = ""
    machine: str = ""
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    """The sessions and facts that are gone on all machines."""
    facts: list[str] = field(default_factory=list)
    doing: Replacement | None = None
    places: dict[str, PlaceState] = field(default_factory=dict)

    @classmethod
    def read(cls, document: Document) -> SyncState:
        """Read the document; a machine that has none gets its name. Raises `DamagedFile`."""
        try:
            state = msgspec.json.decode(document.read() or b"{}", type=cls)
        except (ValueError, RecursionError) as error:
            raise DamagedFile(f"{document.name} cannot be read: {error}. Restore it from a backup") from error
        state.machine = state.machine or token_hex(6)
        return state

    def save(self, document: Document) -> None:
        """Write the document. Durable on return."""
        data = msgspec.json.encode(self)
        document.change(lambda _: data)


class SessionContent(Struct, frozen=True):
    """Entries, values, choices, receipts and file names of a session."""

    said: Said
    values: dict[str, tuple[str, str]]
    choices: tuple[str, str] | None
    receipts: list[Record]
    files: list[str]


@dataclass(frozen=True, slots=True)
class Storage:
    """Everything that is kept of an identity, open."""

    backend: Backend
    store: _SessionStore
    observations: LoggedObservations
    log: Log

    @classmethod
    @asynccontextmanager
    async def opened(cls, home: Home | None) -> AsyncIterator[Storage]:
        """Open a storage for the time of the context. Raises `ConfigError` if memory is kept nowhere."""
        if home is None:
            raise ConfigError("memory is kept nowhere: there is nothing to sync")
        async with AsyncExitStack() as stack:
            backend = open_backend(home)
            stack.callback(backend.close)
            store = await stack.enter_async_context(cast("_SessionStore", open_store(SESSIONS, home, {})))
            kept = cast("LoggedObservations", open_store(OBSERVATIONS, home, {}))
            observations = await stack.enter_async_context(kept)
            log = observations.open_log(home)
            stack.callback(log.close)
            yield cls(backend, store, observations, log)

    @property
    def document(self) -> Document:
        """The document with the state of syncs."""
        return self.backend.document(STATE)

    def journal(self) -> Journal:
        """Read the whole log. Needs its lock if it will be changed."""
        self.log.start_again()
        return Journal(line for _, line in self.log.read_new())

    async def records(self) -> list[SessionRecord]:
        """Return the records of all sessions, most recently used first."""
        return await asyncio.to_thread(self.backend.sessions.find, lambda _: True)

    async def content(self, ref: SessionRef) -> SessionContent:
        """Return the stored content of a session without its record."""
        place = self.backend.place_of(ref)
        said = with_ids(await self.store.transcript_read_all(ref))
        values = {each.key: (each.value, format_time(each.at)) for each in await self.store.kv_entries(ref)}
        receipts = await asyncio.to_thread(place.lines(RECEIPTS).all)
        files = [*await asyncio.to_thread(place.blobs(ATTACHMENTS).sizes)]
        return SessionContent(said, values, values.pop(CHOICES, None), receipts, files)


def said_of_session(record: SessionRecord, content: SessionContent) -> str:
    """Return the text of a session for a digest of its identity."""
    ids, values = [each for each, _ in content.said], sorted([key, *each] for key, each in content.values.items())
    receipts = sorted(map(canonical, content.receipts))
    return canonical({"session": [portable(record), ids, values, receipts, content.files]})


def digest_of_all(said: Iterable[str]) -> str:
    """Return the digest of everything that is synced, in any order: the same on machines that are in sync."""
    return sha256("\n".join(sorted(said)).encode(errors="surrogatepass")).hexdigest()[:32]


async def digest_of_storage(storage: Storage) -> str:
    """Return the digest of the storage, as `doctor`, `backup` and `restore` print it."""
    sessions = storage.backend.sessions
    said = [said_of_session(each, await storage.content(sessions.ref(each.id))) for each in await storage.records()]

    def rest() -> str:
        journal = storage.journal()
        rows = (said_of(journal, each) for each in journal.touched())
        return digest_of_all([*said, *rows, *map(canonical, storage.backend.lines("usage").all())])

    return await asyncio.to_thread(rest)


async def unreadable(storage: Storage, aside: Iterable[RefusedFile]) -> list[str]:
    """Return the parts that were set aside, then those that cannot be read, and are in no copy; without folders."""
    lines = dict.fromkeys(("usage", "tombstones"), ("bill", record_of))
    found = await asyncio.to_thread(lambda: [*storage.backend.examine(Examination(subjects=lines))])
    found += await storage.observations.examine()
    wrong = [each for each in found if each.state == "bad" and each.subject in {"sessions", "memory", "bill"}]
    told = [*(f"{each.file}: {each.why}" for each in aside), *(each.message for each in wrong)]
    return [without_folders(each).encode(errors="replace").decode() for each in told]  # a name need not be UTF-8


def _least_telling(receipt: Mapping[str, Any]) -> tuple[bool, int, str]:
    said = canonical(receipt)
    return not receipt.get("taken_back"), len(said), said


def unite_lines(lines: Lines, new: Iterable[Mapping[str, Any]], *, receipts: bool = False) -> int:
    """Add new records, in the order of time; return how many. Of two versions of a receipt the shorter is kept."""
    with lines.alone() as pen:
        ours = lines.all()

        def key(record: Mapping[str, Any]) -> str:
            return canonical({name: record.get(name) for name in ("turn", "at", "kind")} if receipts else record)

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
