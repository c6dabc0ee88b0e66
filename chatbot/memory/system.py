"""`MemorySystem`: the life of sessions, and the stores that they share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from chatbot.errors import AmbiguousSession, ChatbotError, SessionError, SessionExpired, SessionNotFound, WrongAgent
from chatbot.memory.catalog import EphemeralCatalog, FolderCatalog, SessionCatalog
from chatbot.memory.comparison import Comparison, compare
from chatbot.memory.handle import TOLD_KEYS, SessionHandle
from chatbot.memory.record import SessionRecord, is_session_id, new_id, utc_now
from chatbot.memory.remembering import Memories, Remembering
from chatbot.memory.scope import Caller, Scope
from chatbot.memory.scoring import PROFILES, WEIGHT, Profile
from chatbot.memory.session_filter import MESSAGES, SessionFilter
from chatbot.memory.session_terms import SessionTerms
from chatbot.memory.told import Tell
from stores.access import Clearance, least_clearance
from stores.base import KeyValueStore, ObservationStore, Store
from stores.cache import Cache
from stores.errors import InvalidValue, StoreError, UnsupportedOperation
from stores.lifecycle import AsyncResource
from stores.plugins import open_store
from stores.records import KeyValue, TranscriptEntry

if TYPE_CHECKING:
    from uuid import UUID

    from chatbot.embedding import Embedder
    from chatbot.memory.maintenance.policy import Part, Policy
    from chatbot.memory.maintenance.report import Report
    from chatbot.memory.maintenance.upkeep import UpkeepFile
    from chatbot.memory.meaning import Billing, Meaning
    from chatbot.memory.session_search import Progress, SessionHit

logger = logging.getLogger(__name__)

_SHOWN_MATCHES = 5
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class MemorySystem(AsyncResource, Remembering):
    """Issues sessions of one identity and hands out `SessionHandle`s over pluggable stores.

    What is remembered can also be asked and changed without a session, through the store `observations`.

    `home` is the identity's memory folder, made when first needed; None keeps everything in memory and writes nothing.
    `embedder` lets rows be found by their meaning too, and is closed along; `bill` is told of its calls.
    `profiles` weigh what was found: `search`, `recent`, `inject` and any of one's own. `tell` hears of each operation.
    `settings` configures stores by name, `ttl` lets sessions expire that long after their last use. Open with
    `async with`; any number of processes may share one `home`.
    """

    handle_type: type[SessionHandle] = SessionHandle
    """What sessions are handed out as."""

    def __init__(
        self,
        home: Path | str | None,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        ttl: timedelta | None = None,
        clock: Callable[[], datetime] = utc_now,
        new_id: Callable[[], UUID] = new_id,
        plugins_beside: Path | None = None,
        clearance: Clearance = "full",
        namespace: str = "",
        observations: str | None = None,
        embedder: Embedder | None = None,
        meaning_weight: float = WEIGHT,
        bill: Billing | None = None,
        profiles: Mapping[str, Profile] = PROFILES,
        tell: Tell | None = None,
    ) -> None:
        self.home = None if home is None else Path(home)
        self._settings = settings or {}
        self._ttl = ttl
        self._clock = clock
        self._new_id = new_id
        self._plugins_beside = plugins_beside
        self._caller = Caller(clearance, namespace, clock, new_id, self._meaning_of, profiles, tell, self._untell)
        self._embedder = embedder
        self._meaning_weight = meaning_weight
        self._bill = bill
        self._meanings: dict[int, Meaning] = {}
        self._observations = observations or ("in_memory" if home is None else "observations")
        self._catalog: SessionCatalog = EphemeralCatalog() if self.home is None else FolderCatalog(self.home)
        self._terms = SessionTerms(None if self.home is None else Cache(self.home, self._cache_root()))
        self._stores: dict[str, Store] = {}
        self._upkeep: UpkeepFile | None = None
        self._turn_orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def clearance(self) -> Clearance:
        """What whoever holds this may see at most."""
        return self._caller.clearance

    def cleared_for(self, clearance: Clearance) -> MemorySystem:
        """The same memory, for someone of less clearance: what others said, and remember, is not there for them.

        It is closed along with this one.
        """
        clearance = least_clearance(self.clearance, clearance)
        if clearance == "full":
            return self
        seen = copy(self)
        seen._caller = replace(self._caller, clearance=clearance)  # noqa: SLF001 - it is one of us
        return seen

    async def create_session(
        self,
        store_types: Sequence[str],
        agent_id: str,
        *,
        title: str = "",
        parent: str | None = None,
        clearance: Clearance = "full",
    ) -> SessionHandle:
        """A new session that uses the stores of these names. It is on the disk, whole, on return.

        Nobody sees more through it than `clearance` allows, now or later.
        """
        stores = self._open_stores(store_types)
        clearance = least_clearance(self._caller.clearance, clearance)
        record = replace(self._new_record(tuple(store_types), agent_id, title, parent), clearance=clearance)
        async with self._catalog.making(record):
            pass
        return self._handle(record, stores)

    async def load_session(
        self,
        session_id: str,
        agent_id: str | None = None,
        *,
        any_agent: bool = False,
        clearance: Clearance = "full",
    ) -> SessionHandle:
        """Open a session again. Reads that session alone, however many there are.

        Raises `SessionNotFound`, also for one that is not open to the system's clearance or to this one;
        `SessionExpired`; or `WrongAgent` where the session is not of `agent_id` and `any_agent` was not asked for.
        """
        record = await self._open_record(session_id, clearance)
        if not any_agent and record.agent_id != agent_id:
            raise WrongAgent(f"session {session_id} belongs to the agent {record.agent_id!r}, not to {agent_id!r}")
        now = self._clock()
        if record.is_expired(now):
            raise SessionExpired(f"session {session_id} expired at {record.expires_at}")
        if self._ttl is not None:
            until = now + self._ttl
            record = await self._catalog.change(session_id, lambda record: replace(record, expires_at=until).used(now))
        return self._handle(record, self._open_stores(record.store_types), clearance)

    async def list_sessions(
        self,
        agent_id: str | None = None,
        *,
        limit: int | None = None,
        wanted: Callable[[SessionRecord], bool] = lambda _: True,
        clearance: Clearance = "full",
    ) -> list[SessionRecord]:
        """Sessions that are open and not expired, the one used last first; of all agents, or of one; those `wanted`.

        Archived ones are among them. Open are those that were begun with no more than the system's clearance, and no
        more than this one.
        """
        return await self._find_open(
            lambda record: agent_id in {None, record.agent_id} and wanted(record), limit, clearance=clearance
        )

    async def choose_sessions(self, wanted: SessionFilter, *, clearance: Clearance = "full") -> list[SessionRecord]:
        """The open sessions that fit, the one used last first. Only a filter by what was said looks into any of them.

        Raises `SessionNotFound` where the session that the page should begin behind is gone.
        """
        if wanted.behind is not None:
            await self._open_record(wanted.behind, clearance)
        limit = None if wanted.looks_inside else wanted.limit
        records = await self._find_open(wanted.fits, limit, behind=wanted.behind, clearance=clearance)
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
        clearance: Clearance = "full",
        wanted: SessionFilter | None = None,
        exclude: Collection[str] = (),
        progress: Progress | None = None,
    ) -> list[SessionHit]:
        """The sessions that speak of `text`, best first, each with the line that does so best.

        Only those that are open are searched, as in `list_sessions`; archived ones too, unless `wanted` says otherwise.
        Where many have changed since the last search, `progress` is told how many of those are read.
        """
        from chatbot.memory.session_search import search

        every = await self._catalog.find(lambda _: True)
        await asyncio.to_thread(self._terms.forget_others, {record.id for record in every})
        wanted = replace(wanted or SessionFilter(), limit=None)
        if wanted.looks_inside or wanted.behind is not None:
            chosen = await self.choose_sessions(wanted, clearance=clearance)
        else:
            is_open = self._opening(clearance)
            chosen = [record for record in every if is_open(record) and wanted.fits(record)]
        sessions = [
            handle for record in chosen if record.id not in exclude and (handle := self._openable(record)) is not None
        ]
        return await search(sessions, text, self._terms, self._observing(clearance), limit=limit, progress=progress)

    async def latest_session(self, agent_id: str) -> SessionHandle | None:
        """The agent's session that was used last, or None where it has none."""
        records = await self.choose_sessions(SessionFilter(agent_id=agent_id, is_archived=False, limit=1))
        return await self.load_session(records[0].id, agent_id) if records else None

    async def find_session(
        self, text: str, agent_id: str | None = None, *, clearance: Clearance = "full"
    ) -> SessionRecord:
        """The open session whose id is, or begins with, `text`, or whose title is `text`, whatever the case.

        Raises `SessionNotFound`, or `AmbiguousSession` naming what matches.
        """
        if is_session_id(text):
            return await self._open_record(text, clearance)
        wanted = text.casefold()
        sessions = await self.list_sessions(agent_id, clearance=clearance)
        matches = [record for record in sessions if record.title.casefold() == wanted]
        matches = matches or [record for record in sessions if wanted and record.id.startswith(wanted)]
        if not matches:
            raise SessionNotFound(f"no session has the id, the beginning of an id, or the title {text!r}")
        if len(matches) > 1:
            listed = ", ".join(f"{record.id} {record.title}".strip() for record in matches[:_SHOWN_MATCHES])
            raise AmbiguousSession(f"{text!r} matches {len(matches)} sessions: {listed}")
        return matches[0]

    async def rename_session(self, session_id: str, title: str) -> SessionRecord:
        """Give a session a title; an empty one takes it away."""
        now = self._clock()
        await self._open_record(session_id)
        return await self._catalog.change(session_id, lambda record: record.renamed(title).used(now))

    async def archive_session(self, session_id: str, *, undo: bool = False) -> SessionRecord:
        """Put a session away: it is not offered any more, and still opened and searched by who asks; or undo that."""
        now = self._clock()
        await self._open_record(session_id)
        return await self._catalog.change(
            session_id, lambda record: replace(record, archived_at=None if undo else record.archived_at or now)
        )

    async def fork_session(
        self, session_id: str, agent_id: str | None = None, *, title: str = "", at: int | None = None
    ) -> SessionHandle:
        """A new session that begins with everything the old one holds, and then goes its own way.

        With `at`, of what was said only the first entries up to that number, archived ones counted too; raises
        `InvalidValue` where there are fewer. It belongs to `agent_id`, or to the old one's agent. Receipts stay behind:
        what they bill was spent only once.
        """
        source = await self.load_session(session_id, any_agent=True)
        old = source.record
        record = self._new_record(old.store_types, agent_id or old.agent_id, title or old.title, old.id)
        record = replace(record, clearance=old.clearance)
        async with self._catalog.making(record) as draft:
            await source.copy_to(draft, entries=at)
        return self._handle(record, self._open_stores(record.store_types))

    async def compare_sessions(self, left: str, right: str) -> Comparison:
        """What two sessions have in common, and how they go on from there."""
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
    ) -> SessionHandle:
        """Take in a session that was held elsewhere, whole or not at all, with the times that it has.

        Nobody sees more through it than the system's clearance allows. Call `reorder_sessions` when all are in. Raises
        `InvalidValue` where there is a session of that id.
        """
        if await self.is_taken(record.id):
            raise InvalidValue(f"there is a session {record.id} already")
        clearance = least_clearance(self._caller.clearance, record.clearance)
        record = replace(record, clearance=clearance, expires_at=self._expiry())
        stores = self._open_stores(record.store_types)
        async with self._catalog.making(record) as draft:
            handle = SessionHandle(record, draft, stores, self._catalog, caller=self._caller, turn_order=asyncio.Lock())
            await handle.take_in(entries, key_values, receipts)
        return self._handle(record, stores)

    async def reorder_sessions(self) -> None:
        """Bring adopted sessions into the order of their last use: the index is built anew when it is next read."""
        await self._catalog.reorder()

    async def delete_session(self, session_id: str) -> None:
        """Erase a session, its files included. Raises `SessionNotFound`."""
        await self._erase(await self._open_record(session_id))

    async def expired_sessions(self) -> list[SessionRecord]:
        """The sessions whose time to live is over, and that are not erased yet."""
        now = self._clock()
        return await self._catalog.find(lambda record: record.is_expired(now))

    async def expire_sessions(self) -> list[str]:
        """Erase the sessions whose time to live is over, and return their ids. One that resists stops no other.

        The time is over for all of them, whoever asks.
        """
        now = self._clock()
        erased = []
        for record in await self.expired_sessions():
            try:
                if (await self._catalog.get(record.id)).is_expired(now):  # the index can lag behind
                    await self._erase(record)
                    erased.append(record.id)
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
    ) -> Report:
        """Let what is remembered fade, merge and go, as the policy says; what was done, or would be in a dry run.

        Looks at a bounded number of rows and goes on behind them the next time; `whole` takes as many runs as it needs.
        `part` is what of it is wanted. The rows are those of the first of `stores` that keeps observations. Does
        nothing, and says so, where another process is at it, or was less than `unless_within` ago.
        """
        from chatbot.memory.maintenance.policy import Policy
        from chatbot.memory.maintenance.upkeep import UpkeepFile, Wish, maintain, not_due

        self._upkeep = self._upkeep or UpkeepFile(self.home)
        if not self._upkeep.may_be_due(part, self._clock(), unless_within):
            return not_due(dry_run=dry_run)
        wish = Wish(part=part, dry_run=dry_run, unless_within=unless_within, whole=whole)
        return await maintain(self._scope(stores), self._upkeep, policy or Policy(), wish)

    async def aclose(self) -> None:
        """Close every store. May be called twice."""
        while self._meanings:
            _, meaning = self._meanings.popitem()
            await meaning.aclose()
        if self._embedder is not None:
            await self._embedder.aclose()
        while self._stores:
            _, store = self._stores.popitem()
            await store.aclose()
        await self._catalog.aclose()

    async def _open_record(self, session_id: str, clearance: Clearance = "full") -> SessionRecord:
        """Raises `SessionNotFound`: one that is not open does not exist, and is refused by the same steps."""
        clearance = least_clearance(self._caller.clearance, clearance)
        try:
            record = await self._catalog.get(session_id)
        except SessionNotFound:
            if clearance != "full":  # to whom nothing is closed
                await self._catalog.get_another(is_there=True)
            raise
        if not record.is_open_to(clearance):
            await self._catalog.get_another(is_there=False)
            raise SessionNotFound(f"there is no session {session_id}")
        return record

    async def _find_open(
        self,
        wanted: Callable[[SessionRecord], bool],
        limit: int | None,
        *,
        behind: str | None = None,
        clearance: Clearance = "full",
    ) -> list[SessionRecord]:
        is_open = self._opening(clearance)
        return await self._catalog.find(lambda record: is_open(record) and wanted(record), limit, behind=behind)

    def _opening(self, clearance: Clearance) -> Callable[[SessionRecord], bool]:
        """Whether a session is there now for a caller of that clearance."""
        now = self._clock()
        clearance = least_clearance(self._caller.clearance, clearance)
        return lambda record: not record.is_expired(now) and record.is_open_to(clearance)

    async def _erase(self, record: SessionRecord) -> None:
        ref = self._catalog.ref(record.id)
        for store in self._open_stores(record.store_types).values():
            await store.forget_session(ref)
        await self._catalog.delete(record.id)
        await asyncio.to_thread(self._terms.forget, [record.id])

    async def is_taken(self, session_id: str) -> bool:
        """Whether there is a session of that id, open or not."""
        try:
            await self._catalog.get(session_id)
        except SessionNotFound:
            return False
        except (SessionError, StoreError):
            return True  # by one that is damaged
        return True

    async def _is_filled_as(self, record: SessionRecord, wanted: SessionFilter) -> bool:
        """Whether as much was said in a session as is wanted. One that cannot be read fits nothing."""
        try:
            session = self._handle(record, self._open_stores(record.store_types))
            messages = await session.transcript_count(MESSAGES)
            is_empty = not messages and not await session.transcript_count()
        except (SessionError, StoreError) as error:
            logger.warning("session %s was passed over: %s", record.id, error)
            return False
        return messages >= wanted.min_messages and wanted.is_empty in {None, is_empty}

    def _openable(self, record: SessionRecord) -> SessionHandle | None:
        try:
            return self._handle(record, self._open_stores(record.store_types))
        except StoreError as error:
            logger.warning("session %s was passed over: %s", record.id, error)
            return None

    def _observing(self, clearance: Clearance) -> Scope | None:
        """What the caller may see of what is remembered; None where nothing is."""
        try:
            return replace(self._scope(), clearance=least_clearance(self._caller.clearance, clearance))
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

        A time in the future is not believed, lest the session pass for the one that was used last.
        """
        record = self._new_record(store_types, agent_id, title, None)
        used_at = next((told for told in (used_at, created_at) if told <= record.created_at), _LONG_AGO)
        return replace(record, created_at=min(created_at, used_at), used_at=used_at, origin=origin)

    def _new_record(self, store_types: tuple[str, ...], agent_id: str, title: str, parent: str | None) -> SessionRecord:
        now = self._clock()
        record = SessionRecord(
            id=str(self._new_id()),
            agent_id=agent_id,
            store_types=store_types,
            created_at=now,
            used_at=now,
            parent=parent,
            expires_at=self._expiry(),
        )
        return record.renamed(title)

    def _expiry(self) -> datetime | None:
        return None if self._ttl is None else self._clock() + self._ttl

    def _handle(
        self, record: SessionRecord, stores: Mapping[str, Store], clearance: Clearance = "full"
    ) -> SessionHandle:
        clearance = least_clearance(self._caller.clearance, clearance)
        return self.handle_type(
            record,
            self._catalog.ref(record.id),
            stores,
            self._catalog,
            caller=replace(self._caller, clearance=clearance),
            turn_order=self._turn_orders.setdefault(record.id, asyncio.Lock()),
        )

    def memories(self, agent_id: str = "", *, session_id: str | None = None) -> Memories:
        """What is remembered, for a caller without a session; what they write is of the agent `agent_id`.

        With `session_id` it is written of that session, whose own clearance is not asked.
        """
        return self._remembering(replace(self._scope(), agent_id=agent_id, session_id=session_id))

    def _scope(self, names: Sequence[str] | None = None) -> Scope:
        opened = self._open_stores([self._observations] if names is None else names).values()
        store = next((each for each in opened if isinstance(each, ObservationStore)), None)
        if store is None:
            raise UnsupportedOperation(
                f"of the stores {', '.join(names or [self._observations])} none keeps observations"
            )
        return self._caller.scope(store)

    async def _untell(self, sessions: Collection[str], erased: Collection[str], again: Collection[str]) -> None:
        """Drop what sessions, and forks of them, keep of their transcripts in short; one that is gone keeps nothing.

        And what their receipts and titles tell of rows that were erased.
        """
        elsewhere = await self._catalog.remembering(again) if again else ()
        all_of_them = await self._with_forks(dict.fromkeys([*sessions, *elsewhere]))
        if erased:
            await self._catalog.unsay([self._catalog.ref(each) for each in all_of_them], erased)
        for each in all_of_them:
            try:
                session = await self.load_session(each, any_agent=True)
                for key in TOLD_KEYS if session.supports(KeyValueStore) else ():
                    await session.kv_delete(key)
            except SessionNotFound:
                continue
            except (StoreError, ChatbotError) as error:
                logger.warning("what session %s keeps in short of its transcript stays: %s", each, error)

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

            self._meanings[id(store)] = Meaning(
                self._embedder, store, weight=self._meaning_weight, bill=self._bill, clock=self._clock
            )
        return self._meanings.get(id(store))

    def _cache_root(self) -> Path | None:
        """Where the caches of the observations are, ours are too."""
        root = self._settings.get(self._observations, {}).get("cache")
        return Path(root).expanduser() if isinstance(root, str) and root else None

    def _open_stores(self, names: Sequence[str]) -> dict[str, Store]:
        return {name: self._stores.get(name) or self._open_store(name) for name in names}

    def _open_store(self, name: str) -> Store:
        store = open_store(name, self.home or Path(), self._settings.get(name, {}), beside=self._plugins_beside)
        if self.home is None and store.keeps_files:
            raise UnsupportedOperation(f"the store {name!r} keeps files, and this memory system may write none")
        self._stores[name] = store
        return store
