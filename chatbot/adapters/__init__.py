"""Adapters of `chatbot.embed` for other frameworks, one file each, with its extra; see docs/embedding.md."""

from collections.abc import Mapping, Sequence
from typing import Any

from chatbot.chat.conversation_memory import are_outdated
from chatbot.chat.dialogue import USER
from chatbot.embed import AgentMemory, MemoryContext

_RUNS_AT_ONCE = 32


class ContextOfRuns:
    """Recalls once for each question: later calls of its run get the same block, which providers have cached.

    A block is made anew once one of its memories was changed or forgotten.
    """

    def __init__(self, *, tokens: int, rows: int) -> None:
        self._tokens, self._rows = tokens, rows
        self._latest: tuple[tuple[object, MemoryContext], ...] = ()

    async def of(self, memory: AgentMemory, messages: Sequence[Mapping[str, Any]]) -> MemoryContext:
        """Return the context of the last question in messages of OpenAI's form."""
        end = max((at for at, each in enumerate(messages, 1) if each.get("role") == USER), default=0)
        question = memory.caller, messages[:end]
        context = next((found for asked, found in self._latest if asked == question), None)
        if context is None or end == len(messages) or await are_outdated(context.memories, memory):
            context = await memory.context(messages, tokens=self._tokens, rows=self._rows)
            self._latest = ((question, context), *self._latest[: _RUNS_AT_ONCE - 1])
        return context
