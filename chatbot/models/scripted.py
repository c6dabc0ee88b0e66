"""The scripted model: replays fixed replies, for tests and demos. Free and offline."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from typing import Any

from chatbot.messages import (
    CallOptions,
    Delta,
    Finished,
    Message,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolSpec,
    Usage,
    without_blocks,
)
from chatbot.models.model import Disclosure, Model, Price, estimate, estimate_text

ScriptedReply = str | Exception | ToolCall | Sequence[Delta | ToolCall | Exception] | Callable[[], AsyncIterable[Delta]]
"""A text, an error, a tool call, or the deltas one by one, or a function that streams them.

Tool calls among deltas are streamed as models do: id and name first, the arguments in two pieces. An error ends the
reply.
"""

_WORD = re.compile(r"\S+\s*|\s+")


class ScriptedModel(Model):
    """Gives its replies in turn, or repeats the message without any; `delay_s` is the time per word, for demos."""

    disclosure = Disclosure()

    def __init__(
        self,
        replies: Sequence[ScriptedReply] = (),
        *,
        window: int = 8192,
        price: Price | None = None,
        delay_s: float = 0.0,
        sees: bool = True,
    ) -> None:
        self.name = "scripted"
        self.prompts: list[tuple[Message, ...]] = []
        """Every prompt so far; `tools`, `limits` of tokens and `options` are those that came with each."""
        self.tools: list[tuple[ToolSpec, ...]] = []
        self.limits: list[int | None] = []
        self.options: list[CallOptions] = []
        self._replies = [replies] if isinstance(replies, str) else replies
        self._window = window
        self._price = price or Price(0.0, 0.0)
        self._delay_s = delay_s
        self._sees = sees

    async def context_window(self) -> int:
        return self._window

    async def sees_images(self) -> bool:
        return self._sees

    async def price(self) -> Price:
        return self._price

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,  # noqa: ARG002 - the replies are fixed
        options: CallOptions | None = None,
    ) -> AsyncGenerator[Delta, None]:
        reply = self._next_reply(messages)
        self.prompts.append(tuple(messages))
        self.tools.append(tuple(tools))
        self.limits.append(max_output_tokens)
        self.options.append(options or CallOptions())
        written, has_calls = "", False
        async for delta in _deltas(reply):
            yield delta
            if isinstance(delta, Finished):
                return
            if isinstance(delta, ReasoningDelta):
                continue
            if isinstance(delta, TextDelta):
                written += delta.text
                await asyncio.sleep(self._delay_s)
            else:
                written, has_calls = written + delta.arguments, True
        counts = estimate(messages, tools), estimate_text(written)
        usage = Usage(*counts, cost_usd=self._price.cost(*counts))
        yield Finished("tool_calls" if has_calls else "stop", usage, self.name)

    def _next_reply(self, messages: Sequence[Message]) -> ScriptedReply:
        if not self._replies:
            return f"You said: {without_blocks(messages[-1].content) if messages else 'nothing'}"
        return self._replies[len(self.prompts) % len(self._replies)]


async def _deltas(reply: ScriptedReply) -> AsyncGenerator[Delta, None]:
    if isinstance(reply, Exception):
        raise reply
    if isinstance(reply, str):
        for word in _WORD.findall(reply):
            yield TextDelta(word)
    elif callable(reply):
        async for delta in reply():
            yield delta
    else:
        calls = 0
        for step in [reply] if isinstance(reply, ToolCall) else reply:
            if isinstance(step, Exception):
                raise step
            if not isinstance(step, ToolCall):
                yield step
                continue
            half = len(step.arguments) // 2
            yield ToolCallDelta(calls, step.id, step.name, step.arguments[:half])
            yield ToolCallDelta(calls, arguments=step.arguments[half:])
            calls += 1
