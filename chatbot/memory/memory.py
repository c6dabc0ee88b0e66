"""`Memory`: every operation on what is remembered, as one caller sees it."""

from __future__ import annotations

from dataclasses import replace

from chatbot.memory.namespaces import may_cross
from chatbot.memory.people import People
from chatbot.memory.profile import Profiles
from chatbot.memory.reading import MemoryReads
from chatbot.memory.scope import Scope
from chatbot.memory.summaries import Summaries
from chatbot.memory.tasks import Tasks
from chatbot.stores.access import Clearance
from chatbot.stores.span import Observer


class Memory(Profiles, Tasks, Summaries, MemoryReads, People):
    """Observations, profile, people, tasks, facts and summaries of one agent, session, namespace and clearance.

    `session.memory` and `system.memory(agent)` give one. `SessionHandle` and `MemorySystem` offer the same operations
    themselves, by inheriting them.
    """

    __slots__ = ("_own",)

    def __init__(self, scope: Scope) -> None:
        self._own = scope

    @property
    def scope(self) -> Scope:
        """Store, clearance, rights, namespace, agent and session of the caller."""
        return self._scope()

    @property
    def observer(self) -> Observer | None:
        """Observer that is given spans and counts."""
        return self._own.observer

    def within(
        self, *, namespace: str | None = None, across: bool | None = None, clearance: Clearance | None = None
    ) -> Memory:
        """Return the same memory in another namespace, across all of them, or with less clearance.

        Raises `AccessDenied`: only the owner may leave a namespace.
        """
        return Memory(self._scope().elsewhere(namespace=namespace, across=across, clearance=clearance))

    def everywhere(self) -> Memory:
        """Return the same memory across all namespaces if the caller may look there; if not, unchanged."""
        scope = self._scope()
        return Memory(replace(scope, across=may_cross(scope.principal, scope.rights)))

    def expecting(self, versions: frozenset[str] | None, made: dict[str, str] | None = None) -> Memory:
        """The same memory, whose changes raise `ChangedMeanwhile` for a row that has none of these versions.

        None expects nothing. `made` is filled with the version of each row as a write left it, by id.
        """
        return Memory(replace(self._scope(), expects=versions, made=made))

    def _scope(self) -> Scope:
        self._own.store.check_open()
        return self._own
