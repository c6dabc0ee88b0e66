"""Copy an identity from one storage to another: a folder, or an address in a database. Both ways, and again.

Each part is compared by a digest of what it says, so a copy that was broken off goes on where it was, and a second one
copies nothing. Nothing is ever deleted, and a target that says something else is refused. Blocking, except for stores.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, cast

from chatbot.errors import ConfigError
from chatbot.memory.receipt_lines import LINES as RECEIPTS
from chatbot.stores.backend import ATTACHMENTS, Backend, Document, Place
from chatbot.stores.backends import open_backend
from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import MissingFolder, StoreError
from chatbot.stores.home import Home
from chatbot.stores.json_lines import record_of
from chatbot.stores.log import Log
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.plugins import open_store
from chatbot.stores.records import KeyValue, SessionRef, TranscriptEntry, format_time
from chatbot.stores.row_events import parse_event
from chatbot.stores.session_record import SessionRecord

SESSIONS, OBSERVATIONS = "basic_session", "observations"
_LINES = ("usage", "tombstones", "changes", "hook_failures")
_DOCUMENTS = ("tombstones.key", "maintenance.json")
_AT_A_TIME = 500

Progress = Callable[[int, int], None]
"""Told how many memories, and then sessions, are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class CopyCounts:
    """Number of sessions, events of memory and other lines that were written, and that already existed."""

    sessions: int
    events: int
    lines: int
    unchanged: int
    digest: str
    """Digest of everything that was compared: the same for both storages."""


async def copy_storage(source: Home, target: Home, progress: Progress | None = None) -> CopyCounts:
    """Copy everything that is kept of an identity. Raises `ConfigError` where the target says something else."""
    if isinstance(source, Path) and not source.is_dir():
        raise MissingFolder(f"folder not found: {source}")
    async with AsyncExitStack() as stack:
        one, other = await Storage.opened(source, stack), await Storage.opened(target, stack)
        tell = progress or (lambda *_: None)
        lines, kept = await asyncio.to_thread(_copy_lines, one.backend, other.backend)
        events, were = await asyncio.to_thread(_copy_events, one.log, other.log, tell)
        sessions, known = await _copy_sessions(one, other, tell)
        return CopyCounts(sessions, events, lines, kept + were + known, await _checked(one, other))


class _SessionStore(KeyValueStore, TranscriptStore):
    """The contracts that ours keep in every storage."""


class Storage:
    """Everything that is kept of an identity, open."""

    def __init__(self, backend: Backend, store: _SessionStore, observations: LoggedObservations, log: Log) -> None:
        self.backend = backend
        self.store = store
        self.observations = observations
        self.log = log

    @classmethod
    async def opened(cls, home: Home, stack: AsyncExitStack) -> Storage:
        backend = open_backend(home)
        stack.callback(backend.close)
        store = cast("_SessionStore", await stack.enter_async_context(open_store(SESSIONS, home, {})))
        observations = cast("LoggedObservations", open_store(OBSERVATIONS, home, {}))
        await stack.enter_async_context(observations)
        log = observations.open_log(home)
        stack.callback(log.close)
        return cls(backend, store, observations, log)


def _copy_lines(source: Place, target: Place) -> tuple[int, int]:
    """Copy the lines and documents of all of the identity: how many lines, and how many were there."""
    written = kept = 0
    for name in _LINES:
        new, were = _copy_those(name, source, target)
        written, kept = written + new, kept + were
    for name in _DOCUMENTS:
        value = source.document(name).read()
        if value is not None:
            _fill(target.document(name), value)
    return written, kept


def _fill(document: Document, value: bytes) -> None:
    """Give a document that value where it has none."""
    document.change(lambda before: before or value)


def _copy_those(name: str, source: Place, target: Place) -> tuple[int, int]:
    ours, theirs = source.lines(name).all(), target.lines(name).all()
    if ours[: len(theirs)] != theirs:
        raise ConfigError(f"the target has other {name} than the source: copy into an empty one")
    for begin in range(len(theirs), len(ours), _AT_A_TIME):
        target.lines(name).append(ours[begin : begin + _AT_A_TIME])
    return len(ours) - len(theirs), len(theirs)


def _copy_events(source: Log, target: Log, progress: Progress) -> tuple[int, int]:
    """Copy the log of memory behind what the target has of it: how many events, and how many were there."""
    ours = [line for _, line in source.read_new()]
    theirs = [line for _, line in target.read_new()]
    if [*map(_said, ours[: len(theirs)])] != [*map(_said, theirs)]:
        raise ConfigError("the target has other memories than the source: copy into an empty one")
    new = iter(ours[len(theirs) :])
    done = len(theirs)
    while batch := list(islice(new, _AT_A_TIME)):
        with target.locked() as writing:
            writing.mend()
            for line in batch:
                writing.append(parse_event(record_of(line)))
            writing.release()
            writing.sync()
        done += len(batch)
        progress(done, len(ours))
    return len(ours) - len(theirs), len(theirs)


