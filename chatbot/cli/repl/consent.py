"""Asking the user whether the model may call a tool."""

from __future__ import annotations

import asyncio
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
_ANSWERS: dict[str, Answer] = {"y": "once", "yes": "once", "s": "session", "session": "session"}


class Consent:
    """Asks in the terminal, one question after the other; `reply` is what is being drawn there meanwhile.

    Every call is shown. What is allowed for a session is asked no more in that session, of that tool.
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
        async with self._order:
            with nullcontext() if self.reply is None else self.reply.paused():
                self.before()
                if (self.session, call.name) in self._allowed:
                    print_formatted_text(f"the model calls {_shown(call)}: allowed for this session")
                    return "session"
                answer = await _answer(f"may the model call {_shown(call)}? [y/N, s: for this session] ")
        if answer == "session":
            self._allowed.add((self.session, call.name))
        return answer


async def _answer(question: str) -> Answer:
    try:
        # Ctrl-C is the turn's own, which stops it.
        said = await PromptSession[str]().prompt_async(question, handle_sigint=False)
    except (EOFError, KeyboardInterrupt):
        return "denied"
    return _ANSWERS.get(said.strip().lower(), "denied")


def _shown(call: ToolCall) -> str:
    text = printable(f"{call.name} {call.arguments}")
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}… ({len(text) - _LONGEST_SHOWN} more)"
