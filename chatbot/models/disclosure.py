"""Limits on the memories sent to a provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from chatbot.providers import OURS
from chatbot.stores.access import GuardedRow

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
    """Limits of one provider, in addition to the session's; none by default."""

    provider: str = ""
    memory: bool = True
    sensitivity: Literal["", "public", "private"] = ""

    @property
    def sends_private(self) -> bool:
        """Return whether private lines of the profile may be sent: to local models, or with consent."""
        is_ours = self.provider in {"", *OURS} and not self.sensitivity
        return self.memory and (is_ours or self.sensitivity == "private")

    @property
    def rule(self) -> str:
        """The setting that limits what is sent; empty if none does."""
        if not self.memory:
            return "memory = false"
        return f'sensitivity = "{self.sensitivity}"' if self.sensitivity == "public" else ""

    @property
    def withheld_tools(self) -> frozenset[str]:
        """The tools whose answers are not to be sent, and which are therefore not offered."""
        if not self.memory:
            return MEMORY_TOOLS
        return TRANSCRIPT_TOOLS if self.sensitivity == "public" else frozenset()

    def withholds(self, row: GuardedRow) -> bool:
        """Return True if a row must not be sent."""
        return not self.memory or (self.sensitivity == "public" and row.sensitivity != "public")

    def record(self, **withheld: Any) -> dict[str, Any]:
        """Return the entry of a receipt about withheld memories."""
        return {"provider": self.provider, "rule": self.rule, **withheld}
