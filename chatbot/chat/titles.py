"""Titles of sessions: by rule, from the user's first message, or by the model.

The rule takes the first sentence that says something: quotations, code and headings' marks are passed over. A sentence
of one content word that asks nothing says little: where there is no other, the title is the text as it is.
"""

from __future__ import annotations

import re

from chatbot.memory.memorability import content
from chatbot.messages import Message
from chatbot.redaction import redact
from chatbot.words import asks, sentences

LONGEST = 60
REPLY_TOKENS = 32
"""Tokens of a title by a model."""
_A_TOPIC = 3
"""Number of content words that make a sentence a title, where the text has one."""
_SHOWN = 1_000
"""Characters of a message that a model is shown for a title."""

_CODE = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)
_MARKS = re.compile(r"^\s*(?:[-*+] |#+ |\d+[.)] )*")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
_QUOTES = "\"'“”„«»‘’`*_# "


def title_of(text: str) -> str:
    """Return a title for a conversation that begins with `text`, on one line, at most 60 characters long.

    A text that says little is its own title, until a later one says more. A short first sentence, which may be a
    greeting with a name, makes way for a longer one.
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
    """Return whether a text says so little, as a greeting does, that a later one makes a better title."""
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
    """Return the title in a model's answer; empty where there is none."""
    line = next((line for line in answer.splitlines() if line.strip(_QUOTES)), "")
    return _cut(re.sub(r"^\s*title\s*:\s*", "", line.strip(_QUOTES), flags=re.IGNORECASE).strip(_QUOTES).rstrip("."))


def _cut(title: str) -> str:
    """Cut a title to 60 characters, between words where there are any."""
    if len(title) <= LONGEST:
        return title
    head = title[: LONGEST - 1]
    at_a_space = head.rfind(" ")
    return (head[:at_a_space] if at_a_space > LONGEST // 2 else head).rstrip(" ,;:–—-") + "…"
