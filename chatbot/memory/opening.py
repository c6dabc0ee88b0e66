"""Opening of the sessions of an identity for a caller, and of the stores that they share."""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from chatbot.embedder import Embedder
from chatbot.errors import AmbiguousSession, ChatbotError, SessionError, SessionExpired, SessionNotFound, WrongAgent
from chatbot.memory.erasure import Tombstones
from chatbot.memory.handle import SUMMARY_KEYS, SessionHandle
from chatbot.memory.inputs import list_of
from chatbot.memory.memory import Memory
from chatbot.memory.scope import Caller, Environment, Observable, Scope, SystemOptions, new_id, utc_now
from chatbot.memory.session_catalog import MESSAGES, SessionCatalog, SessionFilter, with_forks
from chatbot.memory.session_search import SessionHit, of_each, search
from chatbot.memory.turn_order import TurnOrder
from chatbot.stores.access import OWNER, fold
from chatbot.stores.backend import Backend
from chatbot.stores.base import AsyncResource, KeyValueStore, ObservationStore, Store
from chatbot.stores.errors import StoreBusy, StoreError, StoreFailed, UnknownStore, UnsupportedOperation
from chatbot.stores.fields import check_key
from chatbot.stores.home import Home, parse_home
from chatbot.stores.loops import to_its_end
from chatbot.stores.observation import Observation
from chatbot.stores.plugins import STORES, load, open_backend, open_store
from chatbot.stores.query import Progress, check_limit
from chatbot.stores.records import KEYED, SessionRecord, SessionRef, check_path, check_text, check_type, chunks, is_id
from chatbot.stores.session_terms import SessionTerms
from chatbot.stores.span import span

if TYPE_CHECKING:
    from chatbot.memory.maintenance import Upkeep
    from chatbot.memory.meaning import Meaning

logger = logging.getLogger(__name__)

_SHOWN_MATCHES = 5
_AT_ONCE = 100
"""Sessions whose messages are counted together."""


