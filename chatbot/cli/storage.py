"""`chatbot storage`: tables of a database, and copies of an identity from one storage to another."""

from __future__ import annotations

import argparse
import asyncio

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json
from chatbot.config import from_variable
from chatbot.errors import ConfigError
from chatbot.runtime import Options, Setup
from chatbot.stores.backends import distribution_of_tables, migrate
from chatbot.stores.home import Address, parse_address


async def run(args: argparse.Namespace) -> Exit:
    """Create or update the tables, or print how Citus should distribute them."""
    if args.citus:
        say("\n".join(distribution_of_tables()))
        return Exit.OK
    address = _address(args)
    applied = await asyncio.to_thread(migrate, address, role=args.role)
    if args.json:
        say_json({"applied": applied, "role": args.role or None})
        return Exit.OK
    say("\n".join(f"applied {each}" for each in applied) or "the tables are up to date")
    if args.role:
        say(f"{args.role} may use them")
    return Exit.OK


def _address(args: argparse.Namespace) -> Address:
    if args.url:
        return parse_address(from_variable(args.url, "--url"))
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    if not isinstance(setup.home, Address):
        raise ConfigError("memories are kept in files, which need no tables: set url in [storage], or pass --url")
    return setup.home
