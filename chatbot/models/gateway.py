"""Any model that LiteLLM can call, behind the `Model` contract: streaming, time limits, retries, usage and cost."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from types import ModuleType
from typing import Any

from chatbot.config import ModelSettings
from chatbot.errors import AccessDenied, ModelError, ModelTimeout, ProviderFailed
from chatbot.messages import Delta, Finished, FinishReason, Message, TextDelta, ToolCallDelta, ToolSpec, Usage
from chatbot.models import late
from chatbot.models.base import Model, Price
from chatbot.models.failures import TRANSIENT, retry_after, translate
from chatbot.models.tokens import estimate

_USUAL_WINDOW = 8192
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class LiteLLMModel(Model):
    """One model by its LiteLLM name."""

    def __init__(self, settings: ModelSettings) -> None:
        self.name = settings.name
        self._settings = settings

    def warm(self) -> None:
        """See `Model`."""
        late.begin()

    async def check(self) -> None:
        """See `Model`."""
        self._key()

    async def context_window(self) -> int:
        """See `Model`."""
        if self._settings.context_window:
            return self._settings.context_window
        info = await self._info()
        return int(info.get("max_input_tokens") or info.get("max_tokens") or _USUAL_WINDOW)

    async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """See `Model`; an estimate, for LiteLLM's own counter takes half a second and a hundred megabytes to begin."""
        return estimate(messages, tools)

    async def price(self) -> Price | None:
        """See `Model`."""
        own = (self._settings.input_usd_per_million, self._settings.output_usd_per_million)
        if own[0] is not None and own[1] is not None:
            return Price(own[0] / 1e6, own[1] / 1e6)
        info = await self._info()
        known = (info.get("input_cost_per_token"), info.get("output_cost_per_token"))
        return None if known[0] is None or known[1] is None else Price(float(known[0]), float(known[1]))

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """See `Model`."""
        litellm = await self._litellm()
        request = self._request(messages, tools, max_output_tokens)
        tries = self._settings.retries + 1
        for attempt in range(tries):
            has_begun = False
            try:
                async with aclosing(self._attempt(litellm, request)) as deltas:
                    async for delta in deltas:
                        has_begun = True
                        yield delta
            except TRANSIENT as error:
                if has_begun or attempt == tries - 1:
                    raise
                await asyncio.sleep(_pause(attempt, error))
            else:
                return

    async def _attempt(self, litellm: ModuleType, request: dict[str, Any]) -> AsyncGenerator[Delta, None]:
        """One call, its failures in our words."""
        response: Any = None
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                response = await litellm.acompletion(**request)
            reading = _Reading()
            chunks = aiter(response)
            while (chunk := await self._next(chunks)) is not None:
                for delta in reading.take(chunk):
                    yield delta
            if getattr(response, "received_finish_reason", "stop") is None:
                raise ProviderFailed(f"{self.name}: the reply broke off before its end")
            yield Finished(reading.reason, await self._usage(litellm, reading, request), reading.model or self.name)
        except ModelError:
            raise
        except TimeoutError as error:
            raise ModelTimeout(f"{self.name}: nothing came for {self._settings.timeout_s:g} s") from error
        except Exception as error:  # noqa: BLE001 - LiteLLM raises what its many providers raise; all of it is said in our words
            raise _without_trace(translate(error, self.name, self._secrets()), error) from None
        finally:
            await _close(response)

    async def _next(self, chunks: Any) -> Any:
        async with asyncio.timeout(self._settings.timeout_s):
            return await anext(chunks, None)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], limit: int | None) -> dict[str, Any]:
        settings = self._settings
        chosen = {
            "api_key": self._key(),
            "api_base": settings.api_base or None,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
            "tools": [tool.as_openai() for tool in tools] or None,
        }
        return {
            "model": self.name,
            "messages": [message.as_openai() for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": min(limit or settings.max_output_tokens, settings.max_output_tokens),
            "timeout": settings.timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            **{name: value for name, value in chosen.items() if value is not None},
        }

    async def _usage(self, litellm: ModuleType, reading: _Reading, request: dict[str, Any]) -> Usage:
        """What the provider reported, priced; or our own count where it reported nothing."""
        told = reading.usage
        if told is None or not told.prompt_tokens:
            tokens = estimate([Message("user", str(request["messages"]))]), estimate([Message("user", reading.text)])
            price = await self.price()
            cost = None if price is None else tokens[0] * price.input_usd + tokens[1] * price.output_usd
            return Usage(tokens[0], tokens[1], cost_usd=cost, estimated=True)
        details = getattr(told, "prompt_tokens_details", None)
        cached = int(getattr(details, "cached_tokens", None) or 0)
        cost = await self._cost(litellm, told)
        return Usage(int(told.prompt_tokens), int(told.completion_tokens or 0), cached, cost_usd=cost)

    async def _cost(self, litellm: ModuleType, told: Any) -> float | None:
        price = await self.price()
        if price is None:
            return None
        if self._settings.input_usd_per_million is None:
            with suppress(
                Exception
            ):  # LiteLLM's table may lack what its own function needs; then the plain price holds
                parts = litellm.cost_calculator.cost_per_token(model=self.name, usage_object=told)
                return float(sum(parts))
        return float(told.prompt_tokens * price.input_usd + (told.completion_tokens or 0) * price.output_usd)

    async def _info(self) -> dict[str, Any]:
        litellm = await self._litellm()
        try:
            return dict(litellm.get_model_info(self.name))
        except Exception:  # noqa: BLE001 - LiteLLM raises a bare Exception for a model that its table does not hold
            return {}

    async def _litellm(self) -> ModuleType:
        return await late.litellm()

    def _key(self) -> str | None:
        """The key to send; None leaves it to the provider's usual variable."""
        kind, _, variable = self._settings.api_key.partition("env:")
        if kind or not variable:
            return self._settings.api_key or None
        if not os.environ.get(variable):
            raise AccessDenied(f"{self.name}: api_key names the variable {variable}, which is not set")
        return os.environ[variable]

    def _secrets(self) -> list[str]:
        keys = [value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_TOKEN", "_SECRET"))]
        with suppress(AccessDenied):
            keys.append(self._key() or "")
        return keys


class _Reading:
    """What has arrived, chunk by chunk."""

    def __init__(self) -> None:
        self.text = ""
        self.reason: FinishReason = "stop"
        self.model = ""
        self.usage: Any = None

    def take(self, chunk: Any) -> list[Delta]:
        self.model = self.model or str(getattr(chunk, "model", "") or "")
        self.usage = getattr(chunk, "usage", None) or self.usage
        deltas: list[Delta] = []
        for choice in chunk.choices[:1]:
            if choice.finish_reason:
                self.reason = _REASONS.get(choice.finish_reason, "stop")
            if text := choice.delta.content:
                self.text += text
                deltas.append(TextDelta(text))
            deltas += [_tool_call(call) for call in getattr(choice.delta, "tool_calls", None) or ()]
        return deltas


def _tool_call(call: Any) -> ToolCallDelta:
    function = call.function
    return ToolCallDelta(call.index or 0, call.id, function.name, function.arguments or "")


def _pause(attempt: int, error: ModelError) -> float:
    """Exponential back-off with jitter; what the provider asks for comes first, within reason."""
    asked = error.retry_after_s
    backoff = _FIRST_PAUSE_S * 2**attempt * random.uniform(0.75, 1.25)  # noqa: S311 - jitter needs no secrecy
    return float(min(asked if asked is not None else backoff, _LONGEST_PAUSE_S))


def _without_trace(error: ModelError, cause: Exception) -> ModelError:
    """The error alone: the provider's own exception may hold the key, and a traceback would print it."""
    error.retry_after_s = retry_after(cause)
    return error


async def _close(response: Any) -> None:
    """Stop the provider, however far it got."""
    for stream in (response, getattr(response, "completion_stream", None)):
        close = getattr(stream, "aclose", None) or getattr(stream, "close", None)
        if close is not None:
            with suppress(Exception):  # the connection may be gone already, which is what we want
                outcome = close()
                if asyncio.iscoroutine(outcome):
                    await outcome
