"""`local/…` as a LiteLLM provider: GGUF models in this process, streamed like any other.

After `register(litellm)`, `litellm.acompletion(model="local/smollm2-135m", …)` works for everyone in the process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import ModuleType
from typing import Any

from chatbot.models.engine import ENGINES
from chatbot.models.gguf import PREFIX
from chatbot.models.llama import Generation, Sampling

PROVIDER = PREFIX.removesuffix("/")
_USUAL_LIMIT = 1024


def register(litellm: ModuleType) -> None:
    """Make `local/…` known to LiteLLM. Doing it again changes nothing."""
    if any(item["provider"] == PROVIDER for item in litellm.custom_provider_map):
        return
    litellm.custom_provider_map.append({"provider": PROVIDER, "custom_handler": _handler(litellm)})
    litellm.utils.custom_llm_setup()


def _handler(litellm: ModuleType) -> Any:
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
