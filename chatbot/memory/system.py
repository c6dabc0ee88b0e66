"""`MemorySystem`: the life of sessions, and the stores that they share."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from msgspec import Struct, field

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
from chatbot.stores.access import OWNER, Clearance, Right, least_clearance
from chatbot.stores.backend import Backend
from chatbot.stores.backends import open_backend
from chatbot.stores.base import KeyValueStore, ObservationStore, SessionStore, Store
from chatbot.stores.errors import InvalidValue, ReadOnlyFolder, StoreError, UnknownStore, UnsupportedOperation
from chatbot.stores.fields import one_line
from chatbot.stores.home import Home, parse_home
from chatbot.stores.lifecycle import AsyncResource
from chatbot.stores.plugins import open_store
from chatbot.stores.query import Progress
from chatbot.stores.records import KeyValue, SessionRecord, SessionRef, TranscriptEntry, check_text, is_session_id
from chatbot.stores.session_terms import SessionTerms
from chatbot.stores.span import count, observed, span

if TYPE_CHECKING:
    from chatbot.config import StandingSettings
    from chatbot.embedding import Embedder, EmbeddingResult
    from chatbot.memory.meaning import Billing, Meaning
    from chatbot.memory.policy import MaintenanceReport, Part, Policy
    from chatbot.memory.session_search import SessionHit
    from chatbot.memory.upkeep import UpkeepFile

logger = logging.getLogger(__name__)

_SHOWN_MATCHES = 5
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class SystemOptions(Struct, frozen=True, kw_only=True):
    """Settings of a memory that only an application makes."""

    observations: str | None = None
    """Store of what is remembered without a session; by default `observations`, or `in_memory` without a home."""
    plugins_beside: Path | None = None
    """File beside which plug-ins are searched for."""
    profiles: Mapping[str, ScoringProfile] = field(default_factory=lambda: PROFILES)
    """Weights of what was found: `search`, `recent`, `inject` and any of one's own."""
    questions: Callable[[], Sequence[StandingSettings]] = standing_questions
    """Returns the standing questions."""
    bill: Billing | None = None
    """Called with the calls of the embedder."""
    tell: Tell | None = None
    """Called after each operation."""
    project: str = ""
    """Project of new sessions, where the caller is in none and not kept from any."""


