"""`MemorySystem`: changes and deletes sessions of an identity; its base `SessionOpening` creates and finds them."""

import asyncio
import logging
import time
from bisect import bisect, insort
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from copy import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from chatbot.errors import ChatbotError, SessionError, SessionNotFound
from chatbot.memory.erasure import Erasure, Target, erase, join_erasures, mark_of_deleted, marks_of_session, preview
from chatbot.memory.handle import SessionHandle
from chatbot.memory.inputs import list_of
from chatbot.memory.memory import Memory
from chatbot.memory.opening import SessionOpening
from chatbot.memory.scope import Caller, Scope
from chatbot.memory.session_catalog import SESSIONS_AT_ONCE, with_forks
from chatbot.memory.turn_order import TurnOrder
from chatbot.stores.access import Clearance, Right, least_clearance
from chatbot.stores.base import ObservationStore, SessionStore
from chatbot.stores.errors import InvalidValue, MissingFolder, StoreError, UnsafePath, UnsupportedOperation
from chatbot.stores.fields import how_many
from chatbot.stores.loops import to_its_end
from chatbot.stores.records import EPOCH, KeyValue, SessionRecord, TranscriptEntry, chunks
from chatbot.stores.span import count, observed

if TYPE_CHECKING:
    from chatbot.config import MaintenanceSettings
    from chatbot.embedder import EmbeddingResult
    from chatbot.memory.maintenance import MaintenanceReport, Part, Upkeep

logger = logging.getLogger(__name__)

_LONG_UNUSED, _DOUBT = timedelta(days=60), timedelta(days=7)
"""Time without use after which an expiry is doubtful, and how long such sessions are kept after the next use."""


