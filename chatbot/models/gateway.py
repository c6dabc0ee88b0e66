"""Any model that LiteLLM can call, behind the `Model` contract: streaming, time limits, retries, usage and cost.

A reply is `Finished` only where the provider said so, and nothing that the user has seen is ever asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from types import ModuleType
from typing import Any

from chatbot.config import ModelSettings
from chatbot.errors import AccessDenied, ProviderFailed
from chatbot.messages import Delta, Finished, Message, ToolSpec, Usage
from chatbot.models import late
from chatbot.models.base import JsonMode, Model, Price
from chatbot.models.call import Call
from chatbot.models.connections import Connections
from chatbot.models.failures import TRANSIENT, unknown_provider
from chatbot.models.keys import key_for, secrets_of
from chatbot.models.reading import Reading, has_reported_usage, is_whole
from chatbot.models.retries import FIRST_PAUSE_S, LONGEST_PAUSE_S, pause_before
from chatbot.models.tokens import estimate, estimate_text

_USUAL_WINDOW = 8192


class LiteLLMModel(Model):
    """One model by its LiteLLM name. `first_pause_s` is how long to wait before the second try, about."""

    def __init__(self, settings: ModelSettings, *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self.name = settings.name
        self._settings = settings
        self._first_pause_s = first_pause_s
        self._connections = Connections()
        self._known: dict[str, Any] | None = None

    def warm(self) -> None:
        """See `Model`."""
        late.begin(with_client=True)

    async def check(self) -> None:
        """See `Model`: the provider is known, and there is a key."""
        key = self._key()
        litellm = await self._litellm()
        try:
            litellm.get_llm_provider(self.name, api_base=self._settings.api_base or None)
        except Exception as error:  # LiteLLM's own, which cannot be named without importing it
            raise unknown_provider(self.name) from error
        missing = litellm.validate_environment(self.name)["missing_keys"]
        if key is None and missing:
            raise AccessDenied(f"{self.name} needs a key: set {' and '.join(missing)}, or api_key in [model]")

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

    async def json_mode(self) -> JsonMode:
        """See `Model`; what LiteLLM's tables say."""
        litellm = await self._litellm()
        try:
            if litellm.supports_response_schema(model=self.name):
                return "schema"
            name, provider, *_ = litellm.get_llm_provider(self.name, api_base=self._settings.api_base or None)
            known = litellm.get_supported_openai_params(model=name, custom_llm_provider=provider) or ()
        except Exception:  # noqa: BLE001 - LiteLLM's own, which cannot be named without importing it
            return ""
        return "object" if "response_format" in known else ""

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """See `Model`."""
        litellm = await self._litellm()
        self._connections.use(litellm)
        request = self._request(messages, tools, max_output_tokens)
        if json_schema is not None:
            request |= _json_format(await self.json_mode(), json_schema)
        call = Call(litellm, request, self._settings.timeout_s, self._secrets)
        tried = 0
        while True:
            has_begun = False
            try:
                async with aclosing(self._attempt(call, messages, tools)) as deltas:
                    async for delta in deltas:
                        has_begun = True
                        yield delta
            except TRANSIENT as error:
                pause = pause_before(tried, error, self._first_pause_s)
                if has_begun or tried == self._settings.retries or pause > LONGEST_PAUSE_S:
                    raise
            else:
                return
            await asyncio.sleep(pause)
            tried += 1

    async def aclose(self) -> None:
        """See `Model`."""
        await self._connections.aclose()

    async def _attempt(
        self, call: Call, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Delta, None]:
        """One call. Yields `Finished` only if the provider said that the reply has ended."""
        reading = Reading()
        async with call as response:
            while (chunk := await response.next()) is not None:
                for delta in reading.take(chunk):
                    yield delta
            if not is_whole(response.stream):
                raise ProviderFailed(f"{self.name}: the reply broke off before its end")
            usage = await self._usage(reading, messages, tools, is_reported=has_reported_usage(response.stream))
        yield Finished(reading.reason, usage, self._answerer(reading.model))

    def _answerer(self, told: str) -> str:
        """Which model it was that answered, by what the provider says."""
        return told or self.name

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], limit: int | None) -> dict[str, Any]:
        settings = self._settings
        optional = {
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
            "num_retries": 0,  # retries are ours, for only we know what the user has seen
            "max_retries": 0,
            "drop_params": True,
            "_skip_mcp_handler": True,  # else tools need the package mcp, though ours have nothing to do with it
            **{name: value for name, value in optional.items() if value is not None},
        }

    async def _usage(
        self, reading: Reading, messages: Sequence[Message], tools: Sequence[ToolSpec], *, is_reported: bool
    ) -> Usage:
        """What the provider reported, priced; or our own count where it reported nothing."""
        told = reading.usage
        if not is_reported or not told or not told.prompt_tokens:
            read, written = estimate(messages, tools), estimate_text(reading.written)
            return Usage(read, written, cost_usd=_cost(await self.price(), read, written), estimated=True)
        details = getattr(told, "prompt_tokens_details", None)
        return Usage(
            input_tokens=int(told.prompt_tokens),
            output_tokens=int(told.completion_tokens or 0),
            cached_tokens=int(getattr(details, "cached_tokens", None) or 0),
            cost_usd=await self._cost(told),
        )

    async def _cost(self, told: Any) -> float | None:
        """By the user's own price, or what the provider says, or LiteLLM's table, which knows what caching saves."""
        if self._settings.input_usd_per_million is None:
            if (billed := getattr(told, "cost", None)) is not None:
                return float(billed)
            litellm = await self._litellm()
            with suppress(Exception):  # a model that the table does not hold raises a bare Exception
                return float(sum(litellm.cost_calculator.cost_per_token(model=self.name, usage_object=told)))
        return _cost(await self.price(), int(told.prompt_tokens), int(told.completion_tokens or 0))

    async def _info(self) -> dict[str, Any]:
        """What LiteLLM knows of the model. In a thread, because it asks some local servers for it."""
        if self._known is None:
            litellm = await self._litellm()
            try:
                self._known = dict(await asyncio.to_thread(litellm.get_model_info, self.name))
            except Exception:  # noqa: BLE001 - a bare Exception says that the table does not hold the model
                self._known = {}
        return self._known

    async def _litellm(self) -> ModuleType:
        return await late.litellm()

    def _key(self) -> str | None:
        return key_for(self.name, self._settings.api_key, self._settings.api_base)

    def _secrets(self) -> list[str]:
        return secrets_of(self.name, self._settings.api_key, self._settings.api_base)


def _json_format(mode: JsonMode, schema: Mapping[str, Any]) -> dict[str, Any]:
    if mode == "schema":
        named = {"name": "reply", "strict": True, "schema": dict(schema)}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    return {"response_format": {"type": "json_object"}} if mode else {}


def _cost(price: Price | None, read: int, written: int) -> float | None:
    return None if price is None else read * price.input_usd + written * price.output_usd
