"""`MemorySystem`: creates, finds, changes and deletes sessions, and opens the stores that they share."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from msgspec import Struct, field
from msgspec.structs import replace

from chatbot.errors import AmbiguousSession, ChatbotError, SessionError, SessionExpired, SessionNotFound, WrongAgent
from chatbot.memory.erasure import Erasure, Target, erase, erasure, joined
from chatbot.memory.handle import SUMMARY_KEYS, SessionHandle
from chatbot.memory.memory import Memory
from chatbot.memory.origins import Tombstones, mark_of_deleted, marks_of_session
from chatbot.memory.scope import (
    Caller,
    Environment,
    Observable,
    Scope,
    Tell,
    bar,
    new_id,
    standing_questions,
    utc_now,
)
from chatbot.memory.scoring import PROFILES, ScoringProfile
from chatbot.memory.session_catalog import MESSAGES, SessionCatalog, SessionFilter, TurnOrder
from chatbot.memory.session_search import SessionHit, search
from chatbot.stores.access import OWNER, Clearance, Right, least_clearance
from chatbot.stores.backend import Backend
from chatbot.stores.backends import open_backend
from chatbot.stores.base import KeyValueStore, ObservationStore, SessionStore, Store
from chatbot.stores.errors import InvalidValue, ReadOnlyFolder, StoreError, UnknownStore, UnsupportedOperation
from chatbot.stores.fields import check_key
from chatbot.stores.home import Home, parse_home
from chatbot.stores.lifecycle import AsyncResource
from chatbot.stores.loops import to_its_end
from chatbot.stores.plugins import open_store
from chatbot.stores.query import Progress
from chatbot.stores.records import KeyValue, SessionRecord, SessionRef, TranscriptEntry, check_text, is_session_id
from chatbot.stores.session_terms import SessionTerms
from chatbot.stores.span import count, observed, span

if TYPE_CHECKING:
    from chatbot.config import MaintenanceSettings, StandingSettings
    from chatbot.embedding import Embedder, EmbeddingResult
    from chatbot.memory.meaning import Billing, Meaning
    from chatbot.memory.policy import MaintenanceReport, Part
    from chatbot.memory.upkeep import UpkeepFile

logger = logging.getLogger(__name__)

_SHOWN_MATCHES = 5
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class SystemOptions(Struct, frozen=True, kw_only=True):
    """Advanced settings of a memory system."""

    observations: str | None = None
    """Store of memories without a session; by default `observations`, or `in_memory` without a home."""
    plugins_beside: Path | None = None
    """Folder to search for plug-ins."""
    profiles: Mapping[str, ScoringProfile] = field(default_factory=lambda: PROFILES)
    """Profiles of ranking: `search`, `recent`, `inject` and custom ones."""
    questions: Callable[[], Sequence[StandingSettings]] = standing_questions
    """Returns the standing questions."""
    bill: Billing | None = None
    """Called after each call of the embedder, to bill it."""
    tell: Tell | None = None
    """Called after each operation."""
    project: str = ""
    """Project of new sessions of a caller that is not in a project."""


class MemorySystem(AsyncResource, Observable):
    """Issues sessions of one identity for one caller, and the memory without a session, over pluggable stores.

    `home` is the identity's memory folder, made when first needed, or its address in a database, such as
    `postgresql://user@host/database#ada`; None keeps everything in memory and writes nothing.
    `settings` configures stores by name; sessions expire `ttl` after their last use; `embedder` finds rows by meaning,
    and is closed with the system. A stored session may use a store `module:Class` only if `settings` or an earlier
    `create_session` name it. Open with `async with`; any number of processes may share one `home`.
    """

    def __init__(
        self,
        home: Home | str | None,
        caller: Caller | None = None,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        ttl: timedelta | None = None,
        embedder: Embedder | None = None,
        clock: Callable[[], datetime] = utc_now,
        options: SystemOptions | None = None,
    ) -> None:
        self.where: Home | None = parse_home(home) if isinstance(home, str) else home
        """Folder or address of the memory; None if nothing is kept."""
        self.caller = caller or Caller()
        self._settings = settings or {}
        self._ttl = ttl
        self._embedder = embedder
        self._clock = clock
        self._options = options or SystemOptions()
        self._chosen = {*self._settings}
        """Stores that this program named. No others are loaded: a session's record could name any code."""
        self.backend: Backend = open_backend(self.where)
        self.tombstones = Tombstones(self.backend)
        self._keyed_order = TurnOrder(self.backend.lease("keyed"))
        self._environment = Environment(
            clock,
            profiles=self._options.profiles,
            questions=self._options.questions,
            meaning_of=self._meaning_of,
            tell=self._options.tell,
            erase_quotes=self._erase_quotes,
            tombstones=self.tombstones,
            keyed=self._keyed_order,
        )
        self._meanings: dict[int, Meaning] = {}
        self._observations = self._options.observations or ("in_memory" if home is None else "observations")
        self._catalog = SessionCatalog(self.backend)
        self._terms = SessionTerms.of(self.where, self._cache_root())
        self._stores: dict[str, Store] = {}
        self._opening_stores = threading.Lock()
        self._upkeep: UpkeepFile | None = None
        self._turn_orders: WeakValueDictionary[str, TurnOrder] = WeakValueDictionary()

    @property
    def home(self) -> Path | None:
        """The identity's memory folder; None for a database or memory."""
        return self.where if isinstance(self.where, Path) else None

    async def embed(self, texts: Sequence[str]) -> tuple[str, EmbeddingResult]:
        """Return the name of the embedder and its vectors of these texts; billed as for memories.

        Raises `UnsupportedOperation` without an embedder, or its `ModelError`.
        """
        if self._embedder is None:
            raise UnsupportedOperation("this identity has no embedding model: see model in [embedding]")
        begun = time.monotonic()
        found = await self._embedder.embed(texts)
        if self._options.bill is not None:
            await self._options.bill(self._embedder.name, found.usage, time.monotonic() - begun)
        return self._embedder.name, found

    def cleared_for(
        self,
        clearance: Clearance = "full",
        *,
        rights: Collection[Right] | None = None,
        principal: str | None = None,
        namespace: str | None = None,
        project: str | None = None,
    ) -> MemorySystem:
        """Return the same memory for a caller who may see or do less, in a namespace and project they may enter.

        Rows and sessions that they make belong to `principal`, by default the user of a user's namespace. Raises
        `AccessDenied` for more than this caller may. Closing either closes both.
        """
        caller = self.caller.narrowed(
            clearance, rights=rights, principal=principal, namespace=namespace, project=project
        )
        if caller == self.caller:
            return self
        seen = copy(self)
        seen.caller = caller
        return seen

    async def create_session(self, store_types: Sequence[str], agent_id: str, *, title: str = "") -> SessionHandle:
        """Create a session that uses these stores. Durable on return.

        It never shows more than the caller may see; `cleared_for` first for less clearance, another namespace, or a
        project.
        """
        self.caller.check("chat")
        return await self._created(self._new_record(_names(store_types), agent_id, title))

    async def keyed_session(
        self, key: str, store_types: Sequence[str], agent_id: str, *, title: str = ""
    ) -> SessionHandle:
        """Return the agent's session under the caller's key; create it with these stores if there is none.

        All callers that ask for the same key at the same time, in any process, get the same session.
        """
        self.caller.check("chat")
        check_key(key)
        origin = f"key:{key}"
        async with self._keyed_order:
            known = await self._find_open(lambda record: (record.agent_id, record.origin) == (agent_id, origin), None)
            if known:
                return await self.load_session(known[-1].id, agent_id)
            record = self._new_record(_names(store_types), agent_id, title)
            return await to_its_end(self._created(replace(record, origin=origin)))

    async def _created(self, record: SessionRecord) -> SessionHandle:
        stores = self._open_stores(record.store_types)
        self._chosen.update(record.store_types)
        await self._catalog.make(record)
        return self._handle(record, stores)

    async def load_session(
        self,
        session_id: str,
        agent_id: str | None = None,
        *,
        any_agent: bool = False,
    ) -> SessionHandle:
        """Load a session; reads no other.

        Raises `SessionNotFound`, also for one that is not open to the caller; `SessionExpired`; or `WrongAgent` if the
        session is not of `agent_id`, without `any_agent`.
        """
        record = await self._open_record(session_id)
        if not any_agent and record.agent_id != agent_id:
            raise WrongAgent(f"session {session_id} belongs to the agent {record.agent_id!r}, not to {agent_id!r}")
        now = self._clock()
        if record.is_expired(now):
            raise SessionExpired(f"session {session_id} expired at {record.expires_at}")
        if self._ttl is not None:
            until = now + self._ttl
            with suppress(ReadOnlyFolder):  # then its last use is not recorded
                record = await self._catalog.change(
                    session_id, lambda record: replace(record, expires_at=until).used(now)
                )
        return self._handle(record, self._stores_of(record))

    async def list_sessions(
        self,
        agent_id: str | None = None,
        *,
        limit: int | None = None,
        wanted: Callable[[SessionRecord], bool] = lambda _: True,
    ) -> list[SessionRecord]:
        """Return the open sessions, the one used last first, archived ones too; of one agent, or of all.

        A session is open if it is in the caller's namespace and project, needs no higher clearance and has not expired.
        """
        self.caller.check("read")
        return await self._find_open(lambda record: agent_id in {None, record.agent_id} and wanted(record), limit)

    async def choose_sessions(self, wanted: SessionFilter) -> list[SessionRecord]:
        """Return the open sessions that fit, the one used last first. Sessions are read only to filter by messages.

        Raises `SessionNotFound` if the session `wanted.behind` is gone.
        """
        self.caller.check("read")
        if wanted.behind is not None:
            await self._open_record(wanted.behind)
        limit = None if wanted.looks_inside else wanted.limit
        records = await self._find_open(wanted.fits, limit, behind=wanted.behind)
        if not wanted.looks_inside:
            return records
        chosen: list[SessionRecord] = []
        for record in records:
            if wanted.limit is not None and len(chosen) >= wanted.limit:
                break
            if await self._is_filled_as(record, wanted):
                chosen.append(record)
        return chosen

    async def search_sessions(
        self,
        text: str,
        *,
        limit: int = 10,
        wanted: SessionFilter | None = None,
        exclude: Collection[str] = (),
        progress: Progress | None = None,
    ) -> list[SessionHit]:
        """Return the open sessions that match `text`, best first, each with its best line.

        Archived ones are searched too, unless `wanted` excludes them. `progress` is called while many changed sessions
        are read.
        """
        self.caller.check("read")
        every = await self._catalog.find(lambda _: True)
        await asyncio.to_thread(self._terms.forget_others, {record.id for record in every})
        wanted = replace(wanted or SessionFilter(), limit=None)
        if wanted.looks_inside or wanted.behind is not None:
            chosen = await self.choose_sessions(wanted)
        else:
            is_open = self._opening()
            chosen = [record for record in every if is_open(record) and wanted.fits(record)]
        sessions = [
            handle for record in chosen if record.id not in exclude and (handle := self._openable(record)) is not None
        ]
        return await search(sessions, text, self._terms, self._observing(), limit=limit, progress=progress)

    async def latest_session(self, agent_id: str) -> SessionHandle | None:
        """Return the agent's session that was used last; None if it has none."""
        records = await self.choose_sessions(SessionFilter(agent_id=agent_id, is_archived=False, limit=1))
        return await self.load_session(records[0].id, agent_id) if records else None

    async def find_session(self, text: str, agent_id: str | None = None) -> SessionRecord:
        """Return the open session with the id, beginning of an id, or title `text`, whatever the case.

        Raises `SessionNotFound`, or `AmbiguousSession` with the matches.
        """
        self.caller.check("read")
        if is_session_id(text):
            return await self._open_record(text)
        wanted = text.casefold()
        sessions = await self.list_sessions(agent_id)
        matches = [record for record in sessions if record.title.casefold() == wanted]
        matches = matches or [record for record in sessions if wanted and record.id.startswith(wanted)]
        if not matches:
            raise SessionNotFound(f"no session matches {text!r}")
        if len(matches) > 1:
            listed = ", ".join(f"{record.id} {record.title}".strip() for record in matches[:_SHOWN_MATCHES])
            raise AmbiguousSession(f"{text!r} matches {len(matches)} sessions: {listed}")
        return matches[0]

    async def rename_session(self, session_id: str, title: str) -> SessionRecord:
        """Give a session a title; an empty one takes it away."""
        now = self._clock()
        self.caller.check("write", await self._open_record(session_id))
        return await self._catalog.change(session_id, lambda record: record.renamed(title).used(now))

    async def archive_session(self, session_id: str, *, undo: bool = False) -> SessionRecord:
        """Archive a session, so that lists leave it out, or undo that. It can still be opened and searched."""
        now = self._clock()
        self.caller.check("write", await self._open_record(session_id))
        return await self._catalog.change(
            session_id, lambda record: replace(record, archived_at=None if undo else record.archived_at or now)
        )

    async def fork_session(
        self, session_id: str, agent_id: str | None = None, *, title: str = "", at: int | None = None
    ) -> SessionHandle:
        """Create a session with a copy of everything that the old one holds.

        With `at`, copy only the first `at` entries, archived ones counted; raises `InvalidValue` if there are fewer. It
        belongs to `agent_id`, or to the old agent. Receipts are not copied: they were paid once. A session of another
        principal needs the right `curate`.
        """
        source = await self.load_session(session_id, any_agent=True)
        source.check("write")
        old = source.record
        record = self._new_record(old.store_types, agent_id or old.agent_id, title or old.title, old.id)
        record = replace(record, clearance=old.clearance, sensitivity=old.sensitivity, project=old.project)
        async with self._catalog.making(record) as draft:
            await source.copy_to(draft, entries=at)
        return self._handle(record, self._stores_of(record))

    async def compare_sessions(self, left: str, right: str) -> Comparison:
        """Return the common beginning of two sessions, and how each continues."""
        said = [
            await (await self.load_session(session_id, any_agent=True)).transcript_read_all()
            for session_id in (left, right)
        ]
        return compare(*said)

    async def adopt_session(
        self,
        record: SessionRecord,
        entries: Sequence[TranscriptEntry],
        *,
        key_values: Sequence[KeyValue] = (),
        receipts: Sequence[dict[str, Any]] = (),
        attachments: Iterable[tuple[bytes, str]] = (),
    ) -> SessionHandle:
        """Add a session from elsewhere, whole or not at all, with its own times.

        It never shows more than the caller's clearance allows. Call `reorder_sessions` after the last one. Raises
        `InvalidValue` if the id exists.
        """
        if await self.is_taken(record.id):
            raise InvalidValue(f"session {record.id} already exists")
        self.caller.check("write")
        clearance = least_clearance(self.caller.clearance, record.clearance)
        record = replace(record, clearance=clearance, expires_at=self._expiry())
        record = replace(record, namespace=self.caller.namespace, principal=self.caller.principal)
        if self.caller.project is not None:
            record = replace(record, project=self.caller.project)
        stores = self._stores_of(record)
        async with self._catalog.making(record) as draft:
            order = TurnOrder(self._catalog.turn_lease(draft))
            handle = self._handle(record, stores, ref=draft, turn_order=order)
            await handle.take_in(entries, key_values, receipts, attachments)
        return self._handle(record, stores)

    async def reorder_sessions(self) -> None:
        """Bring adopted sessions into the order of their last use."""
        await self._catalog.reorder()

    async def delete_session(self, session_id: str, *, keep_memory: bool = False) -> Erasure:
        """Erase a session with its files and, unless `keep_memory`, its memories.

        Those are all observations and facts of the session that the caller may see, with everything derived from them.
        An import does not bring them back. Forks keep their copy and their memories: the answer names them. The session
        goes last: after a kill midway it can be deleted again. Raises `SessionNotFound`, or `MissingRight` without
        `erase`.
        """
        record = await self._open_record(session_id)
        self.caller.check("erase", record)
        return await self._erase(record, self.caller, keep_memory=keep_memory)

    async def deleting(self, session_id: str) -> Erasure:
        """Return what `delete_session` would erase; nothing is changed. Needs `read` and `erase`.

        Raises `SessionNotFound`, or `MissingRight`.
        """
        record = await self._open_record(session_id)
        self.caller.check("erase", record)
        found = [await erasure(scope, Target(session=record.id)) for scope in self._scopes_of(record, self.caller)]
        return joined(found, forks=await self._forks_of(record.id))

    async def sessions_anywhere(self) -> list[SessionRecord]:
        """Return the sessions of this namespace and of those that may be entered from it, expired ones too.

        For the management of users: whether a session is open to the caller is not checked.
        """
        own = self.caller
        return await self._catalog.find(
            lambda record: (
                record.namespace == own.namespace
                or (bool(own.namespace) and record.namespace.startswith(f"{own.namespace}/"))
                or own.may_cross
            )
        )

    async def erase_session(self, record: SessionRecord) -> Erasure:
        """Delete a session of this namespace with its memory, whatever clearance it needs. Needs `erase`.

        Raises `SessionNotFound` for one of another namespace, or if another process was faster.
        """
        self.caller.check("erase")
        if record.namespace != self.caller.namespace:
            raise SessionNotFound(f"no session has the id {record.id}")
        return await self._erase(record, self.caller.raised(clearance="full"), keep_memory=False)

    async def expired_sessions(self) -> list[SessionRecord]:
        """Return the expired sessions that are not erased yet and that the caller may know of.

        The owner may know of those of every namespace.
        """
        return [record for record in await self._expired() if self._may_know(record)]

    def _may_know(self, record: SessionRecord) -> bool:
        own = self.caller
        return record.is_open_to(own.clearance, record.namespace if own.may_cross else own.namespace, own.project)

    async def _expired(self) -> list[SessionRecord]:
        now = self._clock()
        return await self._catalog.find(lambda record: record.is_expired(now))

    async def expire_sessions(self, *, keep_memory: bool = True) -> list[str]:
        """Erase all expired sessions that can be erased. Return the ids that the caller may know of.

        Their memories stay, unless `keep_memory` is false: then all of them are erased, visible or not.
        """
        now = self._clock()
        erased = []
        for record in await self._expired():
            try:
                if (await self._catalog.get(record.id)).is_expired(now):  # the index can lag behind
                    await self._erase(record, self._owner_in(record.namespace), keep_memory=keep_memory)
                    erased.extend([record.id] * self._may_know(record))
            except SessionNotFound:
                continue  # another process was faster
            except (SessionError, StoreError) as error:
                logger.warning("session %s is expired and could not be erased: %s", record.id, error)
        return erased

    async def maintain(
        self,
        policy: MaintenanceSettings | None = None,
        *,
        part: Part = "",
        stores: Sequence[str] | None = None,
        dry_run: bool = False,
        unless_within: timedelta = timedelta(0),
        whole: bool = False,
    ) -> MaintenanceReport:
        """Fade, merge and erase memories by the policy; return the changes made, or those of a dry run.

        Reads a bounded number of rows and continues after them the next time; `whole` makes as many runs as needed.
        `part` limits it to one part. The rows are those of the first of `stores` that keeps observations. Does nothing,
        and reports that, if another process is running it, or did less than `unless_within` ago.
        """
        from chatbot.memory.upkeep import UpkeepFile, Wish, maintain, not_due

        self.caller.check("curate")
        self._upkeep = self._upkeep or UpkeepFile(self.backend)
        if not self._upkeep.may_be_due(part, self._clock(), unless_within):
            return not_due(dry_run=dry_run)
        wish = Wish(part=part, dry_run=dry_run, unless_within=unless_within, whole=whole)
        report = await maintain(self._scope(stores), self._upkeep, policy, wish)
        for deed, rows in () if report.dry_run else report.counts().items():
            count("maintained", rows, deed=deed)
        return report

    def unobserved(self) -> Memory | None:
        """Return the owner's memory in all namespaces, without spans, for metrics; None before first use."""
        if not any(isinstance(store, ObservationStore) for store in self._stores.values()):
            return None
        scope = self._scope().everywhere()
        return Memory(replace(scope, caller=replace(scope.caller, observer=None)))

    async def aclose(self) -> None:
        """Close every store. May be called twice."""
        self._catalog.is_closed = True
        if self.caller.observer is not None:
            self.caller.observer.closed(self)
        while self._meanings:
            _, meaning = self._meanings.popitem()
            with observed(self.caller.observer):
                await meaning.aclose()
        try:
            if self._embedder is not None:
                await self._embedder.aclose()
        except ChatbotError as error:
            logger.warning("the embedding model could not be closed: %s", error)
        with self._opening_stores:
            stores = list(self._stores.values())
            self._stores.clear()
        for store in stores:
            await store.aclose()
        await self._catalog.aclose()

    @property
    def is_embedding(self) -> bool:
        """Return whether memories are being embedded in the background."""
        return any(meaning.is_under_way for meaning in self._meanings.values())

    @property
    def is_closed(self) -> bool:
        """True after `aclose`, also of the system that this one was made from."""
        return self._catalog.is_closed

    async def _open_record(self, session_id: str) -> SessionRecord:
        """Return the record of an open session; for any other, take the same steps and raise `SessionNotFound`."""
        own = self.caller
        shown = session_id if is_session_id(session_id) else repr(session_id)[:80]
        unknown = SessionNotFound(f"no session has the id {shown}")
        try:
            record = await self._catalog.get(session_id)
        except SessionNotFound:
            if own.clearance != "full" or own.principal != OWNER:  # the owner may know of all
                await self._catalog.get_another(is_there=True)
            raise unknown from None
        if not record.is_open_to(own.clearance, own.namespace, own.project):
            await self._catalog.get_another(is_there=False)
            raise unknown
        return record

    async def _find_open(
        self,
        wanted: Callable[[SessionRecord], bool],
        limit: int | None,
        *,
        behind: str | None = None,
    ) -> list[SessionRecord]:
        is_open = self._opening()
        return await self._catalog.find(lambda record: is_open(record) and wanted(record), limit, behind=behind)

    def _opening(self) -> Callable[[SessionRecord], bool]:
        """Return a test for sessions that are now open to the caller."""
        now, own = self._clock(), self.caller
        return lambda record: (
            not record.is_expired(now) and record.is_open_to(own.clearance, own.namespace, own.project)
        )

    async def _erase(self, record: SessionRecord, caller: Caller, *, keep_memory: bool) -> Erasure:
        """Erase a session, and its memories that the caller may see."""
        forks = await self._forks_of(record.id)
        scopes = [] if keep_memory else self._scopes_of(record, caller)
        marks = [] if keep_memory else marks_of_session(record.id, record.origin)
        await bar(self.tombstones, [mark_of_deleted(record.id), *marks], self._clock())
        erased = [await erase(scope, Target(session=record.id)) for scope in scopes]
        ref = self._catalog.ref(record.id)
        for store in self._stores_of(record).values():
            if isinstance(store, SessionStore):
                await store.forget_session(ref)
        await self._catalog.delete(record)
        await asyncio.to_thread(self._terms.forget, [record.id])
        # a hook of its last turn may have remembered something meanwhile
        erased += [await erase(scope, Target(session=record.id)) for scope in scopes]
        return joined(erased, forks=forks, kept=keep_memory)

    def _scopes_of(self, record: SessionRecord, caller: Caller) -> list[Scope]:
        """Return the scopes that may hold memories of a session, for the owner across all namespaces."""
        names = list(dict.fromkeys([*record.store_types, self._observations]))
        stores = self._open_stores(names).values()
        return [
            Scope(store, caller, self._environment).everywhere()
            for store in stores
            if isinstance(store, ObservationStore)
        ]

    async def _forks_of(self, session_id: str) -> list[str]:
        """Return the direct and indirect forks of a session that are open to the caller."""
        forks = (await self._with_forks([session_id]))[1:]
        if not forks:
            return []
        is_open = self._opening()
        found = await self._catalog.find(lambda record: record.id in forks and is_open(record))
        return sorted((record.id for record in found), key=forks.index)

    async def is_taken(self, session_id: str) -> bool:
        """Return whether there is a session with that id, open or not."""
        try:
            await self._catalog.get(session_id)
        except SessionNotFound:
            return False
        except (SessionError, StoreError):
            return True  # a damaged session
        return True

    async def _is_filled_as(self, record: SessionRecord, wanted: SessionFilter) -> bool:
        """Return whether the number of messages fits; False for an unreadable session."""
        try:
            session = self._handle(record, self._stores_of(record))
            messages = await session.transcript_count(MESSAGES)
            is_empty = not messages and not await session.transcript_count()
        except (SessionError, StoreError) as error:
            logger.warning("session %s was passed over: %s", record.id, error)
            return False
        return messages >= wanted.min_messages and wanted.is_empty in {None, is_empty}

    def _openable(self, record: SessionRecord) -> SessionHandle | None:
        try:
            return self._handle(record, self._stores_of(record))
        except StoreError as error:
            logger.warning("session %s was passed over: %s", record.id, error)
            return None

    def _observing(self) -> Scope | None:
        """Return the scope in which the caller searches memories; None without an observation store."""
        try:
            return self._scope()
        except UnsupportedOperation:
            return None

    def new_record(
        self,
        store_types: tuple[str, ...],
        agent_id: str,
        title: str,
        *,
        created_at: datetime,
        used_at: datetime,
        origin: str,
    ) -> SessionRecord:
        """Return the record for `adopt_session` of a session from elsewhere.

        A time in the future is ignored, so that it does not count as the one used last.
        """
        self._chosen.update(store_types)
        record = self._new_record(store_types, agent_id, title)
        used_at = next((each for each in (used_at, created_at) if each <= record.created_at), _LONG_AGO)
        return replace(record, created_at=min(created_at, used_at), used_at=used_at, origin=origin)

    def _new_record(
        self, store_types: tuple[str, ...], agent_id: str, title: str, parent: str | None = None
    ) -> SessionRecord:
        now = self._clock()
        record = SessionRecord(
            id=str(new_id()),
            agent_id=agent_id,
            store_types=store_types,
            created_at=now,
            used_at=now,
            parent=parent,
            expires_at=self._expiry(),
            namespace=self.caller.namespace,
            principal=self.caller.principal,
            clearance=self.caller.clearance,
            project=self._options.project if self.caller.project is None else self.caller.project,
        )
        return record.renamed(title)

    def _expiry(self) -> datetime | None:
        return None if self._ttl is None else self._clock() + self._ttl

    def _handle(
        self,
        record: SessionRecord,
        stores: Mapping[str, Store],
        *,
        ref: SessionRef | None = None,
        turn_order: TurnOrder | None = None,
        caller: Caller | None = None,
    ) -> SessionHandle:
        return SessionHandle(
            record,
            ref or self._catalog.ref(record.id),
            stores,
            self._catalog,
            caller=caller or self.caller,
            environment=self._environment,
            turn_order=turn_order or self._turn_order(record.id),
        )

    def _turn_order(self, session_id: str) -> TurnOrder:
        """Return the order of turns of a session, the same for all its handles."""
        with self._opening_stores:
            order = self._turn_orders.get(session_id)
            if order is None:
                order = TurnOrder(self._catalog.turn_lease(self._catalog.ref(session_id)))
                self._turn_orders[session_id] = order
            return order

    def memory(self, agent_id: str = "", *, session_id: str | None = None) -> Memory:
        """Return the memory without a session; rows are written by `agent_id`.

        With `session_id` they are written for that session, whose clearance is not checked.
        """
        return Memory(replace(self._scope(), agent_id=agent_id, session_id=session_id))

    def _scope(self, names: Sequence[str] | None = None) -> Scope:
        opened = self._open_stores([self._observations] if names is None else names).values()
        store = next((each for each in opened if isinstance(each, ObservationStore)), None)
        if store is None:
            raise UnsupportedOperation(f"none of the stores {', '.join(names or [self._observations])} keeps memories")
        return Scope(store, self.caller, self._environment)

    async def _erase_quotes(self, sessions: Collection[str], erased: Collection[str], again: Collection[str]) -> None:
        """Delete the summaries of sessions and their forks, and the receipts and titles that quote erased rows."""
        elsewhere = await self._catalog.remembering(again) if again else ()
        all_of_them = await self._with_forks(dict.fromkeys([*sessions, *elsewhere]))
        if erased:
            await self._catalog.erase_quotes([self._catalog.ref(each) for each in all_of_them], erased)
        for each in all_of_them:
            try:
                session = await self._of_anyone(each)
                for key in SUMMARY_KEYS if session.supports(KeyValueStore) else ():
                    await session.kv_delete(key)
            except (SessionNotFound, SessionExpired):
                continue
            except (StoreError, ChatbotError) as error:
                logger.warning("the summary of session %s stays: %s", each, error)

    async def _of_anyone(self, session_id: str) -> SessionHandle:
        """Load a session of any namespace and principal, to correct data derived from erased rows."""
        record = await self._catalog.get(session_id)
        caller = replace(self._owner_in(record.namespace), clearance=self.caller.clearance)
        return self._handle(record, self._open_stores(record.store_types), caller=caller)

    def _owner_in(self, namespace: str) -> Caller:
        """Return the owner in that namespace, for work that does not depend on the caller."""
        return Caller(namespace, OWNER, observer=self.caller.observer)

    async def _with_forks(self, sessions: Collection[str]) -> list[str]:
        forks = await self._catalog.find(lambda record: record.parent is not None)
        found = dict.fromkeys(sessions)
        for record in sorted(forks, key=lambda record: record.created_at):  # parents before forks
            if record.parent in found:
                found[record.id] = None
        return list(found)

    def _meaning_of(self, store: ObservationStore) -> Meaning | None:
        if self._embedder is not None and id(store) not in self._meanings:
            from chatbot.memory.meaning import Meaning

            meaning = Meaning(self._embedder, store, bill=self._options.bill, clock=self._clock)
            self._meanings.setdefault(id(store), meaning)
        return self._meanings.get(id(store))

    def _cache_root(self) -> Path | None:
        """Return the folder of the observations' caches, which holds ours too."""
        root = self._settings.get(self._observations, {}).get("cache")
        return Path(root).expanduser() if isinstance(root, str) and root else None

    def _stores_of(self, record: SessionRecord) -> dict[str, Store]:
        """Open the stores of a session. Raises `UnknownStore` for one whose code is not configured."""
        for name in record.store_types:
            if ":" in name and name not in self._chosen:
                raise UnknownStore(
                    f"session {record.id} uses the store {name!r}, which is not configured: "
                    "review it, then name it in memory of an [agents.<id>] table"
                )
        return self._open_stores(record.store_types)

    def _open_stores(self, names: Sequence[str]) -> dict[str, Store]:
        with self._opening_stores:  # else two threads could open one each
            self._catalog.check_open()
            return {name: self._stores.get(name) or self._open_store(name) for name in names}

    def _open_store(self, name: str) -> Store:
        logger.info("initializing memory store %s in %s", name, self.where or "memory")
        with span("store", store=name, operation="open", access="open"):
            store = open_store(
                name, self.where or Path(), self._settings.get(name, {}), beside=self._options.plugins_beside
            )
        if self.where is None and store.keeps_files:
            raise UnsupportedOperation(f"the store {name!r} keeps files, which this memory system may not write")
        self._stores[name] = store
        if (observer := self.caller.observer) is not None:
            store.observer = observer
            observer.opened(self)
        return store


def _names(store_types: Sequence[str]) -> tuple[str, ...]:
    if isinstance(store_types, str | bytes) or not isinstance(store_types, Sequence):
        raise InvalidValue(f"the stores are {store_types!r:.80}: they must be a list of names")
    for name in store_types:
        check_text(name, "a store's name")
    return tuple(store_types)


class Comparison(Struct, frozen=True):
    """`common` is the number of equal entries at the beginning; `left` and `right` are the others of each session."""

    common: int
    left: tuple[TranscriptEntry, ...]
    right: tuple[TranscriptEntry, ...]


def compare(left: Sequence[TranscriptEntry], right: Sequence[TranscriptEntry]) -> Comparison:
    """Compare entries by role and text, not by time."""
    same = takewhile(lambda pair: is_same(*pair), zip(left, right, strict=False))
    common = sum(1 for _ in same)
    return Comparison(common, tuple(left[common:]), tuple(right[common:]))


def is_same(left: TranscriptEntry, right: TranscriptEntry) -> bool:
    """Return whether both entries have the same role and text, at any time."""
    return (left.role, left.content) == (right.role, right.content)
