"""Selection of sessions for commands that change or export many: named ones, or those that fit a filter."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from chatbot import operations
from chatbot.cli.bind import add_parameters
from chatbot.cli.option_values import count
from chatbot.operation import fields_of
from chatbot.operations import WantedSessions

if TYPE_CHECKING:
    from chatbot.memory import MemorySystem, SessionFilter, SessionRecord


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Add the options by which sessions are chosen."""
    add_parameters(parser, fields_of(WantedSessions), title="filters")
    parser.add_argument("--limit", type=count, metavar="N", help="maximum sessions (default all)")


def filter_of(args: argparse.Namespace) -> SessionFilter:
    """The filter that the options stand for."""
    given = {each.name: getattr(args, each.name) for each in fields_of(WantedSessions)}
    wanted = cast("WantedSessions", {name: value for name, value in given.items() if value is not None})
    is_empty = True if getattr(args, "empty", False) else None
    return replace(operations.filter_of(wanted), is_empty=is_empty, limit=args.limit or None)


async def chosen(memory: MemorySystem, args: argparse.Namespace) -> list[SessionRecord]:
    """The sessions that are named, or else those that fit. Raises `InvalidValue` where nothing says which."""
    from chatbot.stores.errors import InvalidValue

    wanted = filter_of(args)
    if args.sessions:
        if not wanted.is_open:
            raise InvalidValue("sessions and a filter are both given: use one")
        found = [await memory.find_session(text) for text in args.sessions]
        return list({record.id: record for record in found}.values())
    if wanted.is_open and wanted.is_archived is False and not args.limit:
        raise InvalidValue(
            "name sessions, or use a filter such as --before 90d or --title TEXT; --all selects every one"
        )
    return await memory.choose_sessions(wanted)
