"""Which sessions a command is about: the one grammar of filters, and what it means. Imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chatbot.cli.values import count, past

if TYPE_CHECKING:
    from chatbot.memory import MemorySystem, SessionFilter, SessionRecord


def add_filter(parser: argparse.ArgumentParser, *, limit: int | None) -> None:
    """The options by which sessions are chosen; a `limit` of None takes them all unless one is given."""
    wanted = parser.add_argument_group("wanted")
    wanted.add_argument("--after", type=past, metavar="WHEN", help="used then or later: 2026-01-02, or 7d ago")
    wanted.add_argument("--before", type=past, metavar="WHEN", help="used last before that")
    wanted.add_argument("--agent", dest="of_agent", metavar="ID", help="of that agent")
    wanted.add_argument("--title", default="", metavar="TEXT", help="with that in the title")
    wanted.add_argument("--min-messages", type=count, default=0, metavar="N", help="with at least so many messages")
    which = wanted.add_mutually_exclusive_group()
    which.add_argument("--archived", dest="is_archived", action="store_true", default=False, help="only archived ones")
    which.add_argument("--all", dest="is_archived", action="store_const", const=None, help="archived ones too")
    usual = "all" if limit is None else str(limit)
    wanted.add_argument("--limit", type=count, default=limit, metavar="N", help=f"how many (default {usual}; 0: all)")


def filter_of(args: argparse.Namespace) -> SessionFilter:
    """What the options ask for."""
    from chatbot.memory import SessionFilter

    return SessionFilter(
        after=args.after,
        before=args.before,
        agent_id=args.of_agent,
        title=args.title,
        min_messages=args.min_messages,
        is_empty=True if getattr(args, "empty", False) else None,
        is_archived=args.is_archived,
        limit=args.limit or None,
    )


async def chosen(memory: MemorySystem, args: argparse.Namespace) -> list[SessionRecord]:
    """The sessions that are named, or else those that fit. Raises `InvalidValue` where nothing says which."""
    from chatbot.stores.errors import InvalidValue

    wanted = filter_of(args)
    if args.sessions:
        if not wanted.is_open:
            raise InvalidValue("there are sessions and a filter: give the ones or the other")
        found = [await memory.find_session(text) for text in args.sessions]
        return list({record.id: record for record in found}.values())
    if wanted.is_open and args.is_archived is False and not args.limit:
        raise InvalidValue("name sessions, or say which: --before 90d, --title TEXT; --all takes every one")
    return await memory.choose_sessions(wanted)
