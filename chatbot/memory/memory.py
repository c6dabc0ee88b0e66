"""`Memory`: every operation on what is remembered, as one caller sees it."""

from __future__ import annotations

from dataclasses import replace

from chatbot.memory.people import People
from chatbot.memory.profile import Profiles
from chatbot.memory.reading import MemoryReads
from chatbot.memory.summaries import Summaries
from chatbot.memory.tasks import Tasks
from chatbot.stores.access import Clearance
from chatbot.stores.errors import AccessDenied


class Memory(Profiles, Tasks, Summaries, MemoryReads, People):
    """Observations, profile, people, tasks, facts and summaries, in the scope of one caller.

    `system.memory(agent)` and `session.memory` return one.
    """

    __slots__ = ()

    def within(
        self, *, namespace: str | None = None, across: bool | None = None, clearance: Clearance | None = None
    ) -> Memory:
        """Return the same memory in another namespace, across all of them, or with less clearance.

        Raises `AccessDenied`: only the owner may leave a namespace.
        """
        scope = self.scope
        caller = scope.caller.narrowed(clearance, namespace=namespace, principal=scope.caller.principal)
        if across and not caller.may_cross:
            raise AccessDenied("only the owner may look across all namespaces")
        return Memory(replace(scope, caller=caller, across=scope.across if across is None else across))

    def everywhere(self) -> Memory:
        """Return the same memory across all namespaces if the caller may look there; if not, unchanged."""
        return Memory(self.scope.everywhere())

    def expecting(self, versions: frozenset[str] | None, made: dict[str, str] | None = None) -> Memory:
        """The same memory, whose changes raise `ChangedMeanwhile` for a row that has none of these versions.

        None expects nothing. `made` is filled with the version of each row as a write left it, by id.
        """
        return Memory(replace(self.scope, expects=versions, made=made))
