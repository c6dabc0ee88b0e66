"""One call through LiteLLM, with a time limit on every step, own errors, and no connection left open."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import Any, Self

from chatbot.errors import ModelError, ModelTimeout
from chatbot.messages import Delta, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta
from chatbot.models.failures import translate

PATIENCE_S = 5.0
"""LiteLLM's own limit comes this much later than ours, so that ours applies first."""


class ModelRequest:
    """A request that can be sent again: each `async with` is a new try.

    `secrets` gives the keys that no message may repeat.
    """

    def __init__(
        self,
        litellm: ModuleType,
        request: dict[str, Any],
        timeout_s: float,
        secrets: Callable[[], Sequence[str]],
        name: str,
    ) -> None:
        self._litellm = litellm
        self._request = {**request, "timeout": timeout_s + PATIENCE_S}
        self._name = name
        self._timeout_s = timeout_s
        self._secrets = secrets
        self.stream: Any = None
        """LiteLLM's stream, once it has been opened."""

    async def next(self) -> Any:
        """The next chunk, None after the last. Sends the request first; opening and first chunk share one limit."""
        failure: ModelError
        try:
            async with asyncio.timeout(self._timeout_s):
                if self.stream is None:
                    self.stream = _steady(await self._litellm.acompletion(**self._request))
                return await anext(self.stream, None)
        except TimeoutError:
            failure = ModelTimeout(f"{self._name}: nothing came for {self._timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - LiteLLM raises any exception of its many providers
            said_of = self._name if self.stream is None else f"{self._name}: the reply broke off"
            failure = translate(error, said_of, self._secrets())
        # Raised outside the handler: the provider's exception, which may hold the key, must not be in the traceback.
        raise failure

    async def __aenter__(self) -> Self:
        self.stream = None
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the provider, however far it got."""
        close = getattr(self.stream, "aclose", None)
        if close is not None:
            with suppress(Exception):  # the connection may be closed already
                outcome = close()
                if inspect.isawaitable(outcome):
                    await outcome


class _Steady:
    """A stream of chunks that is its own iterator."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _steady(stream: Any) -> Any:
    """Return LiteLLM's stream over a source that is its own iterator.

    LiteLLM calls `aiter` for each chunk; OpenAI's client answers with a new generator, and each needs a task to close.
    """
    source = getattr(stream, "completion_stream", None)
    if hasattr(source, "__anext__") and inspect.isasyncgenfunction(getattr(type(source), "__aiter__", None)):
        stream.completion_stream = _Steady(source)
    return stream


_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class StreamedReply:
    """Parts of a reply so far. With `is_detailed` also what the model thinks, and how sure it is of its words."""

    def __init__(self, *, is_detailed: bool = False) -> None:
        self._is_detailed = is_detailed
        self.written = ""
        """All that the model wrote, the arguments of tool calls included."""
        self.model = ""
        """The model that answered, as the provider names it."""
        self.reason: FinishReason = "stop"
        self.usage: Any = None
        """LiteLLM's sum of the reported usage, or its own estimate."""

    def take(self, chunk: Any) -> list[Delta]:
        """The deltas that a chunk holds, often none."""
        self.model = self.model or str(getattr(chunk, "model", None) or "")
        self.usage = getattr(chunk, "usage", None) or self.usage
        deltas: list[Delta] = []
        for choice in chunk.choices[:1]:
            if choice.finish_reason:
                self.reason = _REASONS.get(choice.finish_reason, "stop")
            if self._is_detailed and (thought := getattr(choice.delta, "reasoning_content", None)):
                deltas.append(ReasoningDelta(thought))
            if text := choice.delta.content:
                self.written += text
                deltas.append(TextDelta(text, _logprobs(choice) if self._is_detailed else ()))
            deltas += [self._take_call(call) for call in getattr(choice.delta, "tool_calls", None) or ()]
        return deltas

    def _take_call(self, call: Any) -> ToolCallDelta:
        name, arguments = call.function.name, call.function.arguments or ""
        self.written += (name or "") + arguments
        return ToolCallDelta(call.index or 0, call.id, name, arguments)


def _logprobs(choice: Any) -> tuple[dict[str, Any], ...]:
    given = getattr(choice, "logprobs", None)
    listed = given.get("content") if isinstance(given, dict) else getattr(given, "content", None)
    return tuple(each if isinstance(each, dict) else each.model_dump() for each in listed or ())


def is_whole(response: Any) -> bool:
    """Return True if the provider reported the end; LiteLLM ends every stream as if it had.

    Gemini reports it together with the last text, which LiteLLM notes as an intermittent reason.
    """
    reported = (getattr(response, "received_finish_reason", ""), getattr(response, "intermittent_finish_reason", None))
    return any(reason is not None for reason in reported)


def has_reported_usage(response: Any) -> bool:
    """Return True if the provider itself reported the usage."""
    return any(getattr(chunk, "usage", None) for chunk in getattr(response, "chunks", ()))
