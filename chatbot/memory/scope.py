"""On whose behalf memory is read and written: the store, the caller's clearance, and where new rows belong."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from chatbot.memory.namespaces import check_entry, check_namespace, may_cross, user_of
from chatbot.memory.scoring import PROFILES, ScoringProfile
from chatbot.stores.access import (
    EVERY_RIGHT,
    OWNER,
    SENSITIVITIES,
    Clearance,
    Guard,
    OwnedRow,
    Right,
    Sensitivity,
    View,
    check_may,
    least_clearance,
)
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import AccessDenied, StoreFailed
from chatbot.stores.fields import LONGEST_LINE
from chatbot.stores.observation import Observation
from chatbot.stores.query import EVERY, Filter, Order
from chatbot.stores.row_events import Event, Outcome
from chatbot.stores.span import Observer, count, observed, span

if TYPE_CHECKING:
    from chatbot.memory.meaning import Meaning
    from chatbot.memory.notices import Notices
    from chatbot.memory.origins import Mark
    from chatbot.memory.tombstones import Tombstones

logger = logging.getLogger(__name__)

PUBLIC: tuple[Sensitivity, ...] = ("public",)
Sensitivities: TypeAlias = "tuple[Sensitivity, ...] | Collection[Sensitivity]"
"""Sensitivities asked for. A tuple is a collection, but mypy takes `("private",)` for one of any words."""
Untell = Callable[[Collection[str], Collection[str], Collection[str]], Awaitable[None]]
"""Delete derived summaries, receipts and titles of these sessions that quote the erased rows.

Also those of any other session that remembered one of the last rows: what is said again makes no new row.
"""


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """An operation on memory. The ids are those of the rows that it changed or returned, in its order."""

    action: Literal["update", "retrieve"]
    operation: str
    """Its name: remember, update, supersede, forget, search, recall, get, …"""
    session_id: str
    """Empty for a caller without a session."""
    agent_id: str
    ids: tuple[str, ...]
    at: datetime

    @property
    def topic(self) -> str:
        """The topic of the hooks that hear it: `memory.<session id>.update`, or `.retrieve`."""
        return f"memory.{self.session_id}.{self.action}"


Tell = Callable[[MemoryEvent], None]
"""Called after each operation, with its event."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of a handle: what they may see and do, where they write, and their clock and source of ids."""

    clearance: Clearance
    namespace: str
    clock: Callable[[], datetime]
    new_id: Callable[[], UUID]
    meaning_of: Callable[[ObservationStore], Meaning | None] = lambda _: None
    """Search of rows by meaning, or None."""
    profiles: Mapping[str, ScoringProfile] = field(default_factory=lambda: PROFILES)
    tell: Tell | None = None
    """Listener to each operation."""
    observer: Observer | None = None
    """Observer that is given spans and counts of each operation."""
    untell: Untell | None = None
    """Removes what sessions keep of deleted exchanges."""
    tombstones: Tombstones | None = None
    """Purged rows, which an import does not restore."""
    notices: Notices | None = None
    """Tells followers of the memory which rows were purged."""
    principal: str = OWNER
    """Principal in whose name they write; see `chatbot.stores.access`."""
    rights: frozenset[Right] = EVERY_RIGHT
    sensitivity: Sensitivity = "public"
    """Least sensitivity of what they write."""

    def check(self, right: Right, row: OwnedRow | None = None) -> None:
        """Raise `MissingRight` where they may not do that with the row."""
        check_may(self, right, row)

    def narrowed(
        self,
        clearance: Clearance | None = None,
        *,
        rights: Collection[Right] | None = None,
        principal: str | None = None,
        namespace: str | None = None,
    ) -> Holder:
        """The caller with less: of clearances and rights what both allow, in a namespace that this one may enter.

        Only the owner may act in another principal's name. Where none is named, a user's namespace is entered in the
        name of that user. Raises `AccessDenied`, or `InvalidValue` for an impossible namespace.
        """
        space = self.namespace if namespace is None else check_namespace(namespace, LONGEST_LINE)
        check_entry(space, at=self.namespace, principal=self.principal, rights=self.rights)
        if principal is None:
            principal = self.principal if space == self.namespace or user_of(space) is None else space
        is_further_in = bool(self.namespace) and space.startswith(f"{self.namespace}/") and principal != OWNER
        if principal != self.principal and not (is_further_in or may_cross(self.principal, self.rights)):
            raise AccessDenied(f"{self.principal!r} may not act in the name of {principal!r:.80}")
        return replace(
            self,
            clearance=least_clearance(self.clearance, clearance or self.clearance),
            rights=self.rights if rights is None else self.rights & frozenset(rights),
            principal=principal,
            namespace=space,
        )

    def scope_view(self, clearance: Clearance) -> View:
        """Return the caller's view now with that clearance, of public sensitivity only."""
        spaces = frozenset({self.namespace})
        return View(clearance, self.clock(), frozenset(PUBLIC), spaces, self.principal, self.rights)

    def scope(
        self,
        store: ObservationStore,
        *,
        agent_id: str = "",
        session_id: str | None = None,
        clearance: Clearance | None = None,
        sensitivity: Sensitivity = "public",
    ) -> Scope:
        """The caller's place in that store; what is written there is at least as sensitive."""
        return Scope(
            store,
            clearance or self.clearance,
            self.clock,
            self.new_id,
            agent_id=agent_id,
            session_id=session_id,
            namespace=self.namespace,
            meaning=self.meaning_of(store),
            profiles=self.profiles,
            tell=self.tell,
            observer=self.observer,
            untell=self.untell,
            tombstones=self.tombstones,
            notices=self.notices,
            principal=self.principal,
            rights=self.rights,
            sensitivity=max(self.sensitivity, sensitivity, key=SENSITIVITIES.index),
        )


