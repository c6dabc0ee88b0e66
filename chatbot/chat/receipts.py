"""The receipt: what one turn did, kept as one line of `receipts.jsonl`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from chatbot.chat.prompt import PromptBundle
from chatbot.chat.usage import Call
from stores.records import TranscriptEntry, format_time

VERSION = 1

Finish = Literal["stop", "length", "content_filter", "tool_limit", "empty", "cancelled", "error"]
"""How a turn ended: the model's own reasons, then ours."""


@dataclass(slots=True)
class Receipt:
    """The record of a turn while it is written; times are aware UTC, `seconds` wall-clock."""

    turn: str
    """UUIDv7."""
    session: str | None
    agent: str
    model: str
    at: datetime
    """When the user's entry was written, by which its receipt is found."""
    finish: Finish = "stop"
    reply: str = ""
    """What was said; it stands in the transcript, so the kept line leaves it out."""
    seconds: float = 0.0
    first_text_seconds: float | None = None
    calls: list[Call] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    window: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    prompt_sha256: str = ""
    memory: dict[str, Any] = field(default_factory=dict)
    """What was looked at in memory, with scores, what was injected, and why the rest was not."""
    remembered: str | None = None
    """The observation that keeps this exchange."""
    title: str = ""
    """What this turn has called the session."""
    notices: list[str] = field(default_factory=list)
    error: str | None = None

    def note_prompt(self, prompt: PromptBundle, entries: list[TranscriptEntry]) -> None:
        """Write down what the model is sent; of several prompts in a turn the last one stands."""
        self.prompt_sha256 = prompt.sha256()
        self.tokens = {**prompt.parts, "reply_reserve": prompt.reply_tokens}
        self.window = {
            "entries": len(entries),
            "messages": len(prompt.messages) - 1,
            "parts_left_out": list(prompt.dropped),
            "messages_left_out": prompt.left_out,
            "from": format_time(entries[0].at) if entries else None,
            "to": format_time(entries[-1].at) if entries else None,
        }

    def as_json(self) -> dict[str, Any]:
        """The receipt as its line holds it."""
        return {
            "version": VERSION,
            "turn": self.turn,
            "session": self.session,
            "agent": self.agent,
            "at": format_time(self.at),
            "model": self.model,
            "finish": self.finish,
            "error": self.error,
            "seconds": round(self.seconds, 3),
            "first_text_seconds": self.first_text_seconds and round(self.first_text_seconds, 3),
            "calls": [call.as_json() for call in self.calls],
            "tools": self.tools,
            "window": self.window,
            "tokens": self.tokens,
            "memory": self.memory,
            "remembered": self.remembered,
            **({"title": self.title} if self.title else {}),
            "prompt_sha256": self.prompt_sha256,
            "notices": self.notices,
        }
