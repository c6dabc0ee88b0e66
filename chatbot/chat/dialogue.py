"""Dialogue as lines of a transcript and messages for a model, and titles for it.

A model is shown `user`, `assistant`, `tool_call` and `tool` entries. Any other role is for people: an `error` entry, or
a role that someone made up, is never shown to it, so no entry can speak as the system. The earlier replies
to a message that was answered again stay before the current one, under roles such as `reply-1-assistant`.

A title by rule is the first sentence with content, without quotations, code and heading marks. A sentence of one
content word that is no question says little: if there is no other, the title is the text itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from msgspec.structs import replace

from chatbot.memory import SessionHandle
from chatbot.memory.memorability import content
from chatbot.messages import Message, ToolCall, asks, sentences
from chatbot.redaction import redact
from chatbot.stores.records import TranscriptEntry

ASSISTANT = "assistant"
ERROR = "error"
TOOL = "tool"
TOOL_CALL = "tool_call"
USER = "user"
STOPPED = "stopped before the reply was complete"
"""The `error` entry of a reply that the user stopped."""

_ENTRIES_AT_FIRST = 32
_WITHHELD = '{"withheld": "this answer is not sent to this provider"}'

_ASIDE = re.compile(r"reply-([1-9]\d{0,5})-(.+)")

Line = tuple[str, str]
"""A role and a content, as a transcript entry holds them."""


def tool_call_line(calls: Iterable[ToolCall]) -> Line:
    """Return the entry that records the tool calls of a model."""
    listed = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
    return TOOL_CALL, json.dumps(listed, ensure_ascii=False, indent=2)


def tool_result_line(call_id: str, content: str) -> Line:
    """Return the entry that records the answer of a tool."""
    return TOOL, json.dumps({"id": call_id, "content": content}, ensure_ascii=False, indent=2)


def messages_of(said: Sequence[Line]) -> list[Message]:
    """Return the messages for a model: from the first user entry on, tool calls only with their results."""
    messages: list[Message] = []
    for role, text in said:
        if text and (role == USER or (role == ASSISTANT and messages)):
            messages.append(Message("user" if role == USER else "assistant", text))
        elif role == TOOL_CALL and messages:
            _add_calls(messages, _read_calls(text))
        elif role == TOOL and messages:
            messages.extend(_read_result(text))
    return _paired(messages)


async def last_exchange(session: SessionHandle) -> list[TranscriptEntry]:
    """Return the entries from the user's last one on; empty if there is none."""
    n = _ENTRIES_AT_FIRST
    while True:
        entries = await session.transcript_read_last(n)
        asked = max((at for at, entry in enumerate(entries) if entry.role == USER), default=None)
        if asked is not None or len(entries) < n:
            return [] if asked is None else entries[asked:]
        n *= 4


def replies_of(entries: Iterable[TranscriptEntry]) -> tuple[dict[int, list[Line]], int]:
    """Return every reply among the entries after a message, by its number from 1, and the number of the current one."""
    found: dict[int, list[Line]] = {}
    current: list[Line] = []
    for entry in entries:
        if aside := _ASIDE.fullmatch(entry.role):
            found.setdefault(int(aside[1]), []).append((aside[2], entry.content))
        else:
            current.append((entry.role, entry.content))
    number = next(number for number in count(1) if number not in found)
    return dict(sorted((found | {number: current}).items())), number


def reply_lines(replies: Mapping[int, Sequence[Line]], current: int) -> list[Line]:
    """Return the entries that hold these replies, one of which is current."""
    others = [(number, line) for number, lines in replies.items() if number != current for line in lines]
    return [
        *((f"reply-{number}-{role}"[:32], content) for number, (role, content) in others),
        *replies.get(current, ()),
    ]


def unanswered(entries: Sequence[TranscriptEntry]) -> list[ToolCall]:
    """Return the unanswered calls among these entries."""
    answered = {each.tool_call_id for entry in entries if entry.role == TOOL for each in _read_result(entry.content)}
    calls = [call for entry in entries if entry.role == TOOL_CALL for call in _read_calls(entry.content)]
    return [call for call in calls if call.id not in answered]


