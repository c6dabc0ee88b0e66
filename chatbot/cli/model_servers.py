"""Model servers on this machine, such as Ollama: which answer, and which models they have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from chatbot.allowed import is_loopback
from chatbot.cli.output import waiting, warn
from chatbot.errors import ConfigError
from chatbot.models.addresses import OTHER_HERE, PORTS_HERE, ollama_address, server_here
from chatbot.models.catalog import CatalogModel
from chatbot.stores.home import without_password

_USUAL = tuple(f"http://127.0.0.1:{port}" for port in PORTS_HERE.values())
_TIMEOUT_S = 1.5
_LARGEST = 1_000_000
_BY_OWNER = {"vllm": "hosted_vllm", "llamacpp": "llamacpp", "organization_owner": "lm_studio"}
"""Providers by the owner that a server names for its models."""
_TITLES = {"ollama_chat": "Ollama", "hosted_vllm": "vLLM", "llamacpp": "llama.cpp", "lm_studio": "LM Studio"}
_OURS = "chatbot"


class ModelServer(Struct, frozen=True):
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


async def ask_servers(more: Sequence[str]) -> list[ModelServer]:
    """Find servers as `find_servers` does, and warn of each address in `more` that has no chat models."""
    with waiting("asking model servers"):
        servers = await asyncio.to_thread(find_servers, more)
    for address in more:
        if _root(address) not in {server.api_base for server in servers}:
            warn(f"no chat models found at {without_password(address)}: is a model server running there?")
    return servers


def find_servers(more: Sequence[str] = ()) -> list[ModelServer]:
    """Ask the usual addresses, `$OLLAMA_HOST` and those in `more`, all at once; usually takes up to three seconds.

    Raises `ConfigError` for an address in `more` that is not on loopback.
    """
    ollama = [ollama_address()] if _is_here(ollama_address()) else []
    if elsewhere := [each for each in more if not _is_here(each)]:
        address = without_password(elsewhere[0])
        raise ConfigError(f"{address!r} is not an address on this machine, such as http://127.0.0.1:8080")
    addresses = list(dict.fromkeys((*map(_root, more), *ollama, *_USUAL)))
    with ThreadPoolExecutor(len(addresses)) as pool:
        found = list(pool.map(_server, addresses))
    return [server for server in found if server is not None and server.models]


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
        names = [str(each.get("name") or "") for each in tags["models"] if isinstance(each, dict)]
        return ModelServer("ollama_chat", address, _chat("ollama_chat", names))
    listed = _ask(f"{address}/v1/models")
    rows = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(each, dict) for each in rows):
        return None
    owner = str(rows[0].get("owned_by", ""))
    if owner == _OURS:
        return None
    provider = _BY_OWNER.get(owner, f"{OTHER_HERE}{urlsplit(address).port or 80}")
    return ModelServer(provider, address, _chat(provider, [str(each.get("id") or "") for each in rows]))


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