class MemorySystem(AsyncResource, Observable):
    """Issues sessions of one identity for one caller, and the memory without a session, over pluggable stores.

    `home` is the identity's memory folder, made when first needed, or its address in a database, such as
    `postgresql://user@host/database#ada`; None keeps everything in memory and writes nothing.
    `settings` configures stores by name, `ttl` lets sessions expire that long after their last use; `embedder` lets
    rows be found by their meaning too, and is closed along. A session on the disk names its stores: as
    `module:Class` only those that `settings` name, or that were used to create one. Open with `async with`; any number
    of processes may share one `home`.
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
        """Folder or address of everything that is kept; None where nothing is."""
        self.caller = caller or Caller()
        self._settings = settings or {}
        self._ttl = ttl
        self._embedder = embedder
        self._clock = clock
        self._options = options or SystemOptions()
        self._chosen = {*self._settings}
        """Stores that the creator of this object has named: a record on disk may have come from anybody."""
        self.backend: Backend = open_backend(self.where)
        self.tombstones = Tombstones(self.backend)
        self._environment = Environment(
            clock,
            profiles=self._options.profiles,
            questions=self._options.questions,
            meaning_of=self._meaning_of,
            tell=self._options.tell,
            erase_quotes=self._erase_quotes,
            tombstones=self.tombstones,
        )
        self._meanings: dict[int, Meaning] = {}
        self._observations = self._options.observations or ("in_memory" if home is None else "observations")
        self._catalog = SessionCatalog(self.backend)
        self._keyed_order = TurnOrder(self.backend.lease("keyed-sessions"))
        self._terms = SessionTerms.of(self.where, self._cache_root())
        self._stores: dict[str, Store] = {}
        self._opening_stores = threading.Lock()
        self._upkeep: UpkeepFile | None = None
        self._turn_orders: WeakValueDictionary[str, TurnOrder] = WeakValueDictionary()

    @property
    def home(self) -> Path | None:
        """The identity's memory folder; None where everything is in a database or in memory."""
        return self.where if isinstance(self.where, Path) else None

    async def embed(self, texts: Sequence[str]) -> tuple[str, EmbeddingResult]:
        """The name of the memory's own embedder, and its vectors of these texts; billed as those of memories are.

        Raises `UnsupportedOperation` where there is none, or whatever `ModelError` it raises.
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

        Rows and sessions that they make belong to `principal`; in a user's namespace that is the user. Raises
        `AccessDenied` for what would be more than this one may. It is closed along with this one.
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
        """A new session that uses the stores of these names. It is on the disk, whole, on return.

        Nobody sees more through it than the caller does, now or later; `cleared_for` makes one of less clearance, or
        in another namespace, or in a project.
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
        origin = f"key:{one_line(key, 'the key')}"
        async with self._keyed_order:
            known = await self._find_open(lambda record: (record.agent_id, record.origin) == (agent_id, origin), None)
            if known:
                return await self.load_session(known[-1].id, agent_id)
            record = self._new_record(_names(store_types), agent_id, title)
            return await self._created(replace(record, origin=origin))

    async def _created(self, record: SessionRecord) -> SessionHandle:
        stores = self._open_stores(record.store_types)
        self._chosen.update(record.store_types)
        async with self._catalog.making(record):
            pass
        return self._handle(record, stores)

    async def load_session(
        self,
        session_id: str,
        agent_id: str | None = None,
        *,
        any_agent: bool = False,
    ) -> SessionHandle:
        """Open a session again. Reads that session alone, however many there are.

        Raises `SessionNotFound`, also for one that is not open to the caller; `SessionExpired`; or `WrongAgent` where
        the session is not of `agent_id` and `any_agent` was not asked for.
        """
        record = await self._open_record(session_id)
        if not any_agent and record.agent_id != agent_id:
            raise WrongAgent(f"session {session_id} belongs to the agent {record.agent_id!r}, not to {agent_id!r}")
        now = self._clock()
        if record.is_expired(now):
            raise SessionExpired(f"session {session_id} expired at {record.expires_at}")
        if self._ttl is not None:
            until = now + self._ttl
            with suppress(ReadOnlyFolder):  # then it is not used, only looked at
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
        """Sessions that are open and not expired, the one used last first; of all agents, or of one; those `wanted`.

        Archived ones are among them. Open are those that were begun with no more than the caller's clearance.
        """
        self.caller.check("read")
        return await self._find_open(lambda record: agent_id in {None, record.agent_id} and wanted(record), limit)

    async def choose_sessions(self, wanted: SessionFilter) -> list[SessionRecord]:
        """The open sessions that fit, the one used last first. Only a filter by what was said looks into any of them.

        Raises `SessionNotFound` where the session that the page should begin behind is gone.
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
        """The sessions that speak of `text`, best first, each with the line that does so best.

        Only those that are open are searched, as in `list_sessions`; archived ones too, unless `wanted` says otherwise.
        Where many have changed since the last search, `progress` is called with how many of those are read.
        """
        from chatbot.memory.session_search import search

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
        """The agent's session that was used last, or None where it has none."""
        records = await self.choose_sessions(SessionFilter(agent_id=agent_id, is_archived=False, limit=1))
        return await self.load_session(records[0].id, agent_id) if records else None

    async def find_session(self, text: str, agent_id: str | None = None) -> SessionRecord:
        """The open session whose id is, or begins with, `text`, or whose title is `text`, whatever the case.

        Raises `SessionNotFound`, or `AmbiguousSession` naming what matches.
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
        """Put a session away: it is not offered any more, and still opened and searched by who asks; or undo that."""
        now = self._clock()
        self.caller.check("write", await self._open_record(session_id))
        return await self._catalog.change(
            session_id, lambda record: replace(record, archived_at=None if undo else record.archived_at or now)
        )

    async def fork_session(
        self, session_id: str, agent_id: str | None = None, *, title: str = "", at: int | None = None
    ) -> SessionHandle:
        """A new session that begins with everything the old one holds, and then goes its own way.

        With `at`, of what was said only the first entries up to that number, archived ones counted too; raises
        `InvalidValue` where there are fewer. It belongs to `agent_id`, or to the old one's agent. Receipts stay behind:
        what they bill was spent only once. A session of another principal takes the right `curate`.
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
        """Take in a session that was held elsewhere, whole or not at all, with the times that it has.

        Nobody sees more through it than the caller's clearance allows. Call `reorder_sessions` when all are in. Raises
        `InvalidValue` where there is a session of that id.
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
        """Bring adopted sessions into the order of their last use: the index is built anew when it is next read."""
        await self._catalog.reorder()

    async def delete_session(self, session_id: str, *, keep_memory: bool = False) -> Erasure:
        """Erase a session with its files and, unless `keep_memory` says otherwise, with what is remembered of it.

        That is every observation and fact of the session that the caller may see, with all that was derived from them.
        An import does not bring back what was erased. Forks keep their copy of what was said, and what is remembered
        of them: the answer names them. The session goes last: after a kill midway it can be deleted again. Raises
        `SessionNotFound`, or `MissingRight`: it takes `erase`.
        """
        record = await self._open_record(session_id)
        self.caller.check("erase", record)
        return await self._erase(record, self.caller, keep_memory=keep_memory)

    async def deleting(self, session_id: str) -> Erasure:
        """Return what `delete_session` would erase; nothing is changed. It takes `read` and `erase`.

        Raises `SessionNotFound`, or `MissingRight`.
        """
        record = await self._open_record(session_id)
        self.caller.check("erase", record)
        found = [await erasure(scope, Target(session=record.id)) for scope in self._scopes_of(record, self.caller)]
        return joined(found, forks=await self._forks_of(record.id))

    async def sessions_anywhere(self) -> list[SessionRecord]:
        """Records of the sessions in this namespace and in those that may be entered from it, expired ones too.

        For those who manage users: whether a session is open to the caller is not asked.
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
        """Delete a session of this namespace, with its memory, whatever clearance it needs. It takes `erase`.

        Raises `SessionNotFound` for one of another namespace, and where another process was faster.
        """
        self.caller.check("erase")
        if record.namespace != self.caller.namespace:
            raise SessionNotFound(f"no session has the id {record.id}")
        return await self._erase(record, self.caller.raised(clearance="full"), keep_memory=False)

    async def expired_sessions(self) -> list[SessionRecord]:
        """The sessions whose time to live is over and that are not erased yet, as far as the caller may know of them.

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
        """Erase the sessions whose time to live is over. One that resists stops no other.

        They expire for all callers; returned are the ids of those that the caller may know of. What
        is remembered of them stays, unless `keep_memory` is false: then all of it is erased, seen or not.
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
        policy: Policy | None = None,
        *,
        part: Part = "",
        stores: Sequence[str] | None = None,
        dry_run: bool = False,
        unless_within: timedelta = timedelta(0),
        whole: bool = False,
    ) -> MaintenanceReport:
        """Fade, merge and erase memories by the policy; return the changes made, or those of a dry run.

        Looks at a bounded number of rows and goes on behind them the next time; `whole` takes as many runs as it needs.
        `part` is what of it is wanted. The rows are those of the first of `stores` that keeps observations. Does
        nothing, and says so, where another process is at it, or was less than `unless_within` ago.
        """
        from chatbot.memory.policy import Policy
        from chatbot.memory.upkeep import UpkeepFile, Wish, maintain, not_due

        self.caller.check("curate")
        self._upkeep = self._upkeep or UpkeepFile(self.backend)
        if not self._upkeep.may_be_due(part, self._clock(), unless_within):
            return not_due(dry_run=dry_run)
        wish = Wish(part=part, dry_run=dry_run, unless_within=unless_within, whole=whole)
        report = await maintain(self._scope(stores), self._upkeep, policy or Policy(), wish)
        for deed, rows in () if report.dry_run else report.counts().items():
            count("maintained", rows, deed=deed)
        return report

    def unobserved(self) -> Memory | None:
        """Return the memory without spans, to measure it: of the owner, all namespaces; None before it was used."""
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
        """True after `aclose`, also of the memory that this one is a lesser view of."""
        return self._catalog.is_closed

    async def _open_record(self, session_id: str) -> SessionRecord:
        """Raises `SessionNotFound`: one that is not open does not exist, and is refused by the same steps."""
        own = self.caller
        shown = session_id if is_session_id(session_id) else repr(session_id)[:80]
        unknown = SessionNotFound(f"no session has the id {shown}")
        try:
            record = await self._catalog.get(session_id)
        except SessionNotFound:
            if own.clearance != "full" or own.principal != OWNER:  # to whom nothing is closed
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
        """Return a test for sessions that now exist for the caller."""
        now, own = self._clock(), self.caller
        return lambda record: (
            not record.is_expired(now) and record.is_open_to(own.clearance, own.namespace, own.project)
        )

    async def _erase(self, record: SessionRecord, caller: Caller, *, keep_memory: bool) -> Erasure:
        """Erase a session, and of what is remembered of it what that caller may see."""
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
        """The places in which something may be remembered of a session, for the owner across all namespaces."""
        names = list(dict.fromkeys([*record.store_types, self._observations]))
        stores = self._open_stores(names).values()
        return [
            Scope(store, caller, self._environment).everywhere()
            for store in stores
            if isinstance(store, ObservationStore)
        ]

    async def _forks_of(self, session_id: str) -> list[str]:
        """The forks of a session, and theirs, that are open to the caller."""
        forks = (await self._with_forks([session_id]))[1:]
        if not forks:
            return []
        is_open = self._opening()
        found = await self._catalog.find(lambda record: record.id in forks and is_open(record))
        return sorted((record.id for record in found), key=forks.index)

    async def is_taken(self, session_id: str) -> bool:
        """Return whether there is a session of that id, open or not."""
        try:
            await self._catalog.get(session_id)
        except SessionNotFound:
            return False
        except (SessionError, StoreError):
            return True  # by one that is damaged
        return True

    async def _is_filled_as(self, record: SessionRecord, wanted: SessionFilter) -> bool:
        """Return whether the number of messages in a session fits. A session that cannot be read fits nothing."""
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
        """The record of a session that was held elsewhere, to be adopted.

        A time in the future is ignored, so that the session does not count as the one used last.
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
        """The order of turns of a session, the same for all its handles."""
        with self._opening_stores:
            order = self._turn_orders.get(session_id)
            if order is None:
                order = TurnOrder(self._catalog.turn_lease(self._catalog.ref(session_id)))
                self._turn_orders[session_id] = order
            return order

    def memory(self, agent_id: str = "", *, session_id: str | None = None) -> Memory:
        """Everything that can be done with what is remembered, without a session; rows are written by `agent_id`.

        With `session_id` they are written of that session, whose own clearance is not asked.
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
        """A session of any namespace and principal, to correct data derived from erased rows."""
        record = await self._catalog.get(session_id)
        caller = replace(self._owner_in(record.namespace), clearance=self.caller.clearance)
        return self._handle(record, self._open_stores(record.store_types), caller=caller)

    def _owner_in(self, namespace: str) -> Caller:
        """Return the owner in that namespace, for work that does not depend on who asks."""
        return Caller(namespace, OWNER, observer=self.caller.observer)

    async def _with_forks(self, sessions: Collection[str]) -> list[str]:
        forks = await self._catalog.find(lambda record: record.parent is not None)
        found = dict.fromkeys(sessions)
        for record in sorted(forks, key=lambda record: record.created_at):  # each after what it was forked from
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
        """The stores that a session uses. Raises `UnknownStore` for one whose code is not configured."""
        for name in record.store_types:
            if ":" in name and name not in self._chosen:
                raise UnknownStore(
                    f"session {record.id} uses the store {name!r}, which is not configured: "
                    "review it, then name it in memory of an [agents.<id>] table"
                )
        return self._open_stores(record.store_types)

    def _open_stores(self, names: Sequence[str]) -> dict[str, Store]:
        with self._opening_stores:  # two threads that opened one each would leave one open
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
    """`common` entries at the beginning say the same; `left` and `right` are what follows them in each."""

    common: int
    left: tuple[TranscriptEntry, ...]
    right: tuple[TranscriptEntry, ...]


def compare(left: Sequence[TranscriptEntry], right: Sequence[TranscriptEntry]) -> Comparison:
    """The common beginning goes by who said what, not by when."""
    same = takewhile(lambda pair: is_same(*pair), zip(left, right, strict=False))
    common = sum(1 for _ in same)
    return Comparison(common, tuple(left[common:]), tuple(right[common:]))


def is_same(left: TranscriptEntry, right: TranscriptEntry) -> bool:
    """Return whether both entries have the same role and text, at any time."""
    return (left.role, left.content) == (right.role, right.content)