def _said(line: bytes) -> str:
    return _digest([parse_event(record_of(line)).as_json()])


async def _copy_sessions(source: Storage, target: Storage, progress: Progress) -> tuple[int, int]:
    """Copy the sessions that the target does not have, the one used first first."""
    records = (await asyncio.to_thread(source.backend.sessions.find, lambda _: True))[::-1]
    there = set(await asyncio.to_thread(target.backend.sessions.ids))
    written = 0
    for done, record in enumerate(records, 1):
        if record.id not in there:
            await _copy_session(record, source, target)
            written += 1
        progress(done, len(records))
    await asyncio.to_thread(target.backend.sessions.reorder)
    return written, len(records) - written


async def _copy_session(record: SessionRecord, source: Storage, target: Storage) -> None:
    """Copy a session, whole or not at all."""
    told = await _session(record, source)
    sessions = target.backend.sessions
    draft = await asyncio.to_thread(sessions.begin, record)
    try:
        if told.entries:
            await target.store.transcript_append(draft, told.entries)
        for entry in told.values:
            await target.store.kv_set(draft, entry)
        await asyncio.to_thread(lambda: target.backend.place_of(draft).lines(RECEIPTS).append(told.receipts))
        await asyncio.to_thread(
            _copy_attachments,
            source.backend.place_of(source.backend.sessions.ref(record.id)),
            target.backend.place_of(draft),
        )
        await asyncio.to_thread(sessions.publish, record)
    except BaseException:
        await asyncio.to_thread(sessions.abandon, record.id)
        raise


def _copy_attachments(source: Place, target: Place) -> None:
    blobs = source.blobs(ATTACHMENTS)
    for name in blobs.sizes():
        if (data := blobs.read(name)) is not None:
            target.blobs(ATTACHMENTS).put(data, name[32:])


@dataclass(frozen=True, slots=True)
class _Session:
    """Everything that is said in a session."""

    record: SessionRecord
    entries: Sequence[TranscriptEntry]
    values: Sequence[KeyValue]
    receipts: Sequence[Mapping[str, Any]]
    attachments: Sequence[str]
    """Their names, which are digests of their content."""

    def said(self) -> Iterator[Mapping[str, Any]]:
        """Yield it as records, to be compared. When a session was last used is not compared."""
        yield {name: value for name, value in self.record.as_json().items() if name != "used_at"}
        for each in self.entries:
            yield {"role": each.role, "content": each.content, "at": format_time(each.at)}
        for value in self.values:
            yield {"key": value.key, "value": value.value, "at": format_time(value.at)}
        yield from self.receipts
        yield from ({"attachment": name} for name in self.attachments)


async def _session(record: SessionRecord, end: Storage) -> _Session:
    ref: SessionRef = end.backend.sessions.ref(record.id)
    entries, values = await end.store.transcript_read_all(ref), await end.store.kv_entries(ref)
    receipts = await asyncio.to_thread(lambda: end.backend.place_of(ref).lines(RECEIPTS).all())
    attachments = await asyncio.to_thread(lambda: end.backend.place_of(ref).blobs(ATTACHMENTS).sizes())
    return _Session(record, entries, values, receipts, [*attachments])


async def _checked(source: Storage, target: Storage) -> str:
    """Compare everything once more, as it was written; its digest. Raises `ConfigError` for the first difference."""
    digests = [_digest(source.backend.lines(name).all()) for name in _LINES]
    for record in await asyncio.to_thread(source.backend.sessions.find, lambda _: True):
        try:
            other = await asyncio.to_thread(target.backend.sessions.get, record.id)
        except StoreError as error:
            raise ConfigError(f"session {record.id} was not copied: {error}") from error
        ours, theirs = await _session(record, source), await _session(other, target)
        if [*ours.said()] != [*theirs.said()]:
            raise ConfigError(f"session {record.id} differs in the target: delete it there, then copy again")
        digests.append(_digest(ours.said()))
    source.log.start_again()
    target.log.start_again()
    events, copied = ([_said(line) for _, line in end.log.read_new()] for end in (source, target))
    if events != copied:
        raise ConfigError("the memories differ after copying: another process is writing to the source or target")
    return _digest([{"parts": sorted(digests), "events": events}])


def _digest(records: Iterable[Mapping[str, Any]]) -> str:
    digest = blake2b(digest_size=16)
    for each in records:
        digest.update(json.dumps(each, sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
