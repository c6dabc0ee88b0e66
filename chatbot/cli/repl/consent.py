"""Asking the user whether the model may call a tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession, print_formatted_text

from chatbot.cli.output import printable
from chatbot.messages import ToolCall
from chatbot.tools.toolbox import Answer

if TYPE_CHECKING:
    from chatbot.cli.reply import LiveReply

_LONGEST_SHOWN = 600
_SHORTEST_SHOWN = 120
_LONGEST_GRANT = 300
_MOST_SHOWN = 20
"""Characters of a call, characters of each argument at least, and arguments."""
_ANSWERS: dict[str, Answer] = {"y": "once", "yes": "once", "s": "session", "session": "session"}


class Consent:
    """Asks in the terminal, one question after the other; `reply` is what is being drawn there meanwhile.

    Every call is shown. What is allowed for a session is asked no more in that session, and the question says what
    that is.
    """

    def __init__(self) -> None:
        self.reply: LiveReply | None = None
        self.before: Callable[[], None] = lambda: None
        """Called before each question: keys typed earlier must not answer it."""
        self.session: str | None = None
        self._allowed: set[tuple[str | None, str]] = set()
        self._order = asyncio.Lock()

    async def __call__(self, call: ToolCall) -> Answer:
        """Return the user's answer; anything but a clear yes is a no."""
        from chatbot.tools.file_tools import lasting_consent

        key, what = lasting_consent(call)
        async with self._order:
            with nullcontext() if self.reply is None else self.reply.paused():
                self.before()
                if (self.session, key) in self._allowed:
                    print_formatted_text(f"the model calls {_shown(call)}: allowed for this session")
                    return "session"
                lasting = _cut(printable(what), _LONGEST_GRANT)
                answer = await _answer(f"may the model call {_shown(call)}? [y/N, s: {lasting}, for this session] ")
        if answer == "session":
            self._allowed.add((self.session, key))
        return answer


async def _answer(question: str) -> Answer:
    try:
        # Ctrl-C is the turn's own, which stops it.
        said = await PromptSession[str]().prompt_async(question, handle_sigint=False)
    except (EOFError, KeyboardInterrupt):
        return "denied"
    return _ANSWERS.get(said.strip().lower(), "denied")


def _shown(call: ToolCall) -> str:
    """Return the call in words: each argument in part at least, so that a long one hides none after it."""
    given = _arguments(call.arguments)
    text = printable(f"{call.name} {call.arguments}")
    if len(text) <= _LONGEST_SHOWN or not given:
        return _cut(text, _LONGEST_SHOWN)
    most = max(_SHORTEST_SHOWN, _LONGEST_SHOWN // len(given))
    shown = ", ".join(f"{_cut(name, most)}: {_cut(value, most)}" for name, value in given.items())
    return printable(f"{call.name} {{{shown}}}")


def _arguments(written: str) -> dict[str, str]:
    """Return the arguments as JSON, by name; none where the call is no object, or has too many to show each."""
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or len(found) > _MOST_SHOWN:
        return {}
    return {name: json.dumps(value, ensure_ascii=False) for name, value in found.items()}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more)"
