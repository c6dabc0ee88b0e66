"""Messages of other frameworks: their text, and how a transcript keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from chatbot.chat.dialogue import ASSISTANT, USER
from chatbot.chat.turn_memory import RECENT_QUESTIONS
from chatbot.memory.record import utc_now
from chatbot.messages import INTRODUCTION, Message
from chatbot.stores.errors import InvalidValue
from chatbot.stores.records import TranscriptEntry

ITEM = "item"
"""The role of a transcript entry that holds a framework's own message, as JSON."""
ChatMessage = Message | Mapping[str, Any] | str
"""A message with role and content as OpenAI's clients write them; a string is one of the user."""


def text_of(content: object) -> str:
    """The text of a message's content, which may come in parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    texts = (each.get("text") if isinstance(each, Mapping) else each for each in parts)
    return "\n".join(each for each in texts if isinstance(each, str))


def is_block(text: str) -> bool:
    """Return whether a message is only a memory block."""
    return text.startswith(INTRODUCTION)


def entry_of(item: Mapping[str, Any]) -> TranscriptEntry:
    """The transcript entry of a framework's message: as text where it is a role and a text, and else as JSON."""
    role, content = item.get("role"), item.get("content")
    if item.keys() == {"role", "content"} and role in {USER, ASSISTANT} and isinstance(content, str) and content:
        return TranscriptEntry(role, content, utc_now())
    return TranscriptEntry(ITEM, json.dumps(item, ensure_ascii=False), utc_now())


def item_of(entry: TranscriptEntry) -> dict[str, Any]:
    """Return the message from which an entry was made."""
    if entry.role != ITEM:
        return {"role": entry.role, "content": entry.content}
    try:
        found = json.loads(entry.content)
    except ValueError:  # edited by hand
        found = None
    return found if isinstance(found, dict) else {"role": USER, "content": entry.content}


def spoken(entry: TranscriptEntry) -> TranscriptEntry:
    """The entry with what was said in it, where a framework keeps that in JSON."""
    if entry.role != ITEM:
        return entry
    item = item_of(entry)
    role, text = item.get("role"), text_of(item.get("content"))
    return TranscriptEntry(role, text, entry.at) if role in {USER, ASSISTANT} and text else entry


def asked_in(messages: Sequence[ChatMessage] | str) -> list[str]:
    """Return the last messages of the user, the one to be answered last."""
    said = [_of_user(each) for each in ([messages] if isinstance(messages, str) else messages)]
    return [each for each in said if each.strip()][-RECENT_QUESTIONS:]


def _of_user(message: ChatMessage) -> str:
    if isinstance(message, str):
        return message
    if isinstance(message, Message):
        return message.content if message.role == USER else ""
    if not isinstance(message, Mapping):
        raise InvalidValue(f"a message is a string, or has role and content: got {type(message).__name__}")
    return text_of(message.get("content")) if message.get("role") == USER else ""
