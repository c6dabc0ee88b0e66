"""Handle of a session for an agent: async operations over the stores that the session uses."""

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from datetime import datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from chatbot.errors import SessionError, SessionNotFound
from chatbot.memory.memory import Memory
from chatbot.memory.scope import Caller, Environment, Scope
from chatbot.memory.session_catalog import HANDED_OVER, NOT_KEPT, SessionCatalog, handed_over
from chatbot.memory.turn_order import TurnOrder
from chatbot.messages import json_in
from chatbot.stores import errors
from chatbot.stores.access import SENSITIVITIES, TOOL_RIGHTS, Right, Sensitivity, least_clearance
from chatbot.stores.backend import ATTACHMENTS, Blobs, SessionFile, suffix_of
from chatbot.stores.base import CONTRACTS, KeyValueStore, ObservationStore, Store, TranscriptStore, contracts_of
from chatbot.stores.observation import STATUSES
from chatbot.stores.query import EVERY, FactFilter, check_number
from chatbot.stores.records import (
    EPOCH,
    KeyValue,
    SessionRecord,
    SessionRef,
    TranscriptEntry,
    check_type,
    format_time,
    parse_time,
)
from chatbot.stores.row_events import Event, Outcome

if TYPE_CHECKING:
    from chatbot.memory.system import MemorySystem

CHOICES = "choices"
SUMMARY_KEYS = ("episode_summary", "episode_told")
"""Keys of summaries of a transcript; missing ones are recreated."""
_TURN_RIGHTS: frozenset[Right] = frozenset({"read", "write", "erase"})
_NOTED_FOR = timedelta(minutes=1)
_FRESH_FOR_S = 1.0
"""Maximum age of the reads at the start of a turn that the turn reuses; a turn may take minutes."""

Contract = TypeVar("Contract", bound=Store)
Write = Callable[[], Any]
"""A blocking function, or a coroutine function."""


class Choices(Struct, frozen=True):
    """Choices of one session; empty means the identity's own setting."""

    model: str = ""
    persona: str = ""
    memory: bool = True
    memory_at: str = ""
    """When memory was last turned off or on; empty if it never was."""

    @classmethod
    def parse(cls, text: str | None) -> "Choices":
        """Parse the value of the key `CHOICES`; the defaults for anything else."""
        table = json_in(text or "{}")
        if not isinstance(table, dict):
            return cls()
        memory_at = ""
        with suppress(errors.InvalidValue):
            memory_at = format_time(parse_time(str(table.get("memory_at", ""))))
        model, persona = str(table.get("model", "")), str(table.get("persona", ""))
        return cls(model, persona, table.get("memory") is not False, memory_at)

    def as_text(self) -> str:
        """Return the value to store."""
        return json.dumps(asdict(self))


def shared_value(key: str, text: str, at: str = "") -> str:
    """Return a value for other machines and users: of choices, only whether memory is used, `at` or when it says."""
    chosen = Choices.parse(text)
    return Choices(memory=chosen.memory, memory_at=at or chosen.memory_at).as_text() if key == CHOICES else text


class WriteResult(Struct):
    """Result of `SessionHandle.write_turn`: failures by the name of the part, and the outcomes of the events."""

    failed: dict[str, errors.StoreError] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)


