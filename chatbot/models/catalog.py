"""Available models: those in LiteLLM's table, and those of servers on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from chatbot.allowed import is_loopback
from chatbot.config import Config
from chatbot.errors import ConfigError
from chatbot.models.addresses import OTHER_HERE, PORTS_HERE, ollama_address, server_here
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


@dataclass(frozen=True, slots=True)
class CatalogModel:
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
"""The embedded model."""


@lru_cache(maxsize=1)
def catalog(today: date) -> tuple[CatalogModel, ...]:
    """Return all chat models that are still offered on that day, by provider and name, each once."""
    found = {model.name: model for model in _models(today)}
    plain = {name: _DATED.sub("", name) for name in found}  # a dated name is a copy of the one without the date
    return tuple(model for name, model in sorted(found.items()) if plain[name] == name or plain[name] not in found)


def usable_models(config: Config, servers: Iterable[ModelServer] = ()) -> list[tuple[CatalogModel, str]]:
    """Return the models that can be called now, each with the reason: those on this machine first, then by provider."""
    found: dict[str, tuple[CatalogModel, str]] = {}
    if SMOLLM2.folder() is not None:
        found[TINY.name] = (TINY, "installed")
    for server in servers:
        found |= {model.name: (model, f"{server.title} on this machine") for model in server.catalog()}
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


_USUAL = tuple(f"http://127.0.0.1:{port}" for port in PORTS_HERE.values())
_TIMEOUT_S = 1.5
_LARGEST = 1_000_000
_BY_OWNER = {"vllm": "hosted_vllm", "llamacpp": "llamacpp", "organization_owner": "lm_studio"}
"""Providers by the owner that a server names for its models."""
_TITLES = {"ollama_chat": "Ollama", "hosted_vllm": "vLLM", "llamacpp": "llama.cpp", "lm_studio": "LM Studio"}
_OURS = "chatbot"


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A server and the chat models that it has, by their names in the configuration."""

    provider: str
    api_base: str
    models: tuple[str, ...]

    @property
    def title(self) -> str:
        """Its display name."""
        return _TITLES.get(self.provider, self.api_base)

    def catalog(self) -> list[CatalogModel]:
        """Return its models, which cost nothing."""
        return [CatalogModel(name, self.provider, None, 0.0, 0.0) for name in self.models]

    @property
    def is_known(self) -> bool:
        """True if its models can be called without any setting."""
        default = server_here(self.provider).get("api_base", _USUAL[0] if self.provider == "ollama_chat" else "")
        return _root(default) == self.api_base

    @property
    def settings(self) -> dict[str, str]:
        """The values for `[providers.<provider>]`; empty for Ollama at its usual address."""
        if self.provider == "ollama_chat":
            return {} if self.api_base == _USUAL[0] else {"api_base": self.api_base}
        kind = {} if self.provider in {"hosted_vllm", "lm_studio"} else {"kind": "openai"}
        return {**kind, "api_base": f"{self.api_base}/v1"}


def find_servers(more: Sequence[str] = ()) -> list[ModelServer]:
    """Ask the usual addresses, `$OLLAMA_HOST` and those in `more`, all at once; takes up to three seconds.

    Raises `ConfigError` for an address in `more` that is not on loopback.
    """
    ollama = [ollama_address()] if _is_here(ollama_address()) else []
    addresses = list(dict.fromkeys((*map(_checked_root, more), *ollama, *_USUAL)))
    with ThreadPoolExecutor(len(addresses)) as pool:
        found = list(pool.map(_server, addresses))
    return [server for server in found if server is not None and server.models]


def _checked_root(address: str) -> str:
    if not _is_here(address):
        raise ConfigError(f"{address!r} is not an address on this machine, such as http://127.0.0.1:8080")
    return _root(address)


def _root(address: str) -> str:
    return address.rstrip("/").removesuffix("/v1")


def _is_here(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme == "http" and is_loopback(parts.hostname)
    except ValueError:
        return False


def _server(address: str) -> ModelServer | None:
    tags = _ask(f"{address}/api/tags")
    if isinstance(tags, dict) and isinstance(tags.get("models"), list):
        names = [str(each.get("name", "")) for each in tags["models"] if isinstance(each, dict)]
        return ModelServer("ollama_chat", address, _chat("ollama_chat", names))
    listed = _ask(f"{address}/v1/models")
    rows = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(each, dict) for each in rows):
        return None
    owner = str(rows[0].get("owned_by", ""))
    if owner == _OURS:
        return None
    provider = _BY_OWNER.get(owner, f"{OTHER_HERE}{urlsplit(address).port or 80}")
    return ModelServer(provider, address, _chat(provider, [str(each.get("id", "")) for each in rows]))


def _chat(provider: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{provider}/{name}" for name in names if name and "embed" not in name.lower())


def _ask(url: str) -> Any:
    parts = urlsplit(url)
    try:  # directly: no proxy, and no redirect is followed
        with closing(HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)) as connection:
            connection.request("GET", parts.path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            return json.loads(answer.read(_LARGEST)) if answer.status == HTTPStatus.OK else None
    except (HTTPException, OSError, ValueError, RecursionError):
        return None  # no model server listens there
