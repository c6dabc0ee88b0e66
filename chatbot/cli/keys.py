"""`chatbot keys`: store keys of providers in the keyring or a private file. No command shows one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from getpass import getpass

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json, say_table, warn
from chatbot.config import ProviderSettings, Settings
from chatbot.errors import ConfigError
from chatbot.models.provider import key_place, remove_key, store_key, stored_keys
from chatbot.providers import OURS, known_providers, nearest_to, variables_of
from chatbot.stores.errors import InvalidValue

_SHORTEST = 8


async def run(args: argparse.Namespace) -> Exit:
    """Store, list or remove keys."""
    if args.action == "list":
        return _list(args)
    own = Settings.read(args.config).combined().providers
    _check_provider(args.provider, own)
    if args.action == "remove":
        return _remove(args)
    place = store_key(args.provider, read_key(args.provider))
    if args.json:
        say_json({"provider": args.provider, "place": place})
        return Exit.OK
    say(f"the key of {args.provider} is stored: {place}")
    used = key_place(args.provider, own)
    if used != place:
        warn(f"{used} is set too and takes priority")
    return Exit.OK


def _check_provider(name: str, own: Mapping[str, ProviderSettings]) -> None:
    """Raise `ConfigError` for a name that is no provider, or one that takes no key."""
    if name in OURS:
        raise ConfigError(f"{name} runs on this machine and takes no key")
    if name not in known_providers() and name not in own:
        raise ConfigError(f"no provider is called {name!r}{nearest_to(name)}")


def read_key(provider: str) -> str:
    """Read a key from standard input, or from the terminal without showing it. Raises `InvalidValue` for none."""
    text = getpass(f"key of {provider} (not shown): ") if sys.stdin.isatty() else sys.stdin.readline()
    key = text.strip()
    if len(key) < _SHORTEST or not key.isprintable() or " " in key:
        raise InvalidValue("invalid key: nothing was stored")
    return key


def _remove(args: argparse.Namespace) -> Exit:
    if not remove_key(args.provider):
        warn(f"no key of {args.provider} is stored")
        return Exit.NOT_FOUND
    if args.json:
        say_json({"provider": args.provider, "removed": True})
    else:
        say(f"the key of {args.provider} is removed")
    return Exit.OK


def _list(args: argparse.Namespace) -> Exit:
    own = Settings.read(args.config).combined().providers
    stored = stored_keys()
    known = {*stored, *own, *(name for name in known_providers() - OURS if _in_environment(name))}
    rows = [(name, place) for name in sorted(known) if (place := key_place(name, own))]
    if args.json:
        say_json([{"provider": name, "place": place, "is_stored": name in stored} for name, place in rows])
    elif rows:
        say_table(("provider", "key"), rows)
    else:
        say("no keys: chatbot keys set PROVIDER stores one")
    return Exit.OK


def _in_environment(provider: str) -> bool:
    return any(os.environ.get(variable) for variable in variables_of(provider))
