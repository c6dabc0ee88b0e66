"""Everything that can be done with what is remembered, and the plain way to do it outside of a session."""

from __future__ import annotations

from dataclasses import replace

from chatbot.memory.people import People
from chatbot.memory.reading import Reading
from chatbot.memory.scope import Scope
from chatbot.memory.summaries import Summaries
from chatbot.memory.tasks import Tasks
from stores.access import Clearance, least_clearance


class Remembering(Tasks, Summaries, Reading, People):
    """The operations on observations, people, tasks, facts and summaries."""

    __slots__ = ()

    def within(
        self, *, namespace: str | None = None, across: bool | None = None, clearance: Clearance | None = None
    ) -> Memories:
        """The same memory in another namespace, across all of them, or as seen with less clearance."""
        scope = self._scope()
        return self._remembering(
            replace(
                scope,
                namespace=scope.namespace if namespace is None else namespace,
                across=scope.across if across is None else across,
                clearance=least_clearance(scope.clearance, clearance or scope.clearance),
            )
        )

    def _remembering(self, scope: Scope) -> Memories:
        """The operations in another place."""
        return Memories(scope)


class Memories(Remembering):
    """What an identity remembers, as one caller sees it."""

    __slots__ = ("_own",)

    def __init__(self, scope: Scope) -> None:
        self._own = scope

    def _scope(self) -> Scope:
        return self._own
