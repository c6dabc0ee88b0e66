"""Memory of an exchange, lived here or imported: word for word, if it is worth keeping."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from chatbot.embedding import Judgement
from chatbot.memory.memorability import Memorability, is_worth_keeping
from chatbot.memory.writing import Draft
from chatbot.messages import without_blocks
from chatbot.stores.observation import Type
from chatbot.stores.records import TranscriptEntry
from chatbot.words import asks

EXCHANGE: Type = "exchange"
QUESTION = "question"
"""The key of an exchange's metadata that holds the bot's question which the user's line answers."""
_LONGEST = 100_000
_LONGEST_QUESTION = 400
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


class Exchange(NamedTuple):
    """A message of the user with the reply; `number` is that of its first entry, counted from 1, `last` of its last.

    `before` is the reply before it.
    """

    number: int
    last: int
    at: datetime
    text: str
    reply: str
    before: str = ""


def exchanges_in(entries: Sequence[TranscriptEntry]) -> list[Exchange]:
    """Return the exchanges of a transcript: the user's messages in a row, and all that the assistant said to them.

    A message without an answer is none, nor is a failed turn.
    """
    found: list[Exchange] = []
    asked: list[tuple[int, TranscriptEntry]] = []
    replied: list[tuple[int, TranscriptEntry]] = []
    before = spoken = ""

    def close() -> None:
        if asked and replied:
            text, reply = ("\n\n".join(entry.content for _, entry in each) for each in (asked, replied))
            found.append(Exchange(asked[0][0], replied[-1][0], asked[0][1].at, text, reply, before))

    for number, entry in enumerate(entries, 1):
        if entry.role == "user":
            if replied:
                close()
                asked, replied = [], []
            before = before if asked else spoken
            asked.append((number, entry))
        elif entry.role == "assistant":
            spoken = entry.content
            if asked:
                replied.append((number, entry))
    close()
    return found


def exchange_draft(
    at: datetime,
    text: str,
    reply: str | None,
    *,
    gate: Memorability,
    judged: Judgement | None = None,
    known: Iterable[str] = (),
    before: str = "",
    source: str = "chat",
) -> Draft | None:
    """Return what to remember of an exchange; None where it is not worth it, see `is_worth_keeping`.

    A `gate` of 0 keeps everything. `reply` is None while there is none: then the words have to be worth it alone.
    `judged` is the judgement of the user's text, where there is one. `before` is what the bot said last: if it ended
    with a question, that is kept beside the answer. Memory blocks are left out.
    """
    text, question = without_blocks(text), question_in(without_blocks(before))
    reply = None if reply is None else said_in(reply)
    if gate.gate and not is_worth_keeping(text, reply, judged, known=known, question=question):
        return None
    return Draft(
        type=EXCHANGE,
        user_text=text[:_LONGEST],
        assistant_text=reply or "",
        metadata={QUESTION: question} if question else {},
        created_at=at,
        source=source,
    )


def said_in(reply: str) -> str:
    """Return what is kept of a reply: no memory block, for recalled text is never remembered as new."""
    return without_blocks(reply)[:_LONGEST]


def question_in(text: str) -> str:
    """Return the question that the text ends with, if it ends with one."""
    *_, last = _SENTENCE.split(text[-_LONGEST_QUESTION:].strip())
    return last if asks(last) else ""
