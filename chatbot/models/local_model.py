"""A local model behind the `Model` contract: called through LiteLLM like any other, counted exactly, and free.

Its name is that of the file without folders, because receipts, bills and metrics are shared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from chatbot.config import ModelSettings, ProviderSettings
from chatbot.errors import ChatbotError
from chatbot.messages import CallOptions, Message, ToolSpec
from chatbot.models import litellm_import
from chatbot.models.engine import ENGINES
from chatbot.models.gateway import LiteLLMModel
from chatbot.models.gguf import PREFIX, find_model, has_engine, missing_engine
from chatbot.models.model import JsonMode, Price

if TYPE_CHECKING:
    from chatbot.models.llama import Generation


class LocalModel(LiteLLMModel):
    """`local/smollm2-135m`, or `local/` and the path of a GGUF file. It takes no tools."""

    supports_tools = False

    def __init__(self, settings: ModelSettings, providers: Mapping[str, ProviderSettings] | None = None) -> None:
        super().__init__(settings, providers)
        self.name = f"{PREFIX}{PurePath(settings.name).name}"
        self._is_open = True
        self._engine = ENGINES.open(settings.name, settings.context_window)

    def warm(self) -> None:
        """Load the model in the background."""
        litellm_import.begin()
        self._engine.warm()

    @property
    def loading(self) -> str:
        """LiteLLM or the weights, until they are loaded."""
        return super().loading or ("" if self._engine.is_loaded else self.name)

    async def ready(self) -> None:
        """Wait until the library and the weights are loaded."""
        self.warm()
        await super().ready()
        with suppress(ChatbotError):
            await self._engine.window()

    async def check(self) -> None:
        """Raise an error if the weights or the engine are missing."""
        await asyncio.to_thread(find_model, self._settings.name.removeprefix(PREFIX))
        if not has_engine():
            raise missing_engine()

    async def sees_images(self) -> bool:
        """Return False: the engine reads text alone."""
        return False

    async def context_window(self) -> int:
        """Return the window of the loaded model."""
        return await self._engine.window()

    async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:  # noqa: ARG002
        """Count the tokens exactly; local models have no tools."""
        return await self._engine.count([message.as_openai() for message in messages])

    async def unknown_options(self, options: CallOptions) -> tuple[str, ...]:
        """Return all options except those of sampling, which are all that a local model knows."""
        return tuple(sorted(options.as_openai().keys() - CallOptions.HARMLESS))

    async def json_mode(self) -> JsonMode:
        """Return no support: JSON is only asked for in the prompt."""
        return ""

    async def price(self) -> Price:
        """Nothing."""
        return Price(0.0, 0.0)

    async def aclose(self) -> None:
        """Release the model; the weights are freed with their last user."""
        await super().aclose()
        if self._is_open:
            self._is_open = False
            await ENGINES.let_go(self._engine)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], limit: int | None) -> dict[str, Any]:
        request = super()._request(messages, tools, limit)
        request.pop("tools", None)
        return request | {"model": self._settings.name, "context_window": self._settings.context_window}

    def _answerer(self, told: str) -> str:  # noqa: ARG002 - LiteLLM's, with all folders
        return self.name.removeprefix(PREFIX)

    async def _litellm(self) -> ModuleType:

        litellm = await litellm_import.litellm()
        register(litellm)
        return litellm


PROVIDER = PREFIX.removesuffix("/")
_USUAL_LIMIT = 1024


def register(litellm: ModuleType) -> None:
    """Make `local/…` known to LiteLLM. Doing it again changes nothing."""
    if any(item["provider"] == PROVIDER for item in litellm.custom_provider_map):
        return
    litellm.custom_provider_map.append({"provider": PROVIDER, "custom_handler": _handler(litellm)})
    litellm.utils.custom_llm_setup()


def _handler(litellm: ModuleType) -> Any:
    from chatbot.models.llama import Generation

    class LocalModels(litellm.CustomLLM):  # type: ignore[misc, name-defined]
        """LiteLLM's side of the provider."""

        async def astreaming(self, **call: Any) -> AsyncGenerator[dict[str, Any], None]:
            done = Generation()
            async with aclosing(_stream(call, done)) as pieces:
                async for piece in pieces:
                    yield _chunk(piece)
            yield _chunk("", done)

        async def acompletion(self, **call: Any) -> Any:
            done = Generation()
            text = "".join([piece async for piece in _stream(call, done)])
            response = call["model_response"]
            response.choices[0].message.content = text
            response.choices[0].finish_reason = done.reason
            response.usage = litellm.Usage(**_usage(done))
            return response

    return LocalModels()


def _stream(call: dict[str, Any], done: Generation) -> AsyncGenerator[str, None]:
    from chatbot.models.llama import Sampling

    parameters = call.get("optional_params") or {}
    asked = {key: parameters[key] for key in ("temperature", "top_p", "seed") if parameters.get(key) is not None}
    engine = ENGINES.get(call["model"], int(parameters.get("context_window") or 0))
    limit = int(parameters.get("max_tokens") or parameters.get("max_completion_tokens") or _USUAL_LIMIT)
    return engine.stream(call["messages"], max_tokens=limit, sampling=Sampling(**asked), done=done)


def _chunk(text: str, done: Generation | None = None) -> dict[str, Any]:
    return {
        "text": text,
        "tool_use": None,
        "is_finished": done is not None,
        "finish_reason": done.reason if done else "",
        "usage": _usage(done) if done else None,
        "index": 0,
    }


def _usage(done: Generation) -> dict[str, Any]:
    return {
        "prompt_tokens": done.input_tokens,
        "completion_tokens": done.output_tokens,
        "total_tokens": done.input_tokens + done.output_tokens,
        "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
    }
