"""Available models: those in LiteLLM's table, and which of them can be called."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from msgspec import Struct

from chatbot.config import Config
from chatbot.models.provider import key_place
from chatbot.models.weights import EMBEDDED, PREFIX, SMOLLM2
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


class CatalogModel(Struct, frozen=True):
    """A chat model. Fields are None if the table lacks them."""

    name: str
    provider: str
    window: int | None = None
    input_usd_per_million: float | None = None
    output_usd_per_million: float | None = None
    tools: bool | None = None
    images: bool | None = None

    @property
    def price(self) -> str:
        """The prices of a million input and output tokens; `?` if unknown."""
        prices = (self.input_usd_per_million, self.output_usd_per_million)
        if prices[0] is None or prices[1] is None:
            return "?"
        return "free" if prices == (0.0, 0.0) else f"{prices[0]:g} / {prices[1]:g}"


TINY = CatalogModel(f"{PREFIX}{EMBEDDED}", LOCAL, 8192, 0.0, 0.0, tools=False, images=False)


@lru_cache(maxsize=1)
def catalog(today: date) -> tuple[CatalogModel, ...]:
    """Return all chat models that are still offered on that day, by provider and name, each once."""
    found = {model.name: model for model in _models(today)}
    plain = {name: _DATED.sub("", name) for name in found}  # a dated name is a copy of the one without the date
    return tuple(model for name, model in sorted(found.items()) if plain[name] == name or plain[name] not in found)


def usable_models(config: Config, served: Iterable[tuple[CatalogModel, str]] = ()) -> list[tuple[CatalogModel, str]]:
    """Return the models that can be called now, each with the reason: those on this machine first, then by provider.

    `served` are those of servers on this machine, if any were found.
    """
    found: dict[str, tuple[CatalogModel, str]] = {}
    if SMOLLM2.folder() is not None:
        found[TINY.name] = (TINY, "installed")
    found |= {model.name: (model, why) for model, why in served}
    named = config.model.name
    if named not in found and (place := _place(named, config)):
        found[named] = (describe_model(named), place)
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


def describe_model(name: str) -> CatalogModel:
    """Return the table's data about a model; for an unknown one only its name."""
    provider, slash, rest = name.partition("/")
    table = model_table()
    entry = table.get(name) or (table.get(rest) if slash else None)
    return _model(name, provider, entry) if isinstance(entry, dict) else CatalogModel(name, provider)


def _models(today: date) -> Iterator[CatalogModel]:
    for name, entry in model_table().items():
        if not isinstance(entry, dict) or not _is_chat(name, entry, today):
            continue
        provider = str(entry.get("litellm_provider", ""))
        whole = name if name.startswith(f"{provider}/") else f"{provider}/{name}"
        if provider and "/" not in provider:
            yield _model(whole, provider, entry)


def _model(name: str, provider: str, entry: Mapping[str, Any]) -> CatalogModel:
    return CatalogModel(
        name,
        provider,
        window if isinstance(window := entry.get("max_input_tokens") or entry.get("max_tokens"), int) else None,
        _per_million(entry.get("input_cost_per_token")),
        _per_million(entry.get("output_cost_per_token")),
        bool(entry.get("supports_function_calling")),
        bool(entry.get("supports_vision")),
    )


def _is_chat(name: str, entry: Mapping[str, Any], today: date) -> bool:
    given = entry.get("supported_output_modalities")
    is_over = str(entry.get("deprecation_date") or "9999") < today.isoformat()
    is_text = entry.get("mode") == "chat" and (not given or given == ["text"])
    return is_text and not is_over and not _NO_CHAT.search(name.lower())


def _per_million(value: Any) -> float | None:
    return round(float(value) * 1e6, 6) if isinstance(value, int | float) else None
