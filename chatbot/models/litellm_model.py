"""Models of LiteLLM behind the `Model` contract: streaming, time limits, retries, usage and cost.

A reply is `Finished` only if the provider reported its end. Text that the user has seen is never requested again.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from chatbot.config import ModelSettings, PriceSettings, ProviderSettings
from chatbot.errors import ModelError, ProviderFailed
from chatbot.messages import MOST_TOKENS, MOST_USD, CallOptions, Delta, Finished, Message, TextDelta, ToolSpec, Usage
from chatbot.models import litellm_import
from chatbot.models.addresses import OLLAMA
from chatbot.models.call import LONGEST_PAUSE_S, ModelRequest, StreamedReply, has_reported_usage, is_whole, pause_before
from chatbot.models.model import THINK_TAGS, JsonMode, Model, Price, estimate
from chatbot.models.provider import Provider

_USUAL_WINDOW = 8192
"""Ollama silently cuts a prompt to a small default window, unless each call asks for more."""
_PASSED_ANYWAY = frozenset({"logit_bias", "parallel_tool_calls"})
"""Options that LiteLLM's lists lack even for providers that take them; if another ignores one, little is lost."""


class LiteLLMModel(litellm_import.LiteLLMClient, Model):
    """A model by its LiteLLM name, or with a provider of `[providers]`."""

    def __init__(self, settings: ModelSettings, providers: Mapping[str, ProviderSettings] | None = None) -> None:
        self.name = settings.name
        self.provider = Provider(settings.name, providers)
        self.server = self.provider.server()
        self.disclosure = self.provider.disclosure
        self._settings = settings
        self._known_info: dict[str, Any] | None = None

    def warm(self) -> None:
        litellm_import.begin_import()

    @property
    def loading(self) -> str:
        """The word "LiteLLM" until it is imported, then an empty text."""
        return "" if litellm_import.is_loaded() else "LiteLLM"

    async def context_window(self) -> int:
        if self._settings.context_window:
            return self._settings.context_window
        info = await self._info()
        window = int(info.get("max_input_tokens") or info.get("max_tokens") or _USUAL_WINDOW)
        return min(window, _USUAL_WINDOW) if self.provider.kind in OLLAMA else window

    async def price(self) -> Price | None:
        """Return the price from the settings, or for each part that they lack from LiteLLM's table."""
        own = (self.provider.price.input_usd_per_million, self.provider.price.output_usd_per_million)
        if own[0] is not None and own[1] is not None:
            return Price(own[0] / 1e6, own[1] / 1e6)
        info, table = await self._info(), (await litellm_import.litellm()).model_cost
        listed = table.get(info.get("key"), info)  # LiteLLM reports 0 for a price that its table lacks
        parts = zip(("input", "output"), own, strict=True)
        known = [listed.get(f"{part}_cost_per_token") if usd is None else usd / 1e6 for part, usd in parts]
        return None if known[0] is None or known[1] is None else Price(float(known[0]), float(known[1]))

    async def sees_images(self) -> bool:
        """Return what LiteLLM's table says; True for a model that it lacks, which may refuse the call."""
        info = await self._info()
        return bool(info.get("supports_vision")) if info else True

    async def unknown_options(self, options: CallOptions) -> tuple[str, ...]:
        """Return the options that LiteLLM would drop; none for a provider that it does not know, which may refuse."""
        asked = options.as_openai().keys() - CallOptions.HARMLESS
        if not asked:
            return ()
        known = await self._supported_options()
        return () if known is None else tuple(sorted(asked - set(known) - _PASSED_ANYWAY))

    async def json_mode(self) -> JsonMode:
        litellm = await litellm_import.litellm()
        with suppress(Exception):  # LiteLLM's own, which cannot be named without importing it
            if litellm.supports_response_schema(model=self.provider.litellm_name):
                return "schema"
        return "object" if "response_format" in (await self._supported_options() or ()) else ""

    async def _supported_options(self) -> Sequence[str] | None:
        """Return the options that LiteLLM passes on; None for a provider that it does not know."""
        litellm = await litellm_import.litellm()
        try:
            given = self.provider.arguments()
            name, provider, *_ = litellm.get_llm_provider(
                given["model"], api_base=given.get("api_base"), api_key=given.get("api_key")
            )
            known: Sequence[str] | None = litellm.get_supported_openai_params(model=name, custom_llm_provider=provider)
        except Exception:  # noqa: BLE001 - LiteLLM's own, which cannot be named without importing it
            return None
        return known

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
        options: CallOptions | None = None,
    ) -> AsyncGenerator[Delta | None, int | None]:
        """Ask for a reply, with retries until the first chunk."""
        self.provider.check_before_call()
        litellm = await self._litellm()
        request = self._request(messages, tools, max_output_tokens)
        if options is not None:
            request |= options.as_openai()
        if json_schema is not None and (mode := await self.json_mode()):
            named = {"name": "reply", "strict": True, "schema": dict(json_schema)}
            form = {"type": "json_schema", "json_schema": named} if mode == "schema" else {"type": "json_object"}
            request["response_format"] = form
        call = ModelRequest(litellm, request, self._settings.timeout_s, self.provider.secrets, self.name)
        for tried in range(self._settings.retries + 1):
            has_begun = False
            try:
                async with aclosing(self._attempt(call, messages, tools)) as deltas:
                    async for delta in deltas:
                        if self.provider.thinks_first and not has_begun and isinstance(delta, TextDelta):
                            yield TextDelta(THINK_TAGS[0])  # the template of its server has written it
                        has_begun = True
                        yield delta
            except ModelError as error:
                pause = pause_before(tried, error)
                if has_begun or tried == self._settings.retries or pause > LONGEST_PAUSE_S:
                    raise self.provider.with_advice(error) from None
                if error.is_charged and (most := (yield None)):
                    call.request["max_tokens"] = min(most, call.request["max_tokens"])
            else:
                return
            await asyncio.sleep(pause)

    async def _attempt(
        self, call: ModelRequest, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Delta, None]:
        """Make one call. Yields `Finished` only if the provider reported the end of the reply."""
        reply = StreamedReply()
        async with call as response:
            try:
                while (chunk := await response.next()) is not None:
                    for delta in reply.take(chunk):
                        yield delta
            except ModelError:
                if response.stream is None or not is_whole(response.stream):
                    raise  # else the reply is complete: only usage or the connection's end is missing
            if not is_whole(response.stream):
                what = "the reply broke off before its end" if reply.written else "the answer holds no reply"
                failure = ProviderFailed(f"{self.name}: {what}")
                failure.is_charged = True
                raise failure
            usage = await self._usage(reply, messages, tools, is_reported=has_reported_usage(response.stream))
        yield Finished(reply.reason, usage, reply.model or self.name)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], limit: int | None) -> dict[str, Any]:
        settings = self._settings
        optional = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
            "tools": [tool.as_openai() for tool in tools] or None,
            "num_ctx": (settings.context_window or _USUAL_WINDOW) if self.provider.kind in OLLAMA else None,
        }
        return {
            **self.provider.arguments(),
            "messages": [message.as_openai() for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": min(limit or settings.max_output_tokens, settings.max_output_tokens),
            "num_retries": 0,  # we retry ourselves: only we know what the user has seen
            "max_retries": 0,
            "drop_params": True,
            "_skip_mcp_handler": True,  # else tools need the package mcp, though ours have nothing to do with it
            **{name: value for name, value in optional.items() if value is not None},
        }

    async def _usage(
        self, reply: StreamedReply, messages: Sequence[Message], tools: Sequence[ToolSpec], *, is_reported: bool
    ) -> Usage:
        """Return the reported usage with its price, or our own count if nothing was reported."""
        reported = reply.usage
        prompt_tokens = getattr(reported, "prompt_tokens", None) or 0
        reply_tokens = getattr(reported, "completion_tokens", None) or 0
        # A negative count would lower the bill, and a huge one could not be read again.
        if not is_reported or not 0 < prompt_tokens <= MOST_TOKENS or not 0 <= reply_tokens <= MOST_TOKENS:
            return await self.usage_of(estimate(messages, tools), reply.written)
        details = getattr(reported, "prompt_tokens_details", None)
        cached = min(int(getattr(details, "cached_tokens", None) or 0), int(prompt_tokens))
        return Usage(int(prompt_tokens), int(reply_tokens), cached, await self._cost(reported, cached))

    async def _cost(self, reported: Any, cached: int) -> float | None:
        """Return the cost by the configured price, the provider's report, or LiteLLM's table with caching."""
        if self.provider.price == PriceSettings():
            billed: Any = getattr(reported, "cost", None)
            with suppress(TypeError, ValueError):
                if 0 <= (cost := float(billed)) <= MOST_USD:
                    return cost
            litellm = await litellm_import.litellm()
            with suppress(Exception):  # a model without a known price raises a bare Exception
                costs = litellm.cost_calculator.cost_per_token(model=self.provider.price_name, usage_object=reported)
                if (cost := float(sum(costs))) > 0:  # else the price may be unknown
                    return cost
        price, cached_usd = await self.price(), self.provider.price.cached_input_usd_per_million
        if price is None:
            return None
        saved = 0.0 if cached_usd is None else cached * (price.input_usd - cached_usd / 1e6)
        return price.cost(int(reported.prompt_tokens), int(reported.completion_tokens or 0)) - saved

    async def _info(self) -> dict[str, Any]:
        """Look the model up in LiteLLM until it is found, in a thread because LiteLLM queries some local servers."""
        if self._known_info is None:
            litellm = await litellm_import.litellm()
            try:
                self._known_info = dict(await asyncio.to_thread(litellm.get_model_info, self.provider.price_name))
            except Exception:  # noqa: BLE001 - LiteLLM raises a bare Exception for an unknown model
                return {}
        return self._known_info
