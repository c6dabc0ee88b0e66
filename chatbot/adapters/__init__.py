"""Adapters of `chatbot.embed` for other frameworks, one file each, with its extra; see docs/embedding.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chatbot.chat.dialogue import USER
from chatbot.embed import AgentMemory, MemoryContext


class ContextOfRuns:
    """Recalls once for each question: later calls of its run get the same block, which providers have cached."""

    def __init__(self, *, tokens: int, rows: int) -> None:
        self._tokens, self._rows = tokens, rows
        self._last: tuple[object, MemoryContext] = None, MemoryContext()

    async def of(self, memory: AgentMemory, messages: Sequence[Mapping[str, Any]]) -> MemoryContext:
        """Return the context of the last question in messages of OpenAI's form."""
        end = max((at for at, each in enumerate(messages, 1) if each.get("role") == USER), default=0)
        question, (last, context) = (memory.caller, messages[:end]), self._last
        if question != last or end == len(messages):
            context = await memory.context(messages, tokens=self._tokens, rows=self._rows)
            self._last = question, context
        return context