@dataclass(frozen=True, slots=True)
class Scope:
    """One caller's place in the memory of an identity."""

    store: ObservationStore
    clearance: Clearance
    clock: Callable[[], datetime]
    new_id: Callable[[], UUID]
    agent_id: str = ""
    session_id: str | None = None
    namespace: str = ""
    meaning: Meaning | None = None
    profiles: Mapping[str, ScoringProfile] = field(default_factory=lambda: PROFILES)
    tell: Tell | None = None
    observer: Observer | None = None
    untell: Untell | None = None
    tombstones: Tombstones | None = None
    notices: Notices | None = None
    across: bool = False
    """True if rows of all namespaces are read, not only those of `namespace`."""
    principal: str = OWNER
    rights: frozenset[Right] = EVERY_RIGHT
    sensitivity: Sensitivity = "public"
    """Least sensitivity of new rows and facts."""
    erasing: bool = False
    """True to find rows without a class and facts that were retracted or of outdated sources too, to delete them."""
    expects: frozenset[str] | None = None
    """Expected version, as in `View.expects`."""
    made: dict[str, str] | None = None
    """Filled with the version of each memory as a write left it, by id; None notes none."""

    def at_least(self, sensitivity: Sensitivity) -> Sensitivity:
        """Return the sensitivity of a new row that is given this one; an unknown word stays for the row's check."""
        order = SENSITIVITIES.index
        is_less = sensitivity in SENSITIVITIES and order(sensitivity) < order(self.sensitivity)
        return self.sensitivity if is_less else sensitivity

    def check(self, right: Right) -> None:
        """Raise `MissingRight` where the caller may not do that at all."""
        check_may(self, right)

    def view(self, ask: Sensitivities = PUBLIC) -> View:
        """Return the caller's view of these sensitivities now. Raises `MissingRight` without the right to read."""
        self.check("read")
        return self.acting(ask)

    def acting(self, ask: Sensitivities = PUBLIC) -> View:
        """The caller's view for a change, which the store allows or refuses."""
        spaces = None if self.across else frozenset({self.namespace})
        return View(
            self.clearance,
            self.clock(),
            frozenset(ask),
            spaces,
            self.principal,
            self.rights,
            self.erasing,
            self.expects,
        )

    def elsewhere(self, *, namespace: str | None, across: bool | None, clearance: Clearance | None) -> Scope:
        """The scope in another namespace, or across all of them, or with less clearance. Raises `AccessDenied`."""
        space = self.namespace if namespace is None else check_namespace(namespace, LONGEST_LINE)
        check_entry(space, at=self.namespace, principal=self.principal, rights=self.rights)
        if across and not may_cross(self.principal, self.rights):
            raise AccessDenied("only the owner may look across all namespaces")
        return replace(
            self,
            namespace=space,
            across=self.across if across is None else across,
            clearance=least_clearance(self.clearance, clearance or self.clearance),
        )

    async def rows(
        self,
        wanted: Filter,
        *,
        view: View,
        limit: int = EVERY,
        order: Order = "created",
        ascending: bool = False,
        after: str | None = None,
    ) -> list[Observation]:
        """The rows that fit, by time, at most `limit` of them: page after page, however many there are."""
        found: list[Observation] = []
        while True:
            page = await self.store.find(
                view, wanted, order=order, ascending=ascending, limit=limit - len(found), after=after
            )
            found += page.rows
            after = page.after
            if after is None or len(found) >= limit:
                return found

    async def bar(self, marks: Sequence[Mark]) -> None:
        """Keep what has these marks from coming back with an import. Durable on return.

        On a disk that is full it is only warned: what is to be erased makes room.
        """
        await bar(self.tombstones, marks, self.clock())

    async def unsaid(self, rows: Iterable[Observation], *, erased: Collection[str] = ()) -> None:
        """Remove deleted exchanges and captures from the summaries of their sessions.

        Those in `erased` are also removed from receipts and titles.
        """
        said = [row for row in rows if row.type == "exchange" or row.source == "auto"]
        sessions = {row.session_id for row in said if row.session_id is not None}
        if sessions and self.untell is not None:
            await self.untell(sessions, erased, {row.id for row in said if row.mention_count})

    async def gone(self, guards: Mapping[str, Guard], erased: Collection[str]) -> None:
        """Tell followers which of the rows that had these guards were erased. Durable on return."""
        those = {each: guard for each, guard in guards.items() if each in erased}
        if those and self.notices is not None:
            await asyncio.to_thread(self.notices.of_purged, those)

    def changed(self, operation: str, ids: Sequence[str]) -> None:
        """Report that these rows were changed."""
        if ids:
            self._tell("update", operation, ids)

    def retrieved(self, operation: str, ids: Iterable[str]) -> None:
        """Report that these rows were returned; with none, that nothing was found."""
        self._tell("retrieve", operation, ids)

    def _tell(self, action: Literal["update", "retrieve"], operation: str, ids: Iterable[str]) -> None:
        found = tuple(ids)
        count(action, len(found), operation=operation)
        if self.tell is not None:
            self.tell(MemoryEvent(action, operation, self.session_id or "", self.agent_id, found, self.clock()))

    async def attempt(self, events: Sequence[Event]) -> list[Outcome]:
        """Make the changes that are allowed, and note the versions that they make."""
        outcomes = await self.store.commit(self.acting().asking_all(), events)
        if self.made is not None:
            self.made.update({outcome.id: outcome.version for outcome in outcomes if outcome.version})
        return outcomes

    async def commit(self, *events: Event) -> list[Outcome]:
        """Make changes; raises the error of the first that was refused."""
        outcomes = await self.attempt(events)
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        for event, outcome in zip(events, outcomes, strict=True):
            self.changed(event.kind, event.ids or (outcome.id,))
        return outcomes


