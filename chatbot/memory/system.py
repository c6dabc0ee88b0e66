"""`MemorySystem`: the life of sessions, and the stores that they share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from chatbot.embedding import Embedder
from chatbot.errors import AmbiguousSession, SessionError, SessionExpired, SessionNotFound, WrongAgent
from chatbot.memory.catalog import EphemeralCatalog, FolderCatalog, SessionCatalog
from chatbot.memory.handle import SessionHandle
from chatbot.memory.meaning import WEIGHT, Billing, Meaning
from chatbot.memory.record import SessionRecord, is_session_id, new_id, utc_now
from chatbot.memory.remembering import Memories, Remembering
from chatbot.memory.scope import Caller, Scope
from chatbot.memory.scoring import PROFILES, Profile
from chatbot.memory.told import Tell
from stores.access import Clearance, least_clearance
from stores.base import ObservationStore, Store
from stores.errors import StoreError, UnsupportedOperation
from stores.lifecycle import AsyncResource
from stores.plugins import open_store

if TYPE_CHECKING:
    from uuid import UUID

    from chatbot.memory.policy import Part, Policy
    from chatbot.memory.report import Report
    from chatbot.memory.upkeep import UpkeepFile

logger = logging.getLogger(__name__)

_SHOWN_MATCHES = 5


class MemorySystem(AsyncResource, Remembering):
    """Issues sessions of one identity and hands out `SessionHandle`s over pluggable stores.

    What is remembered can also be asked and changed without a session, through the store `observations`.

    `home` is the identity's memory folder, made when first needed; None keeps everything in memory and writes nothing.
    `embedder` lets rows be found by their meaning too, and is closed along; `bill` is told of its calls.
    `profiles` weigh what was found: `search`, `recent`, `inject` and any of one's own. `tell` hears of each operation.
    `settings` configures stores by name, `ttl` lets sessions expire that long after their last use. Open with
    `async with`; any number of processes may share one `home`.
    """

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
        self._caller = Caller(clearance, namespace, clock, new_id, self._meaning_of, profiles, tell)
        self._embedder = embedder
        self._meaning_weight = meaning_weight
        self._bill = bill
        self._meanings: dict[int, Meaning] = {}
        self._observations = observations or ("in_memory" if home is None else "observations")
        self._catalog: SessionCatalog = EphemeralCatalog() if self.home is None else FolderCatalog(self.home)
        self._stores: dict[str, Store] = {}
        self._upkeep: UpkeepFile | None = None
        self._turn_orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def clearance(self) -> Clearance:
        """What whoever holds this may see at most."""
        return self._caller.clearance

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

        What is remembered is seen with the least of three clearances: the system's, the session's, and this one.

        Raises `SessionNotFound`, `SessionExpired`, or `WrongAgent` where the session is not of `agent_id` and
        `any_agent` was not asked for.
        """
        record = await self._catalog.get(session_id)
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
    ) -> list[SessionRecord]:
        """Sessions that are not expired, the one used last first; of all agents, or of one; only those `wanted`."""
        now = self._clock()
        return await self._catalog.find(
            lambda record: not record.is_expired(now) and agent_id in {None, record.agent_id} and wanted(record), limit
        )

    async def latest_session(self, agent_id: str) -> SessionHandle | None:
        """The agent's session that was used last, or None where it has none."""
        records = await self.list_sessions(agent_id, limit=1)
        return await self.load_session(records[0].id, agent_id) if records else None

    async def find_session(self, text: str, agent_id: str | None = None) -> SessionRecord:
        """The session whose id is, or begins with, `text`, or whose title is `text`, whatever the case.

        Raises `SessionNotFound`, or `AmbiguousSession` naming what matches.
        """
        if is_session_id(text):
            return await self._catalog.get(text)
        wanted = text.casefold()
        sessions = await self.list_sessions(agent_id)
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
        return await self._catalog.change(session_id, lambda record: record.renamed(title).used(now))

    async def fork_session(self, session_id: str, agent_id: str | None = None, *, title: str = "") -> SessionHandle:
        """A new session that begins with everything the old one holds, and then goes its own way.

        It belongs to `agent_id`, or to the old one's agent. Receipts stay behind: what they bill was spent only once.
        """
        source = await self.load_session(session_id, any_agent=True)
        old = source.record
        record = self._new_record(old.store_types, agent_id or old.agent_id, title or old.title, old.id)
        record = replace(record, clearance=old.clearance)
        async with self._catalog.making(record) as draft:
            await source.copy_to(draft)
        return self._handle(record, self._open_stores(record.store_types))

    async def delete_session(self, session_id: str) -> None:
        """Erase a session, its files included. Raises `SessionNotFound`."""
        record = await self._catalog.get(session_id)
        ref = self._catalog.ref(session_id)
        for store in self._open_stores(record.store_types).values():
            await store.forget_session(ref)
        await self._catalog.delete(session_id)

    async def expire_sessions(self) -> list[str]:
        """Erase the sessions whose time to live is over, and return their ids. One that resists stops no other."""
        now = self._clock()
        erased = []
        for record in await self._catalog.find(lambda record: record.is_expired(now)):
            try:
                if (await self._catalog.get(record.id)).is_expired(now):  # the index can lag behind
                    await self.delete_session(record.id)
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
        from chatbot.memory.policy import Policy
        from chatbot.memory.upkeep import UpkeepFile, Wish, maintain

        self._upkeep = self._upkeep or UpkeepFile(self.home)
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
        return SessionHandle(
            record,
            self._catalog.ref(record.id),
            stores,
            self._catalog,
            caller=replace(self._caller, clearance=clearance),
            turn_order=self._turn_orders.setdefault(record.id, asyncio.Lock()),
        )

    def memories(self, agent_id: str = "") -> Memories:
        """What is remembered, for a caller without a session; what they write is of the agent `agent_id`."""
        return Memories(replace(self._scope(), agent_id=agent_id))

    def _scope(self, names: Sequence[str] | None = None) -> Scope:
        opened = self._open_stores([self._observations] if names is None else names).values()
        store = next((each for each in opened if isinstance(each, ObservationStore)), None)
        if store is None:
            raise UnsupportedOperation(
                f"of the stores {', '.join(names or [self._observations])} none keeps observations"
            )
        return self._caller.scope(store)

    def _meaning_of(self, store: ObservationStore) -> Meaning | None:
        if self._embedder is not None and id(store) not in self._meanings:
            self._meanings[id(store)] = Meaning(
                self._embedder, store, weight=self._meaning_weight, bill=self._bill, clock=self._clock
            )
        return self._meanings.get(id(store))

    def _open_stores(self, names: Sequence[str]) -> dict[str, Store]:
        return {name: self._stores.get(name) or self._open_store(name) for name in names}

    def _open_store(self, name: str) -> Store:
        store = open_store(name, self.home or Path(), self._settings.get(name, {}), beside=self._plugins_beside)
        if self.home is None and store.keeps_files:
            raise UnsupportedOperation(f"the store {name!r} keeps files, and this memory system may write none")
        self._stores[name] = store
        return store