class MemorySystem(SessionOpening):
    """Opens sessions of one identity for one caller, and the memory without a session, over pluggable stores.

    `home` is the identity's memory folder, made when first needed, or its address in a database, such as
    `postgresql://user@host/database#ada`; None keeps everything in memory and writes nothing.
    `settings` configures stores by name; sessions expire `ttl` after the last addition; `embedder` finds rows by
    meaning, and is closed with the system. A stored session may use a store `module:Class` only if `settings` or an
    earlier `create_session` name it. Use with `async with`; any number of processes may share one `home`.
    """

    _warned_of = 0
    """Number of sessions that the last warning of doubtful expiries named."""

    def cleared_for(
        self,
        clearance: Clearance = "full",
        *,
        rights: Collection[Right] | None = None,
        principal: str | None = None,
        namespace: str | None = None,
        project: str | None = None,
    ) -> "MemorySystem":
        """Return the same memory for a caller who may see or do less, in a namespace and project they may enter.

        Rows and sessions that they make belong to `principal`, by default the user of a user's namespace. Raises
        `AccessDenied` for more than this caller may. Closing either closes both.
        """
        caller = self.caller.narrowed(
            clearance, rights=rights, principal=principal, namespace=namespace, project=project
        )
        if caller == self.caller:
            return self
        other = copy(self)
        other.caller = caller
        return other

    @property
    def embeds_away(self) -> bool:
        """True if the embedder sends texts to a provider, who is paid."""
        return self._embedder is not None and self._embedder.sends_away

    async def embed(self, texts: Sequence[str]) -> "tuple[str, EmbeddingResult]":
        """Return the embedder's name and vectors of texts; billed. Raises `UnsupportedOperation` or `ModelError`."""
        if self._embedder is None:
            raise UnsupportedOperation("this identity has no embedding model: see model in [embedding]")
        begun = time.monotonic()
        found = await self._embedder.embed_all(list_of(texts, "texts"))
        if self._options.bill is not None:
            await self._options.bill(self._embedder.name, found.usage, time.monotonic() - begun)
        self._embedder.check_count(found.vectors, len(texts))
        return self._embedder.name, found

    async def archive_session(self, session_id: str, *, undo: bool = False) -> SessionRecord:
        """Archive a session, so that lists leave it out, or undo that. It can still be opened and searched."""
        now = self._clock()
        self.caller.check("write", await self._open_record(session_id))
        return await self._catalog.change(
            session_id, lambda record: replace(record, archived_at=None if undo else record.archived_at or now)
        )

    async def fork_session(self, session_id: str, *, title: str = "", at: int | None = None) -> SessionHandle:
        """Create a session with a copy of everything that the old one holds but its title: the next message gives one.

        With `at`, copy only the first `at` entries, counting archived ones; raises `InvalidValue` if there are fewer.
        Receipts are not copied: they were paid once. A session of another principal needs the right `curate`.
        """
        source = await self.load_session(session_id, any_agent=True)
        source.check("write")
        old = source.record
        record = self._new_record(old.store_types, old.agent_id, title, old.id)
        record = replace(record, clearance=old.clearance, sensitivity=old.sensitivity, project=old.project)
        try:
            async with self._drafting(record) as draft:
                await to_its_end(source.copy_to(draft, entries=at))  # no thread writes into a copy that is dropped
        except MissingFolder as error:  # the session was deleted meanwhile, with this draft
            raise SessionNotFound.of(session_id) from error
        return self._handle(record, self._stores_of(record))

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
        async with self._drafting(record) as draft:
            await to_its_end(draft.take_in(entries, key_values, receipts, attachments))
        return self._handle(record, self._stores_of(record))

    @asynccontextmanager
    async def _drafting(self, record: SessionRecord) -> AsyncIterator[SessionHandle]:
        """Create a session, filled within the block; an error leaves none."""
        stores = self._stores_of(record)
        async with self._catalog.making(record) as ref:
            order = TurnOrder(self._catalog.place_of(ref).lease("turn"))
            yield self._handle(record, stores, ref=ref, turn_order=order, caller=self.caller.elevated("write"))

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
        """Return the record for `adopt_session`; a time in the future, which would be the last use, is ignored."""
        self._named_stores.update(store_types)
        record = self._new_record(store_types, agent_id, title)
        used_at = next((each for each in (used_at, created_at) if each <= record.created_at), EPOCH)
        return replace(record, created_at=min(created_at, used_at), used_at=used_at, origin=origin)

    async def reorder_sessions(self) -> None:
        """Bring adopted sessions into the order of their last use."""
        await asyncio.to_thread(self._catalog.sessions.reorder)

    async def delete_session(self, *session_ids: str, keep_memory: bool = False) -> Erasure:
        """Erase sessions with their files and, unless `keep_memory`, their memories; several at once take less time.

        Those are all observations and facts of the sessions that the caller may see, with everything derived from them.
        An import does not bring them back. Forks keep their copy and their memories: the result lists them. A session
        goes last: after a kill midway it can be deleted again. Raises `SessionNotFound` if none of them exists, or
        `MissingRight` without `erase`.
        """
        return await self._erase(await self._to_delete(session_ids), self.caller, keep_memory=keep_memory)

    async def preview_delete(self, *session_ids: str) -> Erasure:
        """Return what `delete_session` would erase. Raises `SessionNotFound` if there is none, or `MissingRight`."""
        records = await self._to_delete(session_ids)
        target = Target(sessions=tuple(record.id for record in records))
        found = [await preview(scope, target) for scope in self._scopes_of(records, self.caller)]
        return join_erasures(found, forks=await self._forks_of(target.sessions))

    async def _to_delete(self, session_ids: Sequence[str]) -> list[SessionRecord]:
        """Return the records of those that exist. Raises `SessionNotFound` if none does, or `MissingRight`."""
        records: list[SessionRecord] = []
        refusal: Exception = InvalidValue("name at least one session")
        for each in session_ids:
            try:
                records.append(await self._open_record(each))
            except SessionNotFound as error:
                refusal = error
            else:
                self.caller.check("erase", records[-1])
        if not records:
            raise refusal
        return records

    async def erase_session(self, *records: SessionRecord, keep_memory: bool = False) -> Erasure:
        """Delete sessions of this namespace as `delete_session` does, whatever clearance they need. Needs `erase`.

        Raises `SessionNotFound` for one of another namespace, or if another process was faster with all of them.
        """
        self.caller.check("erase")
        if foreign := [record for record in records if record.namespace != self.caller.namespace]:
            raise SessionNotFound.of(foreign[0].id)
        return await self._erase(records, self.caller.elevated(clearance="full"), keep_memory=keep_memory)

    async def sessions_anywhere(self) -> list[SessionRecord]:
        """Return the sessions of this namespace and of those inside it, expired ones too.

        Without a namespace, a caller who may curate gets those of all. For the management of users: whether a session
        is open to the caller is not checked.
        """
        own = self.caller
        within = f"{own.namespace}/"
        is_everywhere = own.may_cross or (not own.namespace and "curate" in own.rights)
        return await self._catalog.find(lambda record: is_everywhere or f"{record.namespace}/".startswith(within))

    async def expired_sessions(self) -> list[SessionRecord]:
        """Return expired sessions that are not erased and the caller may know of, the owner in every namespace."""
        is_expired = self._expiry_check()
        return await self._catalog.find(lambda record: is_expired(record) and self._may_know(record))

    async def expire_sessions(self, *, keep_memory: bool = True, at_once: bool = False) -> list[str]:
        """Erase all expired sessions that can be erased. Return the ids that the caller may know of.

        Their memories stay, unless `keep_memory` is false: then all of them are erased, visible or not. Without any use
        for 60 days after their expiry they stay for a week, with a warning, unless `at_once`: the clock may be wrong.
        """
        expired, erased = await self._catalog.find(self._expiry_check()), list[SessionRecord]()
        if expired and not at_once:
            expired = await self._without_doubtful(expired)
        for namespace in sorted({record.namespace for record in expired}):
            for some in chunks([record for record in expired if record.namespace == namespace], SESSIONS_AT_ONCE):
                erased += await self._expire(some, keep_memory=keep_memory)
        return [record.id for record in erased if self._may_know(record)]

    async def _without_doubtful(self, expired: Sequence[SessionRecord]) -> list[SessionRecord]:
        """Return the sessions that a clock which jumped ahead cannot have made expire."""
        now, ttl = self._clock(), self._environment.ttl
        records = await self._catalog.find(lambda _: True)
        uses = sorted(at for each in records for at in (each.created_at, each.used_at))

        def is_doubtful(until: datetime) -> bool:
            later = bisect(uses, until)
            used_again = min([now, *uses[later : later + 1]])
            return used_again - until >= _LONG_UNUSED and now - used_again < _DOUBT

        ends = {record.id: record.expiry(ttl) or now for record in expired}
        if doubtful := list(filter(is_doubtful, ends.values())):  # of a session only the last use is known
            with suppress(StoreError):
                insort(uses, await self._open_upkeep().doubt(max(doubtful), now))
        certain = [record for record in expired if not is_doubtful(ends[record.id])]
        if (kept := len(expired) - len(certain)) and kept != self._warned_of:
            told = "%s expired more than %d days before the next use, and will be deleted a week after it: if today is "
            told += "not %s, correct the clock; `chatbot sessions prune` deletes at once"
            logger.warning(told, how_many(kept, "session"), _LONG_UNUSED.days, now.date())
        self._warned_of = kept
        return certain

    async def _expire(self, records: Sequence[SessionRecord], *, keep_memory: bool) -> list[SessionRecord]:
        """Erase those that are still expired, as the index can lag behind; one by one after a failure. Return them."""
        try:
            is_expired = self._expiry_check()
            still = [record for record in records if is_expired(await self._catalog.get(record.id))]
            if not still:
                return []
            gone = await self._erase(still, self._owner_in(still[0].namespace), keep_memory=keep_memory)
            return [record for record in still if record.id in gone.sessions]
        except (SessionError, StoreError) as error:
            if len(records) > 1:
                return [each for one in records for each in await self._expire([one], keep_memory=keep_memory)]
            if not isinstance(error, SessionNotFound):  # which another process was faster to erase
                logger.warning("session %s is expired and could not be erased: %s", records[0].id, error)
            return []

    async def _erase(self, records: Sequence[SessionRecord], caller: Caller, *, keep_memory: bool) -> Erasure:
        """Erase sessions, and their memories that the caller may see; those that another process deletes are skipped.

        Raises `SessionNotFound` if another process deleted all of them.
        """
        target, parents = Target(sessions=tuple(record.id for record in records)), await self._catalog.parents()
        forks = await self._forks_of(target.sessions)
        scopes = [] if keep_memory else self._scopes_of(records, caller)
        stores = [(record.id, store) for record in records for store in self._stores_of(record).values()]
        marks, forked = [mark_of_deleted(record.id) for record in records], {*parents.values()}
        for record in records:
            marks += () if keep_memory else marks_of_session(record.id, record.origin)
            known = with_forks([record.id], parents) if record.id in forked else ()
            left = [each for each in known if each not in target.sessions]
            if left:  # their summaries leave out what was erased before, or is later
                owner = self._handle(record, self._stores_of(record), caller=self._owner_in(record.namespace))
                with suppress(UnsafePath):  # a folder or link in place of receipts keeps no session
                    await owner.hand_over(left, own=keep_memory)
        await self.tombstones.bar(marks, self._clock())
        erased = [await erase(scope, target) for scope in scopes]
        for session_id, store in stores:
            if isinstance(store, SessionStore):
                await store.forget_session(self._catalog.ref(session_id))
        gone = await self._catalog.delete(*target.sessions)
        # a hook of their last turns may have remembered something meanwhile
        erased += [await erase(scope, target) for scope in scopes]
        return join_erasures(erased, forks=forks, sessions=gone, kept=keep_memory)

    def _scopes_of(self, records: Iterable[SessionRecord], caller: Caller) -> list[Scope]:
        """Return the scopes that may hold memories of sessions, for the owner across all namespaces."""
        stores = self._open_stores([self._default_store])
        for record in records:
            stores |= self._stores_of(record)
        return [
            Scope(store, caller, self._environment).everywhere()
            for store in stores.values()
            if isinstance(store, ObservationStore)
        ]

    async def _forks_of(self, sessions: Sequence[str]) -> list[str]:
        """Return the other sessions that are direct or indirect forks of these and open to the caller."""
        forks = with_forks(sessions, await self._catalog.parents())[len({*sessions}) :]
        found = await self._find_open(lambda record: record.id in forks, None) if forks else []
        return sorted((record.id for record in found), key=forks.index)

    def _may_know(self, record: SessionRecord) -> bool:
        own = self.caller
        return record.is_open_to(own.clearance, record.namespace if own.may_cross else own.namespace, own.project)

    async def maintain(
        self,
        policy: "MaintenanceSettings | None" = None,
        *,
        part: "Part" = "",
        stores: Sequence[str] | None = None,
        dry_run: bool = False,
        unless_within: timedelta = timedelta(0),
        whole: bool = False,
    ) -> "MaintenanceReport":
        """Decay, merge and erase memories by the policy; return the changes made, or those of a dry run.

        Reads a bounded number of rows and continues after them the next time; `whole` makes as many runs as needed.
        `part` limits it to one part. The rows are those of the first of `stores` that keeps observations. Does nothing,
        and reports that, if another process is running maintenance, or did less than `unless_within` ago.
        """
        from chatbot.memory.maintenance import MaintenanceOptions

        upkeep = self._open_upkeep()
        self.caller.check("curate")
        options = MaintenanceOptions(policy, part=part, dry_run=dry_run, unless_within=unless_within, whole=whole)
        report = await upkeep.run(self._scope(stores), options)
        if not report.dry_run:
            for kind, rows in report.counts().items():
                count("maintained", rows, change=kind)
        return report

    def _open_upkeep(self) -> "Upkeep":
        from chatbot.memory.maintenance import Upkeep

        self._upkeep = self._upkeep or Upkeep(self.backend)
        return self._upkeep

    def unobserved(self) -> Memory | None:
        """Return the owner's memory in all namespaces, without spans, for metrics; None before first use."""
        if not any(isinstance(store, ObservationStore) for store in self._stores.values()):
            return None
        scope = self._scope().everywhere()
        return Memory(replace(scope, caller=replace(scope.caller, observer=None)))

    @property
    def is_embedding(self) -> bool:
        """True while memories are embedded in the background."""
        return any(meaning.is_under_way for meaning in self._meanings.values())

    async def aclose(self) -> None:
        """Close the stores and the embedder. May be called twice."""
        self._catalog.is_closed = True
        if self.caller.observer is not None:
            self.caller.observer.closed(self)
        with self._opening_stores:
            stores = list(self._stores.values())
            self._stores.clear()
        async with AsyncExitStack() as closing:  # one that fails leaves no other open
            for each in (self._catalog, *stores):
                closing.push_async_callback(each.aclose)
            closing.push_async_callback(self._close_embedder)
            while self._meanings:
                _, meaning = self._meanings.popitem()
                with observed(self.caller.observer):
                    await meaning.aclose()

    async def _close_embedder(self) -> None:
        try:
            if self._embedder is not None:
                await self._embedder.aclose()
        except ChatbotError as error:
            logger.warning("the embedding model could not be closed: %s", error)
