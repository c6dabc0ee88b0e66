"""Asking the user whether the model may call a tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession

from chatbot.cli.output import printable
from chatbot.messages import ToolCall

if TYPE_CHECKING:
    from chatbot.cli.reply import LiveReply

_LONGEST_SHOWN = 600


class Consent:
    """Asks in the terminal, one question after the other; `reply` is what is being drawn there meanwhile."""

    def __init__(self) -> None:
        self.reply: LiveReply | None = None
        self.before: Callable[[], None] = lambda: None
        """Called before each question: keys typed earlier must not answer it."""
        self._order = asyncio.Lock()

    async def __call__(self, call: ToolCall) -> bool:
        """Whether the user says yes; anything but a clear yes is a no."""
        async with self._order:
            with nullcontext() if self.reply is None else self.reply.paused():
                self.before()
                return await _says_yes(f"may the model call {_shown(call)}? [y/N] ")


async def _says_yes(question: str) -> bool:
    try:
        # Ctrl-C is the turn's own, which stops it.
        answer = await PromptSession[str]().prompt_async(question, handle_sigint=False)
    except (EOFError, KeyboardInterrupt):
        return False
    return answer.strip().lower() in {"y", "yes"}


def _shown(call: ToolCall) -> str:
    text = printable(f"{call.name} {call.arguments}")
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}… ({len(text) - _LONGEST_SHOWN} more)"
