"""`chatbot stores`: list store plug-ins, their contracts and settings."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from chatbot.cli.exits import Exit
from chatbot.cli.output import say_json, say_table
from chatbot.runtime import Options, Setup
from chatbot.stores.base import contracts_of
from chatbot.stores.errors import StoreError
from chatbot.stores.plugins import STORES, load, settings_of


async def run(args: argparse.Namespace) -> Exit:
    """Print every installed plug-in, and those that the configuration names."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    used = setup.agent_settings.memory
    described = [_describe(name, setup, is_used=name in used) for name in sorted({*STORES.installed(), *used})]
    if args.json:
        say_json(described)
        return Exit.OK
    rows = [
        ["*" if store["used"] else "", store["name"], ", ".join(store["keeps"]), _settings(store), store["about"]]
        for store in described
    ]
    say_table(("", "store", "keeps", "settings", "about"), rows)
    return Exit.OK


def _describe(name: str, setup: Setup, *, is_used: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"name": name, "used": is_used, "keeps": [], "settings": {}}
    try:
        store = load(name, beside=setup.settings.plugins_beside)
    except StoreError as error:
        return described | {"about": str(error)}
    own = setup.config.memory.get(name, {})
    settings = {key: own.get(key, parameter.default) for key, parameter in settings_of(store).items()}
    about = (inspect.getdoc(store) or "").partition("\n")[0]
    return described | {"keeps": contracts_of(store), "settings": settings, "about": about}


def _settings(store: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in store["settings"].items())
