"""Limits on the memories sent to a provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from chatbot.providers import OURS
from chatbot.stores.access import GuardedRow, Sensitivity
from chatbot.stores.fields import how_many

TRANSCRIPT_TOOLS = frozenset({"session_read", "session_search"})
"""Tools that answer with parts of transcripts, which have no sensitivity."""
MEMORY_TOOLS = TRANSCRIPT_TOOLS | {
    *("memory_confirm", "memory_facts", "memory_forget", "memory_get", "memory_history", "memory_list"),
    *(
        "memory_people",
        "memory_profile",
        "memory_profile_proposals",
        "memory_profile_reject",
        "memory_profile_set",
        "memory_recall",
        "memory_search",
        "memory_supersede",
        "memory_timeline",
        "memory_write",
    ),
    *("memory_state", "task_add", "task_list", "task_update"),
}
"""All tools of the plug-in `memory`: even writing tools return stored memories."""


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What one provider may be sent of what is remembered.

    By default that is all but rows that somebody marked: a private row is sent to models that run in this process, or
    where the provider's `sensitivity` says so, and a secret one to none.
    """

    provider: str = ""
    memory: bool = True
    sensitivity: Literal["", "public", "private"] = ""

    @property
    def sent(self) -> tuple[Sensitivity, ...]:
        """Sensitivities of the rows that are sent, where `memory` is."""
        is_private = self.sensitivity == "private" or (self.provider in {"", *OURS} and not self.sensitivity)
        return ("public", "private") if is_private else ("public",)

    @property
    def rule(self) -> str:
        """What keeps rows from being sent: a setting of the provider, or else the mark of each."""
        if not self.memory:
            return "memory = false"
        return 'sensitivity = "public"' if self.sensitivity == "public" else "marked sensitive"

    @property
    def withheld_tools(self) -> frozenset[str]:
        """The tools whose answers are not to be sent, and which are therefore not offered."""
        if not self.memory:
            return MEMORY_TOOLS
        return TRANSCRIPT_TOOLS if self.sensitivity == "public" else frozenset()

    def withholds(self, row: GuardedRow) -> bool:
        """Return True if a row must not be sent."""
        return not self.memory or row.sensitivity not in self.sent

    def record(self, **withheld: Any) -> dict[str, Any]:
        """Return the entry of a receipt about withheld memories."""
        return {"provider": self.provider, "rule": self.rule, **withheld}

    def note(self, count: int) -> str:
        """Return the line that tells the model of withheld memories."""
        notes = f"{how_many(count, 'note')} about this {'is' if count == 1 else 'are'}"
        return f"- ({notes} withheld from {self.provider or 'the model'} by the user's choice: {self.rule})"