async def bar(tombstones: Tombstones | None, marks: Sequence[Mark], at: datetime) -> None:
    """Write marks to the tombstones, so that no import restores these rows; a failure is logged."""
    try:
        if tombstones is not None and marks:
            await asyncio.to_thread(tombstones.add, marks, at)
    except StoreFailed as error:
        logger.warning("an import can bring back what is erased now: %s", error)


class ScopedOperations(ABC):
    """The base of the operations on memory: each public coroutine of a subclass is a span.

    Not those of a subclass that is declared with `spans=False`: what it does by itself is done by stores, which have
    spans of their own.
    """

    __slots__ = ()

    def __init_subclass__(cls, *, spans: bool = True, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, operation in list(vars(cls).items()) if spans else ():
            if iscoroutinefunction(operation) and not name.startswith("_") and name != "aclose":
                setattr(cls, name, _entered(operation))

    @property
    @abstractmethod
    def observer(self) -> Observer | None:
        """Observer that is given spans and counts."""

    @abstractmethod
    def _scope(self) -> Scope:
        """Return the caller's scope. Raises `UnsupportedOperation` where no store keeps observations."""


def _entered(operation: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return the operation as a span, which sets the observer for all that is done within."""

    @wraps(operation)
    async def entered(self: ScopedOperations, *arguments: Any, **options: Any) -> Any:
        observer = self.observer
        if observer is None:
            return await operation(self, *arguments, **options)
        with observed(observer), span("memory", operation=operation.__name__):
            return await operation(self, *arguments, **options)

    return entered
