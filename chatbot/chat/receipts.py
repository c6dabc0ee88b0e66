"""The receipt: what one turn did, kept as one line of `receipts.jsonl`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from chatbot.chat.prompt import PromptBundle
from chatbot.chat.usage import Call
from chatbot.stores.records import TranscriptEntry, format_time

VERSION = 1

Finish = Literal["stop", "length", "content_filter", "tool_calls", "tool_limit", "empty", "cancelled", "error"]
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
    """Time of the user's entry, by which its receipt is found."""
    resumed_at: datetime | None = None
    """Time at which a message was answered again, or tool results continued a turn that had ended with their calls."""
    reply_number: int = 1
    """The number of the reply among those to the same message."""
    finish: Finish = "stop"
    reply: str = ""
    """The reply; the transcript holds it, so the line on the disk leaves it out."""
    seconds: float = 0.0
    first_text_seconds: float | None = None
    calls: list[Call] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    """The files of the user's message: names, kinds, sizes, and the blobs that keep them."""
    window: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    prompt_sha256: str = ""
    memory: dict[str, Any] = field(default_factory=dict)
    """The rows that were considered, with scores, those injected, and why the others were not."""
    remembered: str | None = None
    """The observation that keeps this exchange."""
    title: str = ""
    """The title that this turn gave the session."""
    notices: list[str] = field(default_factory=list)
    error: str | None = None

    def note_prompt(self, prompt: PromptBundle, entries: list[TranscriptEntry]) -> None:
        """Record the prompt; of several prompts in a turn the last one counts."""
        self.prompt_sha256 = prompt.sha256()
        self.tokens = {**prompt.parts, "reply_reserve": prompt.reply_tokens}
        self.window = {
            "entries": len(entries),
            "messages": len(prompt.messages) - 1,
            "parts_left_out": list(prompt.dropped),
            "messages_left_out": prompt.left_out,
            **({"cut": [each.as_json() for each in prompt.cut]} if prompt.cut else {}),
            "from": format_time(entries[0].at) if entries else None,
            "to": format_time(entries[-1].at) if entries else None,
        }

    def as_json(self) -> dict[str, Any]:
        """Return the receipt as one record."""
        return {
            "version": VERSION,
            "turn": self.turn,
            "session": self.session,
            "agent": self.agent,
            "at": format_time(self.at),
            **({"resumed_at": format_time(self.resumed_at)} if self.resumed_at else {}),
            **({"reply_number": self.reply_number} if self.reply_number > 1 else {}),
            "model": self.model,
            "finish": self.finish,
            "error": self.error,
            "seconds": round(self.seconds, 3),
            "first_text_seconds": self.first_text_seconds and round(self.first_text_seconds, 3),
            "calls": [call.as_json() for call in self.calls],
            "tools": self.tools,
            **({"attachments": self.attachments} if self.attachments else {}),
            "window": self.window,
            "tokens": self.tokens,
            "memory": self.memory,
            "remembered": self.remembered,
            **({"title": self.title} if self.title else {}),
            "prompt_sha256": self.prompt_sha256,
            "notices": self.notices,
        }
