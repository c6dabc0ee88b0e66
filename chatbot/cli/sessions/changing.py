"""Changing one session."""

from __future__ import annotations

import argparse

from chatbot.cli.output import printable, say, say_json
from chatbot.memory import MemorySystem, SessionRecord


async def rename(memory: MemorySystem, args: argparse.Namespace) -> None:
    """Give it a title."""
    record = await memory.rename_session((await memory.find_session(args.session)).id, args.title)
    _tell(record, f"{record.id} is now called {record.title!r}", args)


async def fork(memory: MemorySystem, args: argparse.Namespace) -> None:
    """Copy it, as far as is asked for."""
    source = await memory.find_session(args.session)
    session = await memory.fork_session(source.id, title=args.title, at=args.at)
    _tell(session.record, f"{session.id} goes on from {source.id}", args)


def _tell(record: SessionRecord, text: str, args: argparse.Namespace) -> None:
    if args.json:
        say_json(record.as_json())
    else:
        say(printable(text))
