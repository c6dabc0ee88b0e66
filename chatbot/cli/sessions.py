"""`chatbot sessions`: list, show, rename, fork, delete, prune."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable

from chatbot.cli.exits import Exit
from chatbot.cli.output import SESSION_HEAD, complain, printable, say, say_json, say_table, session_rows
from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem, SessionRecord
from chatbot.runtime import Options, Setup
from stores.records import format_time


async def run(args: argparse.Namespace) -> Exit:
    """Do one of them. Needs no model."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    async with setup.open_memory() as memory:
        return await _ACTIONS[args.action](memory, args)


async def _list(memory: MemorySystem, args: argparse.Namespace) -> Exit:
    records = await memory.list_sessions(limit=args.limit or None)
    if args.json:
        say_json([record.as_json() for record in records])
    elif records:
        say_table(SESSION_HEAD, session_rows(records))
    else:
        say("no sessions yet")
    return Exit.OK


async def _show(memory: MemorySystem, args: argparse.Namespace) -> Exit:
    session = await memory.load_session((await memory.find_session(args.session)).id, any_agent=True)
    entries = await session.transcript_read_all()
    entries = entries[-args.last :] if args.last else entries
    if args.json:
        said = [{"role": entry.role, "at": format_time(entry.at), "content": entry.content} for entry in entries]
        say_json(session.record.as_json() | {"entries": said})
        return Exit.OK
    say(f"# {printable(session.record.title) or 'untitled'}\n{session.id}")
    for entry in entries:
        say(f"\n### {entry.role} — {format_time(entry.at)}\n\n{printable(entry.content)}")
    return Exit.OK


async def _rename(memory: MemorySystem, args: argparse.Namespace) -> Exit:
    record = await memory.rename_session((await memory.find_session(args.session)).id, args.title)
    return _told(record, f"{record.id} is now called {record.title!r}", args)


async def _fork(memory: MemorySystem, args: argparse.Namespace) -> Exit:
    session = await memory.fork_session((await memory.find_session(args.session)).id, title=args.title)
    return _told(session.record, f"{session.id} goes on from {session.record.parent}", args)


async def _delete(memory: MemorySystem, args: argparse.Namespace) -> Exit:
    records = {record.id: record for record in [await memory.find_session(text) for text in args.sessions]}
    if not args.yes and not _agreed(records):
        return Exit.USAGE
    for session_id in records:
        await memory.delete_session(session_id)
    return _deleted(list(records), args)


async def _prune(memory: MemorySystem, args: argparse.Namespace) -> Exit:
    return _deleted(await memory.expire_sessions(), args)


def _agreed(records: dict[str, SessionRecord]) -> bool:
    if not sys.stdin.isatty():
        complain(ConfigError("deleting needs --yes where there is no terminal to ask on"))
        return False
    say_table(SESSION_HEAD, session_rows(records.values()))
    return input("erase for good? [y/N] ").strip().lower() in {"y", "yes"}


def _deleted(ids: list[str], args: argparse.Namespace) -> Exit:
    if args.json:
        say_json({"deleted": ids})
    else:
        say("\n".join(f"erased {session_id}" for session_id in ids) or "nothing to erase")
    return Exit.OK


def _told(record: SessionRecord, text: str, args: argparse.Namespace) -> Exit:
    if args.json:
        say_json(record.as_json())
    else:
        say(printable(text))
    return Exit.OK


_ACTIONS: dict[str, Callable[[MemorySystem, argparse.Namespace], Awaitable[Exit]]] = {
    "list": _list,
    "show": _show,
    "rename": _rename,
    "fork": _fork,
    "delete": _delete,
    "prune": _prune,
}
