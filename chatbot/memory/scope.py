"""On whose behalf memory is read and written: the store, the caller's clearance, and where new rows belong."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from chatbot.memory.scoring import PROFILES, Profile
from chatbot.memory.told import MemoryEvent, Tell
from stores.access import Clearance, Sensitivity, View
from stores.base import ObservationStore
from stores.events import Event, Outcome
from stores.observation import Observation

if TYPE_CHECKING:
    from chatbot.memory.meaning import Meaning

PUBLIC: tuple[Sensitivity, ...] = ("public",)
Untell = Callable[[Collection[str], Collection[str], Collection[str]], Awaitable[None]]
"""Makes sessions, by their ids, forget what they made of their transcripts, and what they tell of these erased rows.

So does whatever other session says that it remembered one of the last rows, for what is said again makes no other row.
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who holds a handle: what they may see, where they write, and their clock and source of ids."""

    clearance: Clearance
    namespace: str
    clock: Callable[[], datetime]
    new_id: Callable[[], UUID]
    meaning_of: Callable[[ObservationStore], Meaning | None] = lambda _: None
    """What finds rows of a store by their meaning, if anything does."""
    profiles: Mapping[str, Profile] = field(default_factory=lambda: PROFILES)
    tell: Tell | None = None
    """Who is told of each operation."""
    untell: Untell | None = None
    """What takes back what sessions keep of the exchanges in them."""

    def scope(
        self,
        store: ObservationStore,
        *,
        agent_id: str = "",
        session_id: str | None = None,
        clearance: Clearance | None = None,
    ) -> Scope:
        """The caller's place in that store."""
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
            untell=self.untell,
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
    profiles: Mapping[str, Profile] = field(default_factory=lambda: PROFILES)
    tell: Tell | None = None
    untell: Untell | None = None
    across: bool = False
    """Whether rows of all namespaces are read, not only those of `namespace`."""

    def view(self, ask: Collection[Sensitivity] = PUBLIC) -> View:
        """What the caller sees now, asking for these sensitivities."""
        spaces = None if self.across else frozenset({self.namespace})
        return View(self.clearance, self.clock(), frozenset(ask), spaces)

    async def unsaid(self, rows: Iterable[Observation], *, erased: Collection[str] = ()) -> None:
        """Exchanges and captures among these rows are gone from memory: their sessions shall not tell of them again.

        Of those that were erased, by their ids, nor shall receipts and titles.
        """
        said = [row for row in rows if row.type == "exchange" or row.source == "auto"]
        sessions = {row.session_id for row in said if row.session_id is not None}
        if sessions and self.untell is not None:
            await self.untell(sessions, erased, {row.id for row in said if row.mention_count})

    def changed(self, operation: str, ids: Sequence[str]) -> None:
        """Tell that these rows were changed."""
        if ids:
            self._tell("update", operation, ids)

    def retrieved(self, operation: str, ids: Iterable[str]) -> None:
        """Tell that these rows were returned; of none, that nothing was found."""
        self._tell("retrieve", operation, ids)

    def _tell(self, action: Literal["update", "retrieve"], operation: str, ids: Iterable[str]) -> None:
        if self.tell is not None:
            at = self.clock()
            self.tell(MemoryEvent(action, operation, self.session_id or "", self.agent_id, tuple(ids), at))

    async def commit(self, *events: Event) -> list[Outcome]:
        """Make changes; raises the error of the first that was refused."""
        outcomes = await self.store.commit(self.view().asking_all(), events)
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        for event, outcome in zip(events, outcomes, strict=True):
            self.changed(event.kind, event.ids or (outcome.id,))
        return outcomes


class Scoped(ABC):
    """What the operations on memory are built upon."""

    __slots__ = ()

    @abstractmethod
    def _scope(self) -> Scope:
        """The caller's scope. Raises `UnsupportedOperation` where no store keeps observations."""
