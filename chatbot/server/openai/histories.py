"""Search for the conversation of a client that only sends all of it, every time.

A session keeps the digest of the conversation as its client holds it after each reply: what the client sent, without
instructions, and what it was answered. Nothing that a client sends as an assistant's words is ever written down.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chatbot.chat.dialogue import ASSISTANT, USER
from chatbot.memory import SessionHandle, SessionRecord
from chatbot.messages import Message, ToolCall
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai.asked import kept_text, text_of
from chatbot.stores.errors import MissingRight
from chatbot.stores.records import TranscriptEntry


@dataclass(frozen=True, slots=True)
class HistoryMatch:
    """A session that a history fits, up to its first `entries`; None of those: up to its end."""

    session_id: str
    entries: int | None = None


def digest(messages: Sequence[Message]) -> str:
    """The digest of a conversation; what clients change in passing, such as outer white space, does not count."""
    said = [_canonical(each) for each in messages if each.content.strip() or each.tool_calls or each.parts]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def opening(messages: Sequence[Message]) -> str:
    """The digest of its first exchange; empty where that is not whole."""
    first = next((at for at, each in enumerate(messages) if each.role == "assistant"), None)
    return "" if first is None else digest(messages[: first + 1])


def mark(messages: Sequence[Message], entries: int) -> str:
    """Return the mark by which a conversation is found in a session whose transcript has so many entries."""
    return f"{digest(messages)}:{entries}"


async def find(access: IdentityAccess, history: Sequence[Message]) -> HistoryMatch | None:
    """The one session of this caller that this is the whole history of, or the one that it was the history of before.

    None where there is none, or several that fit as well.
    """
    try:
        records = await _records(access, history)
        whole = digest(history)
        exact = [record for record in records if record.history.partition(":")[0] == whole]
        if len(exact) > 1:
            return None
        return await _best(access, exact or records, history)
    except MissingRight:  # a caller who may not read is not recognized by their history
        return None


async def _records(access: IdentityAccess, history: Sequence[Message]) -> list[SessionRecord]:
    """The sessions that began as the history does."""
    first, own = opening(history), access.memory.principal
    if not first:
        return []
    return await access.memory.list_sessions(
        access.runtime.agent,
        wanted=lambda record: record.opening == first and record.principal == own,
        clearance=access.clearance,
    )


async def _best(
    access: IdentityAccess, records: Sequence[SessionRecord], history: Sequence[Message]
) -> HistoryMatch | None:
    fits = [(*await _fit(access, record, history), record.id) for record in records]
    whole = [session_id for _, is_all, session_id in fits if is_all]
    if whole:
        return HistoryMatch(whole[0]) if len(whole) == 1 else None
    entries, _, session_id = max(fits, default=(0, False, ""))  # of several, all hold the same so far
    return HistoryMatch(session_id, entries) if entries else None


async def _fit(access: IdentityAccess, record: SessionRecord, history: Sequence[Message]) -> tuple[int, bool]:
    """Return the number of the session's entries at the history's beginning, and whether that is all of both."""
    session = await access.session(record.id)
    entries = await session.transcript_read_all()
    if record.history == mark(history, len(entries)) and not access.is_answered(record.id):
        return len(entries), True
    shared, exchanges = _shared(entries, history)
    is_all = shared == len(entries) and exchanges == sum(1 for _ in _sent(history))
    return shared, is_all and not access.is_answered(record.id)


def _shared(entries: Sequence[TranscriptEntry], history: Sequence[Message]) -> tuple[int, int]:
    """Return the number of entries, and of exchanges, with which both begin."""
    shared = exchanges = 0
    for (size, *kept), sent in zip(_kept(entries), _sent(history), strict=False):
        if tuple(kept) != sent:
            break
        shared, exchanges = shared + size, exchanges + 1
    return shared, exchanges


def _kept(entries: Sequence[TranscriptEntry]) -> Iterator[tuple[int, str, str]]:
    """The exchanges of a transcript: how many entries, what the user said, and what was answered."""
    begins = [at for at, entry in enumerate(entries) if entry.role == USER]
    if begins and begins[0]:
        return
    for begin, end in zip(begins, [*begins[1:], len(entries)], strict=True):
        said = [entry.content for entry in entries[begin:end] if entry.role == ASSISTANT]
        yield end - begin, kept_text(entries[begin].content).strip(), "\n\n".join(said).strip()


def _sent(history: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """The exchanges of a client's history, told in the same way."""
    asked: list[str] = []
    answered: list[str] = []
    for message in history:
        if message.role == "user":
            if answered:
                yield "\n\n".join(asked).strip(), "\n\n".join(answered).strip()
                asked, answered = [], []
            asked.append(text_of(message))
        elif message.role == "assistant" and message.content:
            answered.append(message.content)
    if asked or answered:
        yield "\n\n".join(asked).strip(), "\n\n".join(answered).strip()


def _canonical(message: Message) -> list[Any]:
    urls = [*(image.url for image in message.images), *(file.url for file in message.files)]
    pictures = [hashlib.sha256(url.encode()).hexdigest() for url in urls]
    return [message.role, message.content.strip(), [_call(each) for each in message.tool_calls], pictures]


def _call(call: ToolCall) -> list[Any]:
    try:
        return [call.name, json.loads(call.arguments or "{}")]
    except ValueError:
        return [call.name, call.arguments]


async def note(session: SessionHandle, messages: Sequence[Message]) -> None:
    """Keep in the session what it will be found by."""
    entries = await session.transcript_count()
    await session.note_history(opening(messages), mark(messages, entries))
