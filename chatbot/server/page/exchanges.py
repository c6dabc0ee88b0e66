"""Exchanges of a transcript, as the page shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chatbot.attachments import Link, split
from chatbot.chat.dialogue import ASSISTANT, TOOL, TOOL_CALL, USER
from chatbot.chat.receipts import memory_line
from chatbot.stores.records import TranscriptEntry, format_time

_LONGEST_TOOL_TEXT = 4_000


@dataclass(slots=True)
class Exchange:
    """A message and all entries up to the next one. `at` identifies it; `question` is None without a message."""

    at: str
    moment: datetime
    question: str | None
    answers: list[AnswerEntry] = field(default_factory=list)
    receipt: dict[str, Any] | None = None
    """Memories that the turn recalled and added, where known."""
    files: tuple[Link, ...] = ()
    """Files and pictures of the message."""
    turn: str = ""
    """The name of the turn that writes it now; empty for one that is complete."""

    @property
    def reply(self) -> str:
        """The text of the reply, as Markdown."""
        return "\n\n".join(each.text for each in self.answers if each.role == ASSISTANT)

    @property
    def recalled(self) -> str:
        """How many memories the model saw, and how many were withheld."""
        return memory_line((self.receipt or {}).get("memory") or {})

    @property
    def remembers(self) -> bool:
        """True if the exchange itself is remembered."""
        return bool((self.receipt or {}).get("remembered"))


@dataclass(frozen=True, slots=True)
class AnswerEntry:
    """One entry after a message: `role` is assistant, tool_call, tool, error, or any other text."""

    role: str
    text: str
    names: str = ""


def exchanges(entries: Iterable[TranscriptEntry]) -> list[Exchange]:
    """The entries, gathered."""
    found: list[Exchange] = []
    for entry in entries:
        if entry.role == USER or not found:
            asked, files = split(entry.content) if entry.role == USER else (None, ())
            found.append(Exchange(format_time(entry.at), entry.at, asked, files=files))
        if entry.role != USER:
            found[-1].answers.append(_answer(entry))
    return found


def with_receipts(found: Iterable[Exchange], receipts: Iterable[dict[str, Any]]) -> None:
    """Give each exchange the receipt of its turn; of several, the last written."""
    by_time = {str(each["at"]): each for each in sorted(receipts, key=lambda each: str(each["at"]))}
    for each in found:
        each.receipt = by_time.get(each.at)


def position(entries: Sequence[TranscriptEntry], at: str) -> int | None:
    """Return the index of the message of that time; None if it is gone."""
    for number, entry in enumerate(entries):
        if entry.role == USER and format_time(entry.at) == at:
            return number
    return None


def _answer(entry: TranscriptEntry) -> AnswerEntry:
    if entry.role == TOOL_CALL:
        return _call(entry.content)
    if entry.role == TOOL:
        result = _json(entry.content)
        text = str(result.get("content", "")) if isinstance(result, dict) else entry.content
        return AnswerEntry(TOOL, _shortened(text))
    return AnswerEntry(entry.role, entry.content)


def _call(content: str) -> AnswerEntry:
    calls = _json(content)
    named = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    names = ", ".join(str(call.get("name", "?")) for call in named)
    told = "\n".join(f"{call.get('name', '?')} {call.get('arguments', '')}" for call in named)
    return AnswerEntry(TOOL_CALL, _shortened(told or content), names or "a tool")


def _json(content: str) -> Any:
    """Return tool names; text broken by a manual edit is shown unchanged."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TOOL_TEXT else text[:_LONGEST_TOOL_TEXT] + "…"
