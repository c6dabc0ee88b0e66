"""`chatbot storage`: create and copy a store; `chatbot maintain`: do what is due of a memory's upkeep."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict, replace
from pathlib import Path

from chatbot.cli.exits import Exit
from chatbot.cli.output import progress, say, say_json, say_table, waiting
from chatbot.config import Config, from_variable
from chatbot.errors import ConfigError
from chatbot.memory.policy import MaintenanceReport
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
    from chatbot.cli.backup import told
    from chatbot.transfer.backups import copy_storage

    source, target = (_home(text, args.identity) for text in (args.source, args.target))

    with progress("copying") as tell:
        done = await copy_storage(source, target, tell)
    if args.json:
        say_json({"from": str(source), "to": str(target), **asdict(done)})
        return Exit.OK
    say(f"copied {told(done)}. Both are identical: {done.digest}")
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


_PAST = {
    "consolidate": "consolidated",
    "archive": "archived",
    "delete": "deleted",
    "compress": "compressed",
    "summarize": "summarized",
    "erase": "erased",
}


async def run_maintain(args: argparse.Namespace) -> Exit:
    """Maintain the identity's memory, or report what that would do. Needs no model."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    policy = setup.policy
    if args.summarize_old is not None:
        policy = replace(policy, summarize_after_days=args.summarize_old)
    async with setup.open_memory(observations=setup.observation_store()) as memory:
        with waiting("maintaining memory"):
            report = await memory.maintain(policy, dry_run=args.dry_run, whole=True)
    if args.json:
        say_json(report.as_json())
    else:
        _show(report)
    return Exit.OK


def _show(report: MaintenanceReport) -> None:
    if report.skipped:
        say("another process is already maintaining this memory")
        return
    rows = [
        (_PAST[deed.kind], str(len(deed.ids)), deed.why, deed.by or "–", " ".join(deed.ids)) for deed in report.deeds
    ]
    if rows:
        say_table(("would be" if report.dry_run else "was", "rows", "why", "into", "which"), rows)
    looked = f"{how_many(report.looked_at, 'row')} looked at in {report.seconds:.2f} s"
    say(looked if rows else f"nothing to do: {looked}")
