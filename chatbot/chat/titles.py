"""Titles of sessions: by rule from a message, and by a model if the settings ask for it."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from chatbot.chat.calls import Calls
from chatbot.chat.receipts import Receipt
from chatbot.errors import BudgetExceeded, ModelError
from chatbot.memory.memorability import content
from chatbot.messages import Message
from chatbot.stores.errors import StoreError
from chatbot.stores.text.analysis import CJK_RUN, is_question, sentences_of
from chatbot.stores.text.redaction import redact

if TYPE_CHECKING:
    from chatbot.chat.chat import Chat

LONGEST = 60
"""Maximum characters of a title."""
_TOPIC_WORDS = 3
"""Minimum content words of a statement that is preferred as a title."""
_READ = 10_000
"""Maximum characters of a message that are searched for a title."""
_SHOWN = 1_000
"""Maximum characters of a message that a model is shown for a title."""

_CODE = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)
_MARKS = re.compile(r"^\s*(?:[-*+] |#+ |\d+[.)] )*")
_QUOTES = "\"'“”„«»‘’`*_# "


def title_of(text: str) -> str:
    """Return a title for a conversation that begins with `text`: one short line without secrets.

    It is the first question or longer statement, else the first sentence that is no greeting, else the first one.
    """
    text = redact(text)[0][:_READ]
    lines = [line for line in _CODE.sub("\n", text).split("\n") if not line.lstrip().startswith(">")]
    parts = [" ".join(_MARKS.sub("", part).split()) for part in sentences_of("\n".join(lines))]
    first = next((part for part in parts if any(map(str.isalnum, part))), " ".join(text.split()))
    informative = [part for part in parts if not says_little(part)]
    preferred = (part for part in informative if not says_little(part, _TOPIC_WORDS))
    return _cut(next(preferred, informative[0] if informative else first))


def says_little(text: str, least: int = 2) -> bool:
    """Return whether a text has fewer content words than `least`, or, if it is a question, none."""
    words = sum(0.25 if re.match(CJK_RUN, each) else 1 for each in content(text))  # each sign, and each pair, is a term
    return not words if is_question(text) else words < least


def title_in(answer: str) -> str:
    """Return the title in a model's answer; empty if there is none."""
    line = next((line for line in answer.splitlines() if line.strip(_QUOTES)), "")
    return _cut(re.sub(r"^\s*title\s*:\s*", "", line.strip(_QUOTES), flags=re.IGNORECASE).strip(_QUOTES).rstrip("."))


def _cut(title: str) -> str:
    if len(title) <= LONGEST:
        return title
    head = title[: LONGEST - 1]
    at_a_space = head.rfind(" ")
    return (head[:at_a_space] if at_a_space > LONGEST // 2 else head).rstrip(" ,;:–—-") + "…"


class SessionTitle:
    """The title of a session during a turn; one that somebody else gave it stays. `notice` gets each failure."""

    def __init__(self, chat: "Chat", receipt: Receipt, notice: Callable[[str], None]) -> None:
        self._chat = chat
        self._session = chat.session
        self._receipt = receipt
        self._notice = notice

    def may_be_set(self, message: str, *, by_model: bool = False) -> bool:
        """Return whether the title is missing, of this turn or from a greeting; `by_model` needs a telling message."""
        if self._session is None or (by_model and says_little(message)):
            return False
        title = self._session.record.title
        return title in {"", self._receipt.title} or (title == self._chat.greeting and not says_little(message))

    async def set_by_rule(self, message: str) -> None:
        """Title the session with the message."""
        if self.may_be_set(message):
            await self._set(title_of(message), message)

    async def set_by_model(self, message: str, calls: Calls) -> None:
        """Let the model find a title for the exchange; if it fails, the one made by rule stays."""
        asked = (
            "Give a title of two to six words to the conversation that begins below. Answer with the title alone, in "
            f"the language of the conversation.\n\nUser: {message[:_SHOWN]}\n\n"
            f"Assistant: {self._receipt.reply[:_SHOWN]}"
        )
        try:
            reply = await calls.ask("title", [Message("user", asked)], reply_tokens=32)
        except (ModelError, BudgetExceeded) as error:
            self._notice(f"the model could not be asked for a title: {error}")
        else:
            await self._set(title_in(redact(reply)[0]), message)

    async def _set(self, title: str, message: str) -> None:
        if self._session is None or not title:
            return
        try:
            await self._session.rename(title, instead_of=self._session.record.title)
        except StoreError as error:
            self._notice(f"this session could not be given a title: {error}")
            return
        self._chat.greeting = title if says_little(message) else ""
        if self._session.record.title == title:  # nobody else renamed it meanwhile
            self._receipt.title = title