class SessionHandle:
    """One open session. Small, safe to share between tasks; another process may hold its own at the same time.

    An operation that none of its stores offers raises `UnsupportedOperation`.
    """

    def __init__(
        self,
        record: SessionRecord,
        ref: SessionRef,
        stores: Mapping[str, Store],
        catalog: SessionCatalog,
        *,
        caller: Caller,
        environment: Environment,
        turn_order: TurnOrder,
    ) -> None:
        self._shared_record = [record]  # with the copies that have other rights
        self.caller = replace(caller, clearance=least_clearance(caller.clearance, record.clearance))
        """The caller, with the lower of their clearance and the session's."""
        self._environment = environment
        self._ref = ref
        self._stores = stores
        self._catalog = catalog
        self._fresh_at = 0.0
        self.turn_order = turn_order
        """Held during a turn: turns of one session run one after another, across processes."""

    def __repr__(self) -> str:
        return f"SessionHandle(id={self.id!r}, agent_id={self.agent_id!r})"

    @property
    def record(self) -> SessionRecord:
        """Metadata of the session, known without reading it."""
        return self._shared_record[0]

    @record.setter
    def record(self, record: SessionRecord) -> None:
        self._shared_record[0] = record

    @property
    def id(self) -> str:
        """The session's UUIDv7."""
        return self.record.id

    @property
    def agent_id(self) -> str:
        """The agent that the session belongs to."""
        return self.record.agent_id

    @property
    def memory(self) -> Memory:
        """The memory as this session sees it and writes to it. Raises `UnsupportedOperation` if no store keeps one."""
        return Memory(self._scope())

    def _scope(self) -> Scope:
        record = self.record
        caller = replace(self.caller, sensitivity=self.caller.at_least(record.sensitivity), project=record.project)
        scope = Scope(self._store(ObservationStore), caller, self._environment, self.agent_id, self.id, self._ancestors)
        return replace(
            scope,
            asked_row=lambda: self.turn_order.asked_row,
            fresh_at=lambda: self._as_of() or time.monotonic(),
            sensitivity_now=self._sensitivity_now,
        )

    async def _sensitivity_now(self) -> Sensitivity:
        """Return the session's sensitivity. Raises `MissingFolder` if another process deleted it."""
        record = self.record if self._as_of() else self._catalog.sessions.glance(self.id)  # a turn has just read it
        if record is None:
            with suppress(errors.DamagedFile, errors.LaterFormat):
                record = await asyncio.to_thread(self._catalog.sessions.get, self.id)
        return (record or self.record).sensitivity

    def check(self, right: Right | None) -> None:
        """Raise `MissingRight` if the caller lacks the right for this session, `ClosedResource` if it is closed."""
        if self._catalog.is_closed:
            self._catalog.check_open()
        if right is not None:
            self.caller.check(right, self.record)

    def for_turns(self) -> "SessionHandle":
        """Return the handle for turns, which read, write and erase. Raises `MissingRight` without the right `chat`."""
        self.check("chat")
        return self if self.caller.rights >= _TURN_RIGHTS else self._with_rights(self.caller.rights | _TURN_RIGHTS)

    def for_tools(self) -> "SessionHandle":
        """Return the handle for a model's tool calls, which may do no more than its user."""
        return self._with_rights(self.caller.rights & TOOL_RIGHTS)

    def confined(self, memory: "MemorySystem") -> "MemorySystem":
        """Return the memory system as the caller of this session may use it."""
        own = self.caller
        where = {"namespace": own.namespace, "project": self.record.project}
        return memory.cleared_for(own.clearance, rights=own.rights, principal=own.principal, **where)

    @asynccontextmanager
    async def hold_turn(self) -> AsyncIterator[None]:
        """Hold the session for a turn. Costly reads within its first second are answered as of its start.

        Raises `SessionNotFound` if it was moved to where the caller may not go, and `ClosedResource`.
        """
        self.check(None)
        self._environment.check_there()
        await self.turn_order.take(self._reads)
        try:
            if (record := self._catalog.sessions.glance(self.id)) is not None:
                self._use_record(record)
            own = self.caller
            if not self.record.is_open_to(own.clearance, own.namespace, own.project):
                raise SessionNotFound.of(self.id)
            yield
        finally:
            self._fresh_at = 0.0
            await self.turn_order.release()

    def _use_record(self, record: SessionRecord) -> None:
        """Use this current record: others may have moved or marked the session."""
        self.record = record.used(self.record.used_at)

    def _reads(self) -> list[object]:
        fresh_at = time.monotonic()
        reads = [each for store in self._stores.values() for each in store.turn_reads(self._ref, fresh_at)]
        self._fresh_at = fresh_at if reads else 0.0
        return [*reads, *self._catalog.sessions.turn_reads(self.id, self._use_record)]

    @property
    def saves_trips(self) -> bool:
        """True if `write_turn` saves round trips."""
        return self._catalog.backend.saves_trips

    async def write_turn(
        self,
        *,
        entries: Sequence[TranscriptEntry] = (),
        bills: Sequence[Callable[[], object]] = (),
        events: Sequence[Event] = (),
        receipt: dict[str, Any] | None = None,
    ) -> WriteResult:
        """Write the parts of a turn one after another, or in one transaction if that saves round trips.

        Such a transaction also ends the turn if there is a receipt. Durable on return. Failures are in the result.
        """
        self.check("write")
        result = WriteResult()
        writes: list[tuple[str, Write]] = [("bills", bill) for bill in bills]
        if entries:
            store = self._store(TranscriptStore)
            append = partial(store.transcript_append, self._ref, entries)
            writes.append(("entries", store.blocking_append(self._ref, entries) or append))
        if events:
            writes.append(("events", self._commit_write(events, result.outcomes)))
        if receipt is not None:
            writes.append(("receipt", partial(self._catalog.receipts(self._ref).append, [receipt])))
        if self.saves_trips and not any(iscoroutinefunction(write) for _, write in writes):
            ending = [] if receipt is None else [self.turn_order.release_lease]  # its failure is not reported
            failed = await asyncio.to_thread(
                self._catalog.backend.write_together, [*(each for _, each in writes), *ending]
            )
        else:
            failed = [await _failure_of(write) for _, write in writes]
        result.failed = {name: error for (name, _), error in zip(writes, failed, strict=False) if error is not None}
        if entries:
            await self._note_used()
        return result

    def _commit_write(self, events: Sequence[Event], outcomes: list[Outcome]) -> Write:
        scope = self._scope()
        commit = scope.store.blocking_commit(scope.write_view().asking_all(), events)

        async def attempt() -> None:
            outcomes.extend(await scope.attempt(events))

        return attempt if commit is None else lambda: outcomes.extend(commit())

    def supports(self, contract: type[Store]) -> bool:
        """Return whether one of the session's stores implements `contract`."""
        return any(isinstance(store, contract) for store in self._stores.values())

    async def kv_get(self, key: str) -> str | None:
        """Return the value of `key`, or None."""
        return await self._store(KeyValueStore, "read").kv_get(self._ref_as_of(), key)

    async def kv_set(self, key: str, value: str) -> None:
        """Keep `value` as the newest entry. Durable on return. Raises `InvalidValue` for an empty or very long key."""
        await self._store(KeyValueStore, "write").kv_set(self._ref, KeyValue(key, value, self._environment.clock()))

    async def kv_delete(self, key: str) -> bool:
        """Remove `key`; return whether it existed. Durable on return."""
        return await self._store(KeyValueStore, "write").kv_delete(self._ref, key)

    async def kv_entries(self) -> list[KeyValue]:
        """Return all key-value entries, in the order in which they were set."""
        return await self._store(KeyValueStore, "read").kv_entries(self._ref_as_of())

    async def choices(self) -> Choices:
        """Return what was chosen for the session; the defaults if nothing was, or nowhere to keep it."""
        return Choices.parse(await self.kv_get(CHOICES) if self.supports(KeyValueStore) else None)

    async def choose(self, choices: Choices) -> None:
        """Keep what was chosen for the session, and when memory was turned off or on. Durable on return."""
        own = await self.choices()
        is_same, now = choices.memory == own.memory, format_time(self._environment.clock())
        await self.kv_set(CHOICES, replace(choices, memory_at=own.memory_at if is_same else now).as_text())

    async def working_memory_read(self) -> str:
        """Return the value of the key `working_memory`; empty if it was never set."""
        return await self.kv_get("working_memory") or ""

    async def transcript_append(self, role: str, content: str) -> TranscriptEntry:
        """Add an entry at the end, stamped with the current time, and return it. Durable on return."""
        entry = TranscriptEntry(role, content, self._environment.clock())
        await self.transcript_extend([entry])
        return entry

    async def transcript_extend(self, entries: Iterable[TranscriptEntry]) -> None:
        """Add entries at the end, together and with their own times. Durable on return."""
        self.check("write")
        given = check_type(entries, Iterable, "entries")
        if entries := [check_type(each, TranscriptEntry, "an entry") for each in given]:
            await self._store(TranscriptStore).transcript_append(self._ref, entries)
            await self._note_used()

    async def transcript_read_last(self, n: int = 20) -> list[TranscriptEntry]:
        """Return the last `n` entries, archived ones too, oldest first; an empty list for `n` below 1."""
        return await self._store(TranscriptStore, "read").transcript_read_last(self._ref_as_of(), check_number(n, "n"))

    async def transcript_read_all(self) -> list[TranscriptEntry]:
        """Return every entry that is still known, archived ones first."""
        return await self._store(TranscriptStore, "read").transcript_read_all(self._ref)

    async def transcript_count(self, roles: Collection[str] = ()) -> int:
        """Count the entries still known, archived ones included; only those of the roles, if any are named."""
        return await self._store(TranscriptStore, "read").transcript_count(self._ref, roles)

    def transcript_place(self) -> tuple[TranscriptStore, SessionRef]:
        """Return the store of the transcript, and the session's reference in it, to read those of many at once."""
        return self._store(TranscriptStore, "read"), self._ref

    async def transcript_drop_last(self, n: int, instead: Sequence[TranscriptEntry] = ()) -> list[TranscriptEntry]:
        """Remove the last `n` entries, archived ones too, permanently; return them, oldest first. Durable on return.

        `instead` takes their place in one step.
        """
        store = self._store(TranscriptStore, "write")
        last = await store.transcript_read_last(self._ref, check_number(n, "n"))
        if turns := [entry.at for entry in last if entry.role == "user"]:
            await self._take_back(turns)
        dropped = await store.transcript_drop_last(self._ref, check_number(n, "n"), instead)
        await asyncio.to_thread(self._catalog.terms.forget, {self.id}.__contains__)
        if instead:
            await self._note_used()
        return dropped

    async def transcript_clear(self) -> int:
        """Erase all entries permanently, archived ones too, with their summaries and attachments; return how many.

        Memories of the session stay: see `purge`. Durable on return.
        """
        store = self._store(TranscriptStore, "write")
        await self._take_back(None)
        cleared = await store.transcript_clear(self._ref)
        await asyncio.to_thread(self._catalog.terms.forget, {self.id}.__contains__)
        for key in SUMMARY_KEYS if self.supports(KeyValueStore) else ():
            await self.kv_delete(key)
        await self.drop_unnamed_attachments()
        return cleared

    async def rename(self, title: str, *, instead_of: str | None = None) -> None:
        """Set the title; an empty one removes it. With `instead_of`, only if that is its title. Durable on return."""
        await self._change("write", lambda each: each.renamed(title) if instead_of in {None, each.title} else each)

    async def pin(self, *, undo: bool = False) -> None:
        """Pin the session, so that lists for people show it first, or unpin it. Durable on return."""
        now = self._environment.clock()
        await self._change("write", lambda record: replace(record, pinned_at=None if undo else record.pinned_at or now))

    async def mark(self, sensitivity: Sensitivity) -> None:
        """Set the sensitivity of the session, and of its memories and facts that have the former one.

        If it has that sensitivity, less sensitive ones get it: after a kill midway it can be repeated. Durable on
        return. New memories are at least as sensitive. To lower it needs the right `declassify`.
        """
        self.check("write")
        self._use_record(await self._catalog.get(self.id))  # another process may have marked it
        former = self.record.sensitivity
        marked = replace(self.record, sensitivity=sensitivity)  # raises for an invalid one
        less = SENSITIVITIES[: SENSITIVITIES.index(marked.sensitivity)]
        if former not in {*less, sensitivity}:
            self.check("declassify")
        those = less if former == sensitivity else (former,)
        remembers = self.supports(ObservationStore)
        if remembers:
            await self._mark_memories(those, sensitivity)
        await self._change("write", lambda record: replace(record, sensitivity=sensitivity))
        if remembers:
            if self.saves_trips and not await self.turn_order.is_free():  # a turn may go by what it has read
                await asyncio.sleep(2 * _FRESH_FOR_S)
            await self._mark_memories(those, sensitivity)  # those that another process has just written

    async def _mark_memories(self, those: Collection[Sensitivity], sensitivity: Sensitivity) -> None:
        for row in await self.memory.every(session_id=self.id, sensitivities=those, statuses=STATUSES):
            await self.memory.update(row.id, sensitivity=sensitivity)
        scope = self._scope()
        facts = await scope.store.facts(scope.view(those), FactFilter(session_id=self.id), limit=EVERY)
        new = (dataclasses.replace(fact, sensitivity=sensitivity) for fact in facts if fact.source is None)
        await scope.commit(*(Event(kind="triple", at=scope.clock(), triple=each, who=self.agent_id) for each in new))

    async def move(self, project: str) -> int:
        """Move the session with its memories and facts to a project, or to none if empty; return how many moved.

        Durable on return. Can be repeated after a kill midway.
        """
        where = self.caller.narrowed(project=project).project or ""
        await self._change("write", lambda record: replace(record, project=where))
        if not self.supports(ObservationStore):
            return 0
        scope = self._scope()
        everywhere = replace(scope, caller=replace(scope.caller, project=self.caller.project))
        return await Memory(everywhere).move(where, session_id=self.id)

    async def note_history(self, history: str) -> None:
        """Store digests of a conversation, to find the session for a client that sends all messages. Durable."""
        await self._change("chat", lambda record: replace(record, history=history))

    async def _change(self, right: Right, change: Callable[[SessionRecord], SessionRecord]) -> None:
        self.check(right)
        self._use_record(await self._catalog.change(self.id, change))

    async def receipt_append(self, receipt: dict[str, Any]) -> None:
        """Keep the record of a turn, or of other work, which has a `kind`. Durable on return."""
        self.check("write")
        await asyncio.to_thread(self._catalog.receipts(self._ref).append, [receipt])

    async def take_back_turn(self, at: datetime, title: str = "") -> None:
        """Delete what was said in the turn that began `at` from receipts and title, or `title`. Durable on return."""
        self.check("write")
        await self._take_back([at], title)

    async def _take_back(self, turns: Collection[datetime] | None, title: str = "") -> None:
        """Delete the words of turns, or of all, from receipts: a sync counts messages that still have one as lost."""
        await self._catalog.take_back(self._ref, turns, title)
        self.record = await self._catalog.get(self.id)

    async def receipts(self) -> list[dict[str, Any]]:
        """Return the record of every turn, oldest first."""
        return [record for record in await self.records() if "kind" not in record]

    async def records(self) -> list[dict[str, Any]]:
        """Return every record, oldest first: of turns, and of other work."""
        self.check("read")
        return await asyncio.to_thread(self._catalog.receipts(self._ref).all)

    async def receipts_since(self, moment: datetime) -> list[dict[str, Any]]:
        """Return the record of every turn from `moment` on, oldest first; reads no further back."""
        self.check("read")
        return [record for record in await self._records_since(self._ref, moment) if "kind" not in record]

    async def note_not_kept(self, at: datetime) -> None:
        """Record that the message of that time must not be remembered. Durable on return."""
        await self.receipt_append({"version": 1, "kind": NOT_KEPT, "at": format_time(at)})

    async def times_not_kept(self, since: datetime) -> set[str]:
        """Return the times of the messages from `since` on that must not be remembered."""
        self.check("read")
        return {each["at"] for each in await self._records_since(self._ref, since) if each.get("kind") == NOT_KEPT}

    async def _records_since(self, session: SessionRef, moment: datetime) -> list[dict[str, Any]]:
        receipts, earliest = self._catalog.receipts(session), format_time(moment)  # in UTC: its text sorts by time

        def is_since(record: dict[str, Any]) -> bool:
            return str(record.get("at", "")) >= earliest or record.get("kind") == HANDED_OVER  # those come late

        def may_follow(record: dict[str, Any]) -> bool:  # the clock may have been set back before it
            return is_since(record) or "kind" in record or "taken_back" in record

        def read() -> list[dict[str, Any]]:
            return [*filter(is_since, takewhile(may_follow, receipts.newest_first()))][::-1]

        return await asyncio.to_thread(read)

    async def remembered_since(self, moment: datetime) -> list[tuple[str, str]]:
        """Return the times of remembered turns from `moment` on, each with the id of its row.

        For a fork also those of the sessions that it was made from, even if they were deleted: see `hand_over`.
        """
        return [(str(each["at"]), str(each["remembered"])) for each in await self._remembered_since(moment)]

    async def _remembered_since(self, moment: datetime) -> list[dict[str, Any]]:
        self.check("read")
        receipts = await self._records_since(self._ref, moment)
        for ancestor, _ in await self._ancestors():
            with suppress(errors.MissingFolder):  # it was deleted
                receipts += await self._records_since(self._catalog.ref(ancestor), moment)
        return [each for each in receipts if each.get("remembered")]

    async def hand_over(self, forks: Iterable[str], *, own: bool = True) -> None:
        """Note in forks which of their turns were remembered, before the session is deleted. Durable on return.

        Without its `own`, only turns of the sessions that it was made from, and those whose memories are gone.
        """
        self.check("erase")
        turns = [handed_over(each) for each in await self._remembered_since(EPOCH)]
        if turns and not own and self.supports(ObservationStore):
            rows = await self.memory.every(session_id=self.id, statuses=STATUSES, sensitivities=SENSITIVITIES)
            there = {row.id for row in rows if row.status != "deleted"}
            turns = [each for each in turns if each["remembered"] not in there]
        for fork in forks if turns and self.supports(TranscriptStore) else ():
            with suppress(errors.MissingFolder, errors.DamagedFile, SessionNotFound):
                said = await self._store(TranscriptStore, "read").transcript_read_all(self._catalog.ref(fork))
                times = {format_time(each.at) for each in said}  # the clock of its machine may be another
                theirs = [each for each in turns if each["at"] in times]
                await asyncio.to_thread(self._catalog.receipts(self._catalog.ref(fork)).append, theirs)

    async def list_files(self) -> list[SessionFile]:
        """Return the files in the session's folder, sorted by name; none for a session without a folder."""
        self.check("read")
        return await asyncio.to_thread(self._catalog.sessions.files, self._ref)

    async def stream_file(self, name: str) -> AsyncIterator[bytes]:
        """Yield a file of `list_files` in chunks of at most 64 KiB. Raises `UnsafePath` or `FileNotFoundError`."""
        self.check("read")
        async for chunk in self._catalog.sessions.stream_file(self._ref, name):
            yield chunk

    async def attach(self, parts: Iterable[tuple[bytes, str]]) -> list[str]:
        """Keep files with the session, each with the suffix of its kind; return their names. Durable on return."""
        blobs = self._blobs("write")
        return await asyncio.to_thread(lambda: [blobs.put(data, suffix) for data, suffix in parts])

    async def attachment(self, name: str) -> bytes | None:
        """Return the bytes of an attachment; None if there is none. Raises `UnsafePath` or `DamagedFile`."""
        return await asyncio.to_thread(self._blobs("read").read, name)

    async def attachments(self) -> dict[str, int]:
        """Return the sizes of the session's attachments in bytes, by name."""
        return await asyncio.to_thread(self._blobs("read").sizes)

    async def drop_unnamed_attachments(self) -> int:
        """Erase attachments that no message names any more; return how many. Durable on return."""
        blobs = self._blobs("write")
        if not (names := await asyncio.to_thread(blobs.sizes)):
            return 0
        said = [entry.content for entry in await self._store(TranscriptStore).transcript_read_all(self._ref)]
        unnamed = [name for name in names if not any(name in content for content in said)]
        await asyncio.to_thread(lambda: [blobs.drop(name) for name in unnamed])
        return len(unnamed)

    def _blobs(self, right: Right) -> Blobs:
        self.check(right)
        return self._catalog.place_of(self._ref).blobs(ATTACHMENTS)

    async def copy_to(self, other: "SessionHandle", *, entries: int | None = None) -> None:
        """Copy everything in the session's stores into a new session, with the attachments that its messages name.

        Copies only the first `entries` of the transcript, if given. Raises `InvalidValue` if it has fewer.
        """
        blobs = self._blobs("read")
        kept = await self._store(KeyValueStore).kv_entries(self._ref) if self.supports(KeyValueStore) else []
        said: list[TranscriptEntry] = []
        if self.supports(TranscriptStore):
            said = await self._store(TranscriptStore).transcript_read_all(self._ref)
            if entries is not None and not 0 <= check_number(entries, "at") <= len(said):
                raise errors.InvalidValue(f"entry {entries} does not exist: the session has {len(said)}")
            said = said[:entries]
        named = [name for name in await asyncio.to_thread(blobs.sizes) if any(name in each.content for each in said)]
        files = ((data, suffix_of(name)) for name in named if (data := blobs.read(name)) is not None)
        key_values = [each for each in kept if entries is None or each.key not in SUMMARY_KEYS]
        unkept = [each for each in await self.records() if each.get("kind") == NOT_KEPT]
        await other.take_in(said, key_values, unkept, files)

    async def take_in(
        self,
        entries: Sequence[TranscriptEntry],
        key_values: Sequence[KeyValue] = (),
        receipts: Sequence[dict[str, Any]] = (),
        attachments: Iterable[tuple[bytes, str]] = (),
    ) -> None:
        """Write the content of a new session. Raises `UnsupportedOperation` for entries without a transcript store."""
        await self.attach(attachments)
        if entries:
            await self._store(TranscriptStore).transcript_append(self._ref, entries)
        if self.supports(KeyValueStore):
            for entry in key_values:
                await self._store(KeyValueStore).kv_set(self._ref, entry)
        if receipts:
            await asyncio.to_thread(self._catalog.receipts(self._ref).append, receipts)

    def _with_rights(self, rights: frozenset[Right]) -> "SessionHandle":
        other = copy(self)
        other.caller = replace(self.caller, rights=rights)
        return other

    async def _ancestors(self) -> list[tuple[str, datetime]]:
        """Return the sessions that this one was forked from, each with the time of the fork."""
        line: dict[str, datetime] = {}
        record = self.record
        while record.parent is not None and record.parent not in {self.id, *line}:
            line[record.parent] = record.created_at
            try:
                record = await self._catalog.get(record.parent)
            except SessionError:  # it is gone, or damaged; its memories are kept
                break
        return list(line.items())

    def _ref_as_of(self) -> SessionRef:
        return replace(self._ref, fresh_at=self._as_of())

    def _as_of(self) -> float:
        """Return the time of the turn's first reads, while others may be answered as of then; else 0."""
        return self._fresh_at if time.monotonic() - self._fresh_at < _FRESH_FOR_S else 0.0

    def _store(self, contract: type[Contract], right: Right | None = None) -> Contract:
        """Return the store that implements `contract`, for a caller with the right."""
        self.check(right)
        for store in self._stores.values():
            if isinstance(store, contract):
                return store
        has = ", ".join(f"{name} ({' and '.join(contracts_of(type(store)))})" for name, store in self._stores.items())
        raise errors.UnsupportedOperation(
            f"session {self.id} has no {CONTRACTS[contract]} store: it uses {has or 'no stores at all'}"
        )

    async def _note_used(self) -> None:
        """Record last use, at most once a minute unless another session was used since, to save writes."""
        now, ttl, known = self._environment.clock(), self._environment.ttl, self.record
        until = None if ttl is None else now + ttl
        is_prolonged = until is not None and (known.expires_at is None or until - known.expires_at > _NOTED_FOR)
        if is_prolonged or self._catalog.used_last != self.id or now - known.used_at > _NOTED_FOR:
            self.record = replace(known.used(now), expires_at=until or known.expires_at)
            await self._catalog.note_used(self.id, now, until)


async def _failure_of(write: Write) -> errors.StoreError | None:
    try:
        await (write() if iscoroutinefunction(write) else asyncio.to_thread(write))
    except errors.StoreError as error:
        return error
    return None
