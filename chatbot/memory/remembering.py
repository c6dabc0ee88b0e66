"""Everything that can be done with what is remembered, and the plain way to do it outside of a session."""

from __future__ import annotations

from dataclasses import replace

from chatbot.memory.namespaces import may_cross
from chatbot.memory.people import People
from chatbot.memory.profile import Profiles
from chatbot.memory.reading import Reading
from chatbot.memory.scope import Scope
from chatbot.memory.summaries import Summaries
from chatbot.memory.tasks import Tasks
from chatbot.stores.access import Clearance
from chatbot.stores.span import Observer


class Remembering(Profiles, Tasks, Summaries, Reading, People):
    """The operations on observations, profiles, people, tasks, facts and summaries."""

    __slots__ = ()

    def within(
        self, *, namespace: str | None = None, across: bool | None = None, clearance: Clearance | None = None
    ) -> Memories:
        """The same memory in another namespace, across all of them, or as seen with less clearance.

        Raises `AccessDenied`: only the owner may leave a namespace.
        """
        scope = self._scope().elsewhere(namespace=namespace, across=across, clearance=clearance)
        return self._remembering(scope)

    def everywhere(self) -> Memories:
        """The same memory across all namespaces, where the caller may look there; else as it is."""
        scope = self._scope()
        return self._remembering(replace(scope, across=may_cross(scope.principal, scope.rights)))

    def _remembering(self, scope: Scope) -> Memories:
        """The operations in another place."""
        return Memories(scope)


class Memories(Remembering):
    """What an identity remembers, as one caller sees it."""

    __slots__ = ("_own",)

    def __init__(self, scope: Scope) -> None:
        self._own = scope

    @property
    def scope(self) -> Scope:
        """Where the caller stands: their store, clearance, rights and namespace."""
        return self._own

    @property
    def observer(self) -> Observer | None:
        """Who is given spans and counts."""
        return self._own.observer

    def _scope(self) -> Scope:
        self._own.store.check_open()
        return self._own
