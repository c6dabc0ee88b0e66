"""Chat models by LiteLLM's table: price, window, tools, images. Reads a file of the package and loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from chatbot.config import Config
from chatbot.models.gguf import EMBEDDED, PREFIX
from chatbot.models.nearby import ModelServer
from chatbot.models.provider import key_place
from chatbot.models.weights import SMOLLM2
from chatbot.providers import LOCAL, model_table

SUGGESTED = {
    "anthropic": "anthropic/claude-sonnet-4-5",
    "openai": "openai/gpt-5-mini",
    "gemini": "gemini/gemini-2.5-flash",
    "mistral": "mistral/mistral-small-latest",
    "openrouter": "openrouter/openai/gpt-5-mini",
    "groq": "groq/llama-3.3-70b-versatile",
    "deepseek": "deepseek/deepseek-chat",
    "xai": "xai/grok-4",
}
"""A good and cheap model of each usual provider, in the order in which they are offered."""
_NO_CHAT = re.compile(
    r"^ft:|audio|realtime|transcri|(?:^|[-/])tts|-tts|image|imagen|embed|rerank|moderation|search|computer-use|container"
    r"|deep-research|lyria|robotics|veo|whisper|dall-e|guard|ocr|live|code-fim"
)
_DATED = re.compile(r"-(?:20\d{2}-\d{2}-\d{2}|20\d{6})$")


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A chat model. None where the table does not say it."""

    name: str
    provider: str
    window: int | None = None
    input_usd_per_million: float | None = None
    output_usd_per_million: float | None = None
    tools: bool | None = None
    images: bool | None = None


@lru_cache(maxsize=1)
def catalog(today: date) -> tuple[CatalogModel, ...]:
    """Return all chat models that are still offered on that day, by provider and name, each once."""
    found = {model.name: model for model in _models(today)}
    return tuple(model for name, model in sorted(found.items()) if not _is_copy(name, found))


def usable_models(config: Config, servers: Iterable[ModelServer] = ()) -> list[tuple[CatalogModel, str]]:
    """Return the models that can be called now, each with what makes it usable: here first, then by provider."""
    found: dict[str, tuple[CatalogModel, str]] = {}
    if SMOLLM2.folder() is not None:
        found[f"{PREFIX}{EMBEDDED}"] = (replace(local_model(f"{PREFIX}{EMBEDDED}"), window=8192), "installed")
    for server in servers:
        for name in server.models:
            found[name] = (replace(local_model(name), tools=None, images=None), f"{server.title} on this machine")
    named = config.model.name
    if named not in found and (place := _place(named, config)):
        found[named] = (described(named), place)
    models = catalog(datetime.now(UTC).date())
    places = {provider: key_place(provider, config.providers) for provider in {model.provider for model in models}}
    for model in models:
        if model.name not in found and (place := places[model.provider]):
            found[model.name] = (model, place)
    return list(found.values())


def _place(name: str, config: Config) -> str:
    provider = name.partition("/")[0]
    if name.startswith(PREFIX) or name == "scripted":
        return "" if name == f"{PREFIX}{EMBEDDED}" else "[model]"
    if provider in config.providers and config.providers[provider].api_base:
        return f"[providers.{provider}]"
    return key_place(provider, config.providers)


def described(name: str) -> CatalogModel:
    """Return what the table has about a model; of an unknown one only its name."""
    provider, slash, rest = name.partition("/")
    table = model_table()
    entry = table.get(name) or (table.get(rest) if slash else None)
    return _model(name, provider, entry) if isinstance(entry, dict) else CatalogModel(name, provider)


def local_model(name: str, *, tools: bool = False) -> CatalogModel:
    """Return a model of this machine: it costs nothing."""
    return CatalogModel(name, name.partition("/")[0] or LOCAL, None, 0.0, 0.0, tools=tools, images=False)


def _models(today: date) -> Iterator[CatalogModel]:
    for name, entry in model_table().items():
        if not isinstance(entry, dict) or not _is_chat(name, entry) or _is_over(entry, today):
            continue
        provider = str(entry.get("litellm_provider", ""))
        whole = name if name.startswith(f"{provider}/") else f"{provider}/{name}"
        if provider and "/" not in provider:
            yield _model(whole, provider, entry)


def _model(name: str, provider: str, entry: Mapping[str, Any]) -> CatalogModel:
    return CatalogModel(
        name,
        provider,
        _whole(entry.get("max_input_tokens") or entry.get("max_tokens")),
        _per_million(entry.get("input_cost_per_token")),
        _per_million(entry.get("output_cost_per_token")),
        bool(entry.get("supports_function_calling")),
        bool(entry.get("supports_vision")),
    )


def _is_chat(name: str, entry: Mapping[str, Any]) -> bool:
    given = entry.get("supported_output_modalities")
    return entry.get("mode") == "chat" and not _NO_CHAT.search(name.lower()) and (not given or given == ["text"])


def _is_over(entry: Mapping[str, Any], today: date) -> bool:
    return str(entry.get("deprecation_date") or "9999") < today.isoformat()


def _is_copy(name: str, known: Mapping[str, CatalogModel]) -> bool:
    """Return True for a dated name beside the same name without its date."""
    return _DATED.sub("", name) != name and _DATED.sub("", name) in known


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _per_million(value: Any) -> float | None:
    return round(float(value) * 1e6, 6) if isinstance(value, int | float) else None
