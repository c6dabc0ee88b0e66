"""`chatbot keys`: store keys of providers in the keyring or a private file. No command shows one."""

from __future__ import annotations

import argparse
import sys
from getpass import getpass

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json, say_table, warn
from chatbot.config import Settings
from chatbot.models.provider import (
    check_takes_key,
    key_place,
    key_places,
    parsed_key,
    remove_key,
    store_key,
    stored_keys,
)


async def run(args: argparse.Namespace) -> Exit:
    """Store, list or remove keys."""
    if args.action == "list":
        return _list(args)
    own = Settings.read(args.config).combined().providers
    check_takes_key(args.provider, own)
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


def read_key(provider: str) -> str:
    """Read a key from standard input, or from the terminal without showing it. Raises `InvalidValue` for none."""
    text = getpass(f"key of {provider} (not shown): ") if sys.stdin.isatty() else sys.stdin.readline()
    return parsed_key(text)


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
    stored, rows = stored_keys(), key_places(own)
    if args.json:
        say_json([{"provider": name, "place": place, "is_stored": name in stored} for name, place in rows])
    elif rows:
        say_table(("provider", "key"), rows)
    else:
        say("no keys: chatbot keys set PROVIDER stores one")
    return Exit.OK
