"""Titles of sessions: by rule, from the user's first message, or by the model.

The rule takes the first sentence that says something: greetings, quotations, code and headings' marks are passed over.
Where there is only a greeting, the title is whom or what it greets.
"""

from __future__ import annotations

import re

from chatbot.messages import Message
from chatbot.redaction import redact
from chatbot.words import sentences

LONGEST = 60
REPLY_TOKENS = 32
"""Tokens of a title by a model."""
_SHOWN = 1_000
"""Characters of a message that a model is shown for a title."""

_CODE = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)
_MARKS = re.compile(r"^\s*(?:[-*+] |#+ |\d+[.)] )*")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
_HAIL = (
    r"hi|hiya|hello|hey|yo|greetings|howdy|good (?:morning|afternoon|evening|day)|dear|hallo|guten (?:morgen|tag|abend)"
    r"|bonjour|salut|hola|ciao|olá|你好|您好|嗨|こんにちは|おはよう(?:ございます)?|안녕하세요"
)
_COURTESY = (
    r"how are you(?: doing)?(?: today)?|how do you do|what's up|nice to meet you|i hope you are well|thanks?(?: you)?"
)
_COMPANY = (
    r"there|all|everyone|again|team|folks|mate|buddy|pal|guys|(?:my )?(?:friend|dear|bot|chatbot)s?(?=\s*(?:[,.!?]|$))"
)
_PAUSE = r"[\s,.!?;:…–—。，！？、-]*"
_GREETING = re.compile(
    rf"(?:(?:{_HAIL})(?!\w)(?:,?\s+(?:{_COMPANY})(?!\w))*(?:,?\s+(?-i:[A-Z]\w+)(?=\s*[,.!?;:–—-]|\s*$))?"
    rf"|(?:{_COURTESY})(?!\w)){_PAUSE}",
    re.IGNORECASE,
)
_QUOTES = "\"'“”„«»‘’`*_# "


def title_of(text: str) -> str:
    """Return a title for a conversation that begins with `text`, on one line, at most 60 characters long.

    A text that only greets is its own title, until a later one says more.
    """
    lines = [line for line in _CODE.sub("\n", text).split("\n") if not line.lstrip().startswith(">")]
    parts = (_MARKS.sub("", part) for part in sentences("\n".join(lines), _SENTENCE))
    told = (_without(_GREETING, " ".join(part.split())) for part in parts)
    whole = " ".join(text.split())
    return _cut(next(filter(_says_something, told), whole))


def title_from(message: str) -> str:
    """Return the title by rule of a session that begins with this message, without its secrets."""
    return title_of(redact(message)[0])


def is_greeting(text: str) -> bool:
    """Return whether a text only greets, so that a later one makes a better title."""
    return not _says_something(_without(_GREETING, " ".join(text.split())))


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


def _without(greeting: re.Pattern[str], sentence: str) -> str:
    while found := greeting.match(sentence):
        sentence = sentence[found.end() :]
    return sentence


def _says_something(sentence: str) -> bool:
    return any(char.isalnum() for char in sentence)


def _cut(title: str) -> str:
    """Cut a title to 60 characters, between words where there are any."""
    if len(title) <= LONGEST:
        return title
    head = title[: LONGEST - 1]
    at_a_space = head.rfind(" ")
    return (head[:at_a_space] if at_a_space > LONGEST // 2 else head).rstrip(" ,;:–—-") + "…"
