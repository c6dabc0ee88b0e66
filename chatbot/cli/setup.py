"""`chatbot setup`: find keys and model servers, choose a model, and write it into the configuration.

Nothing is searched without the user's consent, and then only the environment, stored keys and loopback addresses.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chatbot.allowed import SettingPath
from chatbot.cli.config import own_file, set_values
from chatbot.cli.models import cells, read_key
from chatbot.cli.output import ask_line, ask_yes_or_no, say, say_json, say_table, waiting, warn
from chatbot.config import ModelSettings, ProviderSettings
from chatbot.config_layers import Settings
from chatbot.errors import ModelError
from chatbot.models import open_model
from chatbot.models.call import unknown_provider
from chatbot.models.catalog import SUGGESTED, TINY, CatalogModel, ModelServer, describe_model, find_servers
from chatbot.models.provider import Provider, key_place, store_key
from chatbot.models.weights import SMOLLM2
from chatbot.providers import OURS, known_providers, provider_of
from chatbot.stores.errors import InvalidValue

_SCOPE = "keys in the environment, and Ollama, LM Studio, vLLM and llama.cpp on this machine"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that can be chosen, where it was found, and the settings to write for it."""

    model: CatalogModel
    found: str
    settings: dict[SettingPath, Any]


async def run(args: argparse.Namespace) -> None:
    """Find models, let the user choose one, and write it into the configuration."""
    can_ask = sys.stdin.isatty() and sys.stdout.isatty() and not args.json
    choices = await _find(args, can_ask=can_ask)
    if args.json and not args.model:
        say_json([asdict(each.model) | {"found": each.found} for each in choices])
        return
    if not (args.model or can_ask):
        raise InvalidValue("setup needs a terminal, or --model NAME")
    name = args.model or _choose(choices)
    if not name:
        say("nothing was changed")
        return
    known = next((each for each in choices if each.model.name == name), None)
    path = own_file(args.config)
    set_values(path, {("model", "name"): name, **(known.settings if known else {})})
    problem = await _why_unusable(args, name, can_ask=can_ask)
    _report(args, name, path, problem)


async def _find(args: argparse.Namespace, *, can_ask: bool) -> list[ModelChoice]:
    is_allowed = args.yes or args.at or (can_ask and not args.model and ask_yes_or_no(f"look for {_SCOPE}?"))
    if not is_allowed:
        return _ready_to_use({})
    with waiting("asking model servers"):
        servers = await asyncio.to_thread(find_servers, args.at)
    own = Settings.read(args.config).combined().providers
    places = {provider: key_place(provider, own) for provider in SUGGESTED}
    return [*_of_servers(servers), *_ready_to_use(places)]


def _of_servers(servers: Sequence[ModelServer]) -> list[ModelChoice]:
    found = []
    for server in servers:
        place = ("providers", server.provider)
        settings: dict[SettingPath, Any] = {(*place, key): value for key, value in server.settings.items()}
        where = f"{server.title} at {server.api_base}"
        found += [ModelChoice(model, where, settings) for model in server.catalog()]
    return found


def _ready_to_use(places: Mapping[str, str]) -> list[ModelChoice]:
    found = [
        ModelChoice(describe_model(SUGGESTED[each]), f"key in {place}", {}) for each, place in places.items() if place
    ]
    if SMOLLM2.folder() is not None:
        found.append(ModelChoice(TINY, "installed; tiny", {}))
    return found


def _choose(choices: Sequence[ModelChoice]) -> str:
    """Return the model that the user names by number or by name; empty if none."""
    head = ("#", "model", "window", "$ per 1M in/out", "tools", "images", "found")
    if choices:
        say_table(head, [[str(at), *cells(each.model), each.found] for at, each in enumerate(choices, 1)])
    else:
        say(f"nothing was found; name any model, such as {', '.join(SUGGESTED.values())}")
    default = choices[0].model.name if choices else ""
    typed = ask_line(f"number or name of a model [{default or 'none'}]: ")
    if typed.isdecimal():
        if not 0 < int(typed) <= len(choices):
            raise InvalidValue(f"{typed} is not in the list: nothing was changed")
        return choices[int(typed) - 1].model.name
    return typed or default


async def _why_unusable(args: argparse.Namespace, name: str, *, can_ask: bool) -> str:
    """Return why the model cannot be used yet; empty if it can. Asks for a missing key."""
    settings = Settings.read(args.config)
    config, provider = settings.combined(), provider_of(name)
    if config.model.name != name:
        return f"{settings.source('model', 'name')} sets another model, {config.model.name}"
    needs_key = provider in SUGGESTED and not key_place(provider, config.providers)
    if needs_key and can_ask and ask_yes_or_no(f"{provider} needs a key; store one now?"):
        store_key(provider, read_key(provider))
    return await problem_of(config.model, config.providers)


async def problem_of(settings: ModelSettings, providers: Mapping[str, ProviderSettings]) -> str:
    """Return why the model cannot be called; empty if nothing is known against it. Loads no LiteLLM."""
    provider = Provider(settings.name, providers)
    try:
        if provider.name in OURS:
            async with open_model(settings, providers) as model:
                await model.check()
        elif provider.kind not in known_providers():
            raise unknown_provider(settings.name)
        else:
            provider.check_before_call()
            provider.address()
    except ModelError as error:
        return str(error)
    return ""


def _report(args: argparse.Namespace, name: str, path: Path, problem: str) -> None:
    if args.json:
        say_json({"model": name, "file": str(path.resolve()), "problem": problem})
        return
    cost = describe_model(name).price
    say(f"the model is {name}{f' ($ per 1M tokens: {cost})' if '/' in cost else ''}, written to {path}")
    if problem:
        warn(f"it cannot be used yet: {problem}")
    else:
        say('now run: chatbot, or chatbot ask "hello"')
