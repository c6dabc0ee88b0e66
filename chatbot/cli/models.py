"""`chatbot models`: models and their prices, weights and model servers on this machine; `chatbot keys`: keys."""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import asdict

from chatbot.cli.output import ask_unseen, say, say_json, say_result, say_table, waiting, warn
from chatbot.cli.run import Exit
from chatbot.config import Config, ProviderSettings
from chatbot.config_layers import Settings
from chatbot.errors import ConfigError
from chatbot.memory.scope import utc_now
from chatbot.models import provider
from chatbot.models.addresses import OTHER_HERE, PORTS_HERE, ollama_address, server_here
from chatbot.models.catalog import CatalogModel, catalog, usable_models
from chatbot.models.weights import WEIGHTS, Weights
from chatbot.stores.home import without_password
from chatbot.trust import is_loopback


async def run_keys(args: argparse.Namespace) -> Exit | None:
    """Store, list or remove keys."""
    own = Settings.read(args.config).combined().providers
    if args.action == "list":
        _list_keys(args, own)
        return None
    provider.check_takes_key(args.provider, own)
    if args.action == "remove":
        return _remove(args)
    place = provider.store_key(args.provider, read_key(args.provider))
    say_result(args, {"provider": args.provider, "place": place}, f"the key of {args.provider} is stored: {place}")
    if (used := provider.key_place(args.provider, own)) != place:
        warn(f"{used} is set too and takes priority")
    return None


def read_key(name: str) -> str:
    """Read a key from standard input, or unseen from the terminal. Raises `InvalidValue` if there is none."""
    return provider.parsed_key(ask_unseen(f"key of {name} (not shown): "))


def _remove(args: argparse.Namespace) -> Exit | None:
    if not provider.remove_key(args.provider):
        warn(f"no key of {args.provider} is stored")
        return Exit.NOT_FOUND
    say_result(args, {"provider": args.provider, "removed": True}, f"the key of {args.provider} is removed")
    return None


def _list_keys(args: argparse.Namespace, own: Mapping[str, ProviderSettings]) -> None:
    stored, rows = provider.stored_keys(), provider.key_places(own)
    if args.json:
        say_json([{"provider": name, "place": place, "is_stored": name in stored} for name, place in rows])
    elif rows:
        say_table(("provider", "key"), rows)
    else:
        say("No keys yet: chatbot keys set PROVIDER stores one")


_SHOWN = 40
"""Maximum models that are listed without a text or `--all`."""
_UNKNOWN = "?"


async def run(args: argparse.Namespace) -> None:
    """List models or weights, or fetch weights."""
    await _ACTIONS[args.action](args)


async def _list(args: argparse.Namespace) -> None:
    config = Settings.read(args.config).combined()
    servers = await ask_servers(args.at) if args.find or args.at else []
    usable = usable_models(
        config, [(model, f"{server.title} on this machine") for server in servers for model in server.catalog()]
    )
    known = {model.name for model, _ in usable}
    others = [(each, "") for each in catalog(utc_now().date()) if each.name not in known] if args.all else []
    rows = [(model, place) for model, place in (*usable, *others) if args.text.lower() in model.name.lower()]
    if args.json:
        say_json([asdict(model) | {"usable_by": place or None} for model, place in rows])
        return
    shown = rows if args.all or args.text else rows[:_SHOWN]
    if shown:
        head = ("model", "window", "$ per 1M in/out", "tools", "images", "usable by")
        say_table(head, [[*cells(model), place or "–"] for model, place in shown])
    else:
        say("No models found: chatbot setup finds keys and local servers")
    for server in servers:
        if not server.is_known:
            say(f"to use {server.title} at {server.api_base}: chatbot setup --at {server.api_base}")
    _hint(config, len(rows) - len(shown), args)


def cells(model: CatalogModel) -> list[str]:
    """Return the columns of one model."""
    window = f"{model.window:,}" if model.window else _UNKNOWN
    return [model.name, window, model.price, _yes(model.tools), _yes(model.images)]


def _hint(config: Config, hidden: int, args: argparse.Namespace) -> None:
    for name, model in config.aliases.items():
        say(f"{name} is an alias of {model}")
    if hidden:
        say(f"{hidden} more are usable: chatbot models list TEXT finds one")
    if not args.find:
        say("--find also asks Ollama, LM Studio, vLLM and llama.cpp on this machine; --all shows models without a key")


def _yes(value: bool | None) -> str:  # noqa: FBT001 - a cell of a table
    return _UNKNOWN if value is None else "yes" if value else "no"


async def _weights(args: argparse.Namespace) -> None:
    if args.json:
        say_json([_details(each) for each in WEIGHTS.values()])
    else:
        rows = [
            [each.name, _yes(each.folder() is not None), f"{each.mb} MB", each.licence, each.about]
            for each in WEIGHTS.values()
        ]
        say_table(("weights", "installed", "download", "licence", "about"), rows)


async def _get(args: argparse.Namespace) -> None:
    wanted = [WEIGHTS[name] for name in dict.fromkeys(args.names)]
    for weights in wanted:
        with waiting(f"downloading {weights.name}, {weights.mb} MB"):
            folder = await asyncio.to_thread(weights.get)
        if not args.json:
            say(f"{weights.name}: installed in {folder}")
    if args.json:
        say_json([_details(weights) for weights in wanted])


def _details(weights: Weights) -> Mapping[str, str | int | None]:
    fields = {name: getattr(weights, name) for name in ("name", "mb", "licence", "about", "package")}
    return fields | {"folder": str(folder) if (folder := weights.folder()) else None}


_ACTIONS = {"list": _list, "weights": _weights, "get": _get}


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
