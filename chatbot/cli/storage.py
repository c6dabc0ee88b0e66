"""`chatbot storage`: tables of a database, and copies of an identity from one storage to another."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path

from chatbot.cli.exits import Exit
from chatbot.cli.output import progress, say, say_json
from chatbot.config import Config, from_variable
from chatbot.errors import ConfigError
from chatbot.runtime import Options, Setup
from chatbot.stores.backends import create_tables, distribution_of_tables
from chatbot.stores.fields import how_many
from chatbot.stores.home import Address, Home, parse_address, parse_home


async def run(args: argparse.Namespace) -> Exit:
    """Create the tables, print how Citus should distribute them, or copy an identity."""
    if args.action == "copy":
        return await _copy(args)
    if args.citus:
        say("\n".join(distribution_of_tables()))
        return Exit.OK
    address = _address(args)
    is_new = await asyncio.to_thread(create_tables, address, role=args.role)
    if args.json:
        say_json({"created": is_new, "role": args.role or None})
        return Exit.OK
    say("created the tables" if is_new else "the tables already exist")
    if args.role:
        say(f"{args.role} may use them")
    return Exit.OK


async def _copy(args: argparse.Namespace) -> Exit:
    from chatbot.transfer.storage_copy import copy_storage

    source, target = (_home(text, args.identity) for text in (args.source, args.target))

    with progress("copying") as tell:
        done = await copy_storage(source, target, tell)
    if args.json:
        say_json({"from": str(source), "to": str(target), **asdict(done)})
        return Exit.OK
    say(
        f"copied {how_many(done.sessions, 'session')}, {how_many(done.events, 'change')} of memory and "
        f"{how_many(done.lines, 'other line')}; "
        f"{done.unchanged:,} already existed. Both are identical: {done.digest}"
    )
    return Exit.OK


def _home(text: str, identity: str | None) -> Home:
    home = parse_home(from_variable(text, "the storage"))
    is_named = isinstance(home, Path) or "#" in text
    return home if is_named or not isinstance(home, Address) else home.of(identity or Config().identity)


def _address(args: argparse.Namespace) -> Address:
    if args.url:
        return parse_address(from_variable(args.url, "--url"))
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    if not isinstance(setup.home, Address):
        raise ConfigError("memory is stored in files, which need no tables: set url in [storage], or pass --url")
    return setup.home
