"""`chatbot models`: models and their prices, and weights on this machine; `chatbot keys`: keys of providers."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping

from msgspec.structs import asdict

from chatbot.cli.model_servers import ask_servers
from chatbot.cli.output import ask_unseen, say, say_json, say_result, say_table, waiting, warn
from chatbot.cli.run import Exit
from chatbot.config import Config, ProviderSettings
from chatbot.config_layers import Settings
from chatbot.memory.scope import utc_now
from chatbot.models import provider
from chatbot.models.catalog import CatalogModel, catalog, usable_models
from chatbot.models.weights import WEIGHTS, Weights


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
_HEAD = ("model", "window", "$ per 1M in/out", "tools", "images", "usable by")
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
        say_table(_HEAD, [[*cells(model), place or "–"] for model, place in shown])
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