def without_answers(messages: Sequence[Message], tools: Collection[str]) -> list[Message]:
    """Replace the answers of these tools in earlier turns, when another model was allowed to call them."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [
        replace(message, content=_WITHHELD) if names.get(str(message.tool_call_id)) in tools else message
        for message in messages
    ]


def _add_calls(messages: list[Message], calls: tuple[ToolCall, ...]) -> None:
    """Add calls to the text of the same reply, if it has one."""
    if not calls:
        return
    spoken = messages.pop() if messages[-1].role == "assistant" and not messages[-1].tool_calls else None
    messages.append(Message("assistant", spoken.content if spoken else "", tool_calls=calls))


def _paired(messages: list[Message]) -> list[Message]:
    """Drop calls without an answer and answers without a call: providers refuse both."""
    paired: list[Message] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            continue
        if not message.tool_calls:
            paired.append(message)
            continue
        results = _results_after(messages, at)
        calls = tuple(call for call in message.tool_calls if call.id in results)
        if calls or message.content:
            paired.append(Message("assistant", message.content, tool_calls=calls))
            paired.extend(results[call.id] for call in calls)
    return paired


def _results_after(messages: list[Message], at: int) -> dict[str, Message]:
    results = {}
    for message in messages[at + 1 :]:
        if message.role != "tool":
            break
        results[str(message.tool_call_id)] = message
    return results


def _read_calls(content: str) -> tuple[ToolCall, ...]:
    listed = _json(content)
    if not isinstance(listed, list):
        return ()
    return tuple(
        ToolCall(call["id"], call["name"], call["arguments"])
        for call in listed
        if isinstance(call, dict) and all(isinstance(call.get(key), str) for key in ("id", "name", "arguments"))
    )


def _read_result(content: str) -> list[Message]:
    result = _json(content)
    if not isinstance(result, dict) or not isinstance(result.get("id"), str):
        return []
    return [Message("tool", str(result.get("content", "")), tool_call_id=result["id"])]


def _json(content: str) -> Any:
    """Parse JSON; None for an entry that a hand edit made unreadable."""
    try:
        return json.loads(content)
    except ValueError:
        return None


class Window:
    """The last entries that the model is shown: at most `limit` before those of the turn itself. One a conversation.

    A window that moved at every turn would defeat prompt caches. So it grows to its limit, then restarts with its later
    half.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.since: datetime | None = None
        """Time of the first entry shown; older ones were left out."""
        self.greeting = ""
        """The title that this conversation made from a greeting, until a better one can be made."""

    def cut(self, entries: Sequence[TranscriptEntry], own: int) -> list[TranscriptEntry]:
        """Return the entries to show of the last `limit + own` ones; the last `own` belong to this turn."""
        since = self.since
        if since is not None and entries and entries[0].at > since and len(entries) >= self.limit + own:
            kept = list(entries[(len(entries) - own) // 2 :])
        else:
            kept = [entry for entry in entries if since is None or entry.at >= since]
        begin = next((at for at, entry in enumerate(kept) if entry.role == USER), 0)
        kept = kept[begin:]
        self.since = kept[0].at if kept else None
        return kept


LONGEST = 60
REPLY_TOKENS = 32
"""Tokens of a title by a model."""
_A_TOPIC = 3
"""Least content words of a sentence as title, if the text has such a sentence."""
_SHOWN = 1_000
"""Characters of a message that a model is shown for a title."""

_CODE = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)
_MARKS = re.compile(r"^\s*(?:[-*+] |#+ |\d+[.)] )*")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
_QUOTES = "\"'“”„«»‘’`*_# "


def title_of(text: str) -> str:
    """Return a title for a conversation that begins with `text`, on one line, at most 60 characters long.

    A text that says little is its own title, until a later one says more. A longer sentence is preferred to a short
    first one, which may be a greeting with a name.
    """
    lines = [line for line in _CODE.sub("\n", text).split("\n") if not line.lstrip().startswith(">")]
    parts = [" ".join(_MARKS.sub("", part).split()) for part in sentences("\n".join(lines), _SENTENCE)]
    whole = next((part for part in parts if any(map(str.isalnum, part))), " ".join(text.split()))
    saying = [part for part in parts if not says_little(part)]
    long = (part for part in saying if asks(part) or len(content(part)) >= _A_TOPIC)
    return _cut(next(long, saying[0] if saying else whole))


def title_from(message: str) -> str:
    """Return the title by rule of a session that begins with this message, without its secrets."""
    return title_of(redact(message)[0])


def says_little(text: str) -> bool:
    """Return whether a text says so little, such as a greeting, that a later one makes a better title."""
    return len(content(text)) <= (0 if asks(text) else 1)


def title_request(text: str, reply: str) -> list[Message]:
    """Return the prompt for a title of the conversation that began with this exchange."""
    return [
        Message(
            "user",
            "Give a title of two to six words to the conversation that begins below. Answer with the title alone, in "
            f"the language of the conversation.\n\nUser: {text[:_SHOWN]}\n\nAssistant: {reply[:_SHOWN]}",
        )
    ]


def title_in(answer: str) -> str:
    """Return the title in a model's answer; empty if there is none."""
    line = next((line for line in answer.splitlines() if line.strip(_QUOTES)), "")
    return _cut(re.sub(r"^\s*title\s*:\s*", "", line.strip(_QUOTES), flags=re.IGNORECASE).strip(_QUOTES).rstrip("."))


def _cut(title: str) -> str:
    """Cut a title to 60 characters, between words where there are any."""
    if len(title) <= LONGEST:
        return title
    head = title[: LONGEST - 1]
    at_a_space = head.rfind(" ")
    return (head[:at_a_space] if at_a_space > LONGEST // 2 else head).rstrip(" ,;:–—-") + "…"
