"""What became of an import, told to whoever asked for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from chatbot.exchange.items import Skipped
from chatbot.memory.exchanges import EXCHANGE
from chatbot.memory.writing import Draft


@dataclass(slots=True)
class Report:
    """What became of an import; on a dry run, what would."""

    kind: str
    path: str
    dry_run: bool
    sessions: list[dict[str, Any]] = field(default_factory=list)
    """The sessions that came in or grew: key, title, how many entries, and the id they have here."""
    memories: int = 0
    exchanges: int = 0
    """What was said in conversations and is remembered, so that it can be recalled into prompts."""
    facts: int = 0
    changed: int = 0
    """Memories that were here and say something else by now."""
    already: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """What is not taken over of the conversations, such as calls of tools."""
    redacted: Counter[str] = field(default_factory=Counter)

    def add(self, draft: Draft) -> None:
        """Count something that is remembered now."""
        if draft.type == EXCHANGE:
            self.exchanges += 1
        else:
            self.memories += 1

    def as_json(self) -> dict[str, Any]:
        """The report in values that JSON knows."""
        return {
            "kind": self.kind,
            "path": self.path,
            "dry_run": self.dry_run,
            "sessions": self.sessions,
            "memories": self.memories,
            "exchanges": self.exchanges,
            "facts": self.facts,
            "changed": self.changed,
            "already": self.already,
            "skipped": [{"what": each.what, "why": each.why} for each in self.skipped],
            "left_out": dict(self.left_out),
            "redacted": dict(self.redacted),
        }