class SessionOpening(AsyncResource, Observable):
    """Creates, loads, finds and searches sessions; the base of `MemorySystem`."""

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
        check_type(home, str | Home | None, "home")
        check_type(settings, Mapping | None, "settings")
        check_type(clock, Callable, "clock")
        check_type(caller, Caller | None, "caller")
        check_type(ttl, timedelta | None, "ttl")
        check_type(embedder, Embedder | None, "embedder")
        check_type(options, SystemOptions | None, "options")
        where = parse_home(home) if isinstance(home, str) else home
        self.where: Home | None = check_path(where, "the folder") if isinstance(where, Path) else where
        """Folder or address of the memory; None if nothing is kept."""
        self.caller = caller or Caller()
        self._settings = settings or {}
        self._embedder = embedder
        self._clock = clock
        self._options = options or SystemOptions()
        self._named_stores = {*self._settings}
        """Stores that this program named. No other `module:Class` is loaded: a session's record could name any code."""
        for name in self._settings:  # under a misspelt name they would have no effect
            STORES.find(name)
            if ":" in name and options is None:  # `Setup.mistakes` checks those of a configuration
                load(name)
        self.backend: Backend = open_backend(self.where)
        self._check_there = self.backend.check_there
        self.tombstones = Tombstones(self.backend)
        self._keyed_order = TurnOrder(self.backend.lease("keyed"), work="opening a session by its key")
        self._environment = Environment(
            clock,
            options=self._options,
            meaning_of=self._meaning_of,
            check_there=self._check_there,
            erase_quotes=self._erase_quotes,
            tombstones=self.tombstones,
            key_lock=self._keyed_order,
            ttl=ttl,
        )
        self._meanings: dict[int, Meaning] = {}
        self._default_store = self._options.observations or ("in_memory" if home is None else "observations")
        cache = self._settings.get(self._default_store, {}).get("cache")  # the observations' caches are there, too
        root = check_path(cache, "cache") if isinstance(cache, str) and cache else None
        self._owner = self._catalog = SessionCatalog(self.backend, SessionTerms(self.where, root))
        self._stores: dict[str, Store] = {}
        self._opening_stores = threading.Lock()
        self._upkeep: Upkeep | None = None
        self._turn_orders: WeakValueDictionary[str, TurnOrder] = WeakValueDictionary()

    def __repr__(self) -> str:
        where = "nothing is kept" if self.where is None else repr(str(self.where))
        return f"{type(self).__name__}({where}{', closed' if self.is_closed else ''})"

    @property
    def home(self) -> Path | None:
        """The identity's memory folder; None for a database, or if nothing is kept."""
        return self.where if isinstance(self.where, Path) else None

    async def create_session(
        self, store_types: Sequence[str], agent_id: str, *, title: str = "", for_dry_run: bool = False
    ) -> SessionHandle:
        """Create a session that uses these stores. Durable on return, except one that is only `for_dry_run`.

        It never shows more than the caller may see. For less clearance, another namespace or a project, call
        `cleared_for` first. A session for a dry run recalls memories, keeps nothing and is found by no one.
        """
        self.caller.check("chat")
        record = self._new_record(list_of(store_types, "store_types"), agent_id, title)
        if not for_dry_run or self.where is None:
            return await self._create(record)
        stores = self._open_stores(record.store_types)
        return self._handle(record, {name: each for name, each in stores.items() if isinstance(each, ObservationStore)})

    async def keyed_session(
        self, key: str, store_types: Sequence[str], agent_id: str, *, title: str = ""
    ) -> SessionHandle:
        """Return the agent's session under the caller's key; create it with these stores if there is none.

        All callers that ask for the same key at the same time, in any process, get the same session.
        """
        self.caller.check("chat")
        check_key(key)
        origin = f"{KEYED}{key}"
        async with self._keyed_order:
            known = await self._find_open(lambda record: (record.agent_id, record.origin) == (agent_id, origin), 1)
            if known:
                return await self.load_session(known[0].id, agent_id)
            record = self._new_record(list_of(store_types, "store_types"), agent_id, title)
            return await to_its_end(self._create(replace(record, origin=origin)))

    async def _create(self, record: SessionRecord) -> SessionHandle:
        stores = self._open_stores(record.store_types)
        self._named_stores.update(record.store_types)
        await self._catalog.make(record)
        return self._handle(record, stores)

    async def load_session(
        self, session_id: str, agent_id: str | None = None, *, any_agent: bool = False
    ) -> SessionHandle:
        """Load a session; reads no other, and changes nothing.

        Raises `SessionNotFound`, also if it is not open to the caller, `SessionExpired`, or `WrongAgent` for another's.
        """
        record = await self._open_record(session_id)
        if not any_agent and record.agent_id != agent_id:
            wanted = f"not to {agent_id!r}" if agent_id else "name that agent, or pass any_agent=True"
            raise WrongAgent(f"session {session_id} belongs to the agent {record.agent_id!r}, {wanted}")
        is_expired = self._expiry_check()
        if is_expired(record):
            (record,) = await self._catalog.find(lambda each: each.id == session_id, 1) or [record]  # its last use
        if is_expired(record):
            raise SessionExpired(f"session {session_id} has expired; it was last used at {record.used_at}")
        return self._handle(record, self._stores_of(record))

    async def list_sessions(
        self,
        agent_id: str | None = None,
        *,
        limit: int | None = None,
        wanted: Callable[[SessionRecord], bool] = lambda _: True,
    ) -> list[SessionRecord]:
        """Return the open sessions of one agent, or of all, most recently used first; archived ones too.

        A session is open if it is in the caller's namespace and project, needs no higher clearance and has not expired.
        """
        self.caller.check("read")
        check_type(agent_id, str | None, "agent_id")
        limit = None if limit is None else check_limit(limit)
        return await self._find_open(lambda record: agent_id in {None, record.agent_id} and wanted(record), limit)

    async def choose_sessions(self, wanted: SessionFilter) -> list[SessionRecord]:
        """Return the matching open sessions, most recently used first. Reads sessions only to filter by messages.

        Raises `SessionNotFound` if the session `wanted.after_id` is gone.
        """
        self.caller.check("read")
        check_type(wanted, SessionFilter, "wanted")
        if wanted.after_id is not None:
            await self._open_record(wanted.after_id)
        limit = None if wanted.looks_inside else wanted.limit
        records = await self._find_open(wanted.fits, limit, after_id=wanted.after_id)
        if not wanted.looks_inside:
            return records
        chosen: list[SessionRecord] = []
        for some in chunks(records, _AT_ONCE):
            if wanted.limit is not None and len(chosen) >= wanted.limit:
                break
            chosen += await self._with_wanted_messages(some, wanted)
        return chosen[: wanted.limit]

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

        Archived ones too, unless `wanted` excludes them. `progress` is called while many changed sessions are read.
        """
        self.caller.check("read")
        limit = check_limit(limit)
        check_type(wanted, SessionFilter | None, "wanted")
        chosen = await self.choose_sessions(replace(wanted or SessionFilter(), limit=None))
        there = {*await asyncio.to_thread(self._catalog.sessions.ids)}
        await asyncio.to_thread(self._catalog.terms.forget, lambda each: each not in there)  # deleted elsewhere
        sessions = [each for record in chosen if record.id not in exclude and (each := self._try_handle(record))]
        scope, text = None, check_text(text, "the text")
        with suppress(UnsupportedOperation):  # no store keeps memories
            scope = self._scope()
        return await search(sessions, text, self._catalog.terms, scope, limit=limit, progress=progress)

    async def latest_session(self, agent_id: str, *, project: str | None = None) -> SessionHandle | None:
        """Return the agent's session that was used last, in `project` (`-` for none) if given; None if it has none."""
        chosen = SessionFilter(agent_id=agent_id, project=project, is_archived=False, limit=1)
        records = await self.choose_sessions(chosen)
        return await self.load_session(records[0].id, agent_id) if records else None

    async def find_session(self, text: str, agent_id: str | None = None, *, cut_title: bool = False) -> SessionRecord:
        """Return the open session with the id, beginning of an id, or title `text`, also a `cut_title`, ignoring case.

        Raises `SessionNotFound`, or `AmbiguousSession` with the matches.
        """
        self.caller.check("read")
        if is_id(text):
            return await self._open_record(text)
        wanted = fold(check_text(text, "the session"))
        sessions = await self.list_sessions(agent_id)
        matches = [record for record in sessions if fold(record.title) == wanted]
        matches = matches or [record for record in sessions if record.id.startswith(wanted)]
        begun = [each for each in sessions if wanted and fold(each.title).startswith(wanted)]
        matches = matches or (begun if cut_title else [])
        if not wanted or not matches:
            hint = f"did you mean {begun[0].title!r:.80}?" if begun else "see `chatbot sessions list --all`"
            raise SessionNotFound(f"no session matches {text!r:.80}: {hint}")
        if len(matches) > 1:
            listed = ", ".join(f"{record.id} {record.title}".strip() for record in matches[:_SHOWN_MATCHES])
            raise AmbiguousSession(f"{text!r} matches {len(matches)} sessions: {listed}")
        return matches[0]

    @property
    def is_closed(self) -> bool:
        """True after `aclose`, also of the system that this one was made from."""
        return self._catalog.is_closed

    async def _open_record(self, session_id: str) -> SessionRecord:
        """Return the record of an open session. For any other, there or not, raises the same `SessionNotFound`."""
        own = self.caller
        with suppress(SessionNotFound):
            record = await self._catalog.get(session_id)
            if record.is_open_to(own.clearance, own.namespace, own.project):
                return record
        raise SessionNotFound.of(session_id if is_id(session_id) else repr(session_id)[:80])

    async def _find_open(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None, *, after_id: str | None = None
    ) -> list[SessionRecord]:
        is_expired, own = self._expiry_check(), self.caller

        def is_open_and_wanted(record: SessionRecord) -> bool:
            is_open = record.is_open_to(own.clearance, own.namespace, own.project) and not is_expired(record)
            return is_open and wanted(record)

        return await self._catalog.find(is_open_and_wanted, limit, after_id=after_id)

    def _expiry_check(self) -> Callable[[SessionRecord], bool]:
        """Return the check whether a session's time to live is over now."""
        now, ttl = self._clock(), self._environment.ttl
        return lambda record: (until := record.expiry(ttl)) is not None and until <= now

    async def is_taken(self, session_id: str) -> bool:
        """Return whether there is a session with that id, open or not."""
        try:
            await self._catalog.get(session_id)
        except (SessionError, StoreError) as error:
            return not isinstance(error, SessionNotFound)  # a damaged session is there
        return True

    async def _with_wanted_messages(
        self, records: Sequence[SessionRecord], wanted: SessionFilter
    ) -> list[SessionRecord]:
        """Return the records of sessions whose number of messages matches; unreadable ones are left out."""
        sessions = [each for record in records if (each := self._try_handle(record))]
        found = await of_each(sessions, lambda store, those: store.transcript_counts(those, MESSAGES))
        entries = found
        if wanted.is_empty is not None:
            entries = await of_each(sessions, lambda store, those: store.transcript_counts(those))
        chosen = []
        for record in (each.record for each in sessions):
            messages, all_of_it = found.get(record.id), entries.get(record.id)
            if not (isinstance(messages, int) and isinstance(all_of_it, int)):
                logger.warning("session %s was skipped: %s", record.id, messages or "it has no transcript")
            elif messages >= wanted.min_messages and wanted.is_empty in {None, not all_of_it}:
                chosen.append(record)
        return chosen

    def _try_handle(self, record: SessionRecord) -> SessionHandle | None:
        try:
            return self._handle(record, self._stores_of(record))
        except StoreError as error:
            logger.warning("session %s was skipped: %s", record.id, error)
            return None

    def _new_record(
        self, store_types: tuple[str, ...], agent_id: str, title: str, parent: str | None = None
    ) -> SessionRecord:
        now = self._clock()
        record = SessionRecord(
            id=new_id(),
            agent_id=agent_id,
            store_types=store_types,
            created_at=now,
            used_at=now,
            parent=parent,
            expires_at=self._expiry(),
            namespace=self.caller.namespace,
            principal=self.caller.principal,
            clearance=self.caller.clearance,
            sensitivity=self.caller.sensitivity,
            project=self._options.project if self.caller.project is None else self.caller.project,
        )
        return record.renamed(title)

    def _expiry(self) -> datetime | None:
        ttl = self._environment.ttl
        return None if ttl is None else self._clock() + ttl

    def _handle(
        self,
        record: SessionRecord,
        stores: Mapping[str, Store],
        *,
        ref: SessionRef | None = None,
        turn_order: TurnOrder | None = None,
        caller: Caller | None = None,
    ) -> SessionHandle:
        ref = ref or self._catalog.ref(record.id)
        return SessionHandle(
            record,
            ref,
            stores,
            self._catalog,
            caller=caller or self.caller,
            environment=self._environment,
            turn_order=turn_order or self._turn_order(ref),
        )

    def _turn_order(self, session: SessionRef) -> TurnOrder:
        """Return the order of turns of a session, the same for all its handles."""
        with self._opening_stores:
            if (order := self._turn_orders.get(session.id)) is None:
                order = TurnOrder(self._catalog.place_of(session).lease("turn"))
                self._turn_orders[session.id] = order
            return order

    def memory(self, agent_id: str = "", *, session_id: str | None = None) -> Memory:
        """Return the memory without a session; with `session_id` rows are of it, and its clearance is not checked."""
        return Memory(replace(self._scope(), agent_id=agent_id, session_id=session_id))

    def _scope(self, names: Sequence[str] | None = None) -> Scope:
        opened = self._open_stores([self._default_store] if names is None else names).values()
        store = next((each for each in opened if isinstance(each, ObservationStore)), None)
        if store is None:
            raise UnsupportedOperation(f"none of the stores {', '.join(names or [self._default_store])} keeps memories")
        return Scope(store, self.caller, self._environment)

    async def _erase_quotes(self, rows: Sequence[Observation], erased: Collection[str]) -> None:
        """Delete summaries of sessions and their forks, and quotes of erased rows, as `EraseQuotes` says."""
        ids, is_repeated = [row.id for row in rows], any(row.mention_count for row in rows)  # which makes no new row
        elsewhere = await self._catalog.sessions_remembered_as(ids, everywhere=is_repeated)
        sessions = filter(None, (row.session_id for row in rows))
        all_of_them = with_forks([*sessions, *elsewhere], await self._catalog.parents())
        await self._catalog.note_remembered(rows)
        if erased:
            await self._catalog.erase_quotes([self._catalog.ref(each) for each in all_of_them], erased)
        for each in all_of_them:
            try:
                record = await self._catalog.get(each)
                owner = replace(self._owner_in(record.namespace), clearance=self.caller.clearance)
                session = self._handle(record, self._stores_of(record), caller=owner)
                for key in SUMMARY_KEYS if session.supports(KeyValueStore) else ():
                    await session.kv_delete(key)
            except SessionNotFound:
                continue
            except (StoreFailed, StoreBusy):
                raise  # while the rows that it quotes are there, so that all can be repeated
            except (StoreError, ChatbotError) as error:
                logger.warning("the summary of session %s stays: %s", each, error)

    def _owner_in(self, namespace: str) -> Caller:
        """Return the owner of that namespace as caller, for work that does not depend on who calls."""
        return Caller(namespace, OWNER, observer=self.caller.observer)

    def _meaning_of(self, store: ObservationStore) -> "Meaning | None":
        if self._embedder is not None and id(store) not in self._meanings:
            from chatbot.memory.meaning import Meaning

            meaning = Meaning(self._embedder, store, bill=self._options.bill, clock=self._clock)
            self._meanings.setdefault(id(store), meaning)
        return self._meanings.get(id(store))

    def _stores_of(self, record: SessionRecord) -> dict[str, Store]:
        """Open the stores of a session. Raises `UnknownStore` for one whose code is not configured."""
        for name in record.store_types:
            if ":" in name and name not in self._named_stores:
                raise UnknownStore(
                    f"session {record.id} uses the store {name!r}, which is not configured: "
                    "review it, then name it in memory of an [agents.<id>] table"
                )
        try:
            return self._open_stores(record.store_types)
        except UnknownStore as error:
            raise UnknownStore(f"session {record.id} is kept in a store that is not installed: {error}") from error

    def _open_stores(self, names: Sequence[str]) -> dict[str, Store]:
        with self._opening_stores:  # else two threads could open one each
            self._catalog.check_open()
            return {name: self._stores.get(name) or self._open_store(name) for name in names}

    def _open_store(self, name: str) -> Store:
        logger.info("initializing memory store %s in %s", name, self.where or "memory")
        with span("store", store=name, operation="open", access="open"):
            settings, beside = self._settings.get(name, {}), self._options.plugins_beside
            store = open_store(name, self.where or Path(), settings, beside=beside)
        if self.where is None and store.is_durable:
            raise UnsupportedOperation(f"the store {name!r} keeps files, which this memory system may not write")
        self._stores[name], self._catalog.has_stores = store, True
        if (observer := self.caller.observer) is not None:
            store.observer = observer
            observer.opened(self)
        return store
