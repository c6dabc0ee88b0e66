"""`chatbot sessions` and `chatbot projects`: their verbs, and what they print."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chatbot.cli.bind import OF_OPERATIONS, OF_SESSIONS
from chatbot.cli.memory.command import VerbRun, run_operation
from chatbot.cli.output import SESSION_HEAD, printable, progress, say, say_hit, say_table, session_rows
from chatbot.memory import SessionRecord
from chatbot.operations import Entries
from chatbot.options import Options, Setup
from chatbot.stores.records import format_time

if TYPE_CHECKING:
    from chatbot.memory.session_search import SessionHit


async def run(args: argparse.Namespace) -> None:
    """Do one of them. Needs no model."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    name = getattr(args, "operation", "")
    own = OF_OPERATIONS.get(name) if name else OF_SESSIONS[args.action]
    async with setup.open_memory(observations=setup.observations) as memory:
        if own:
            await own(VerbRun(args, setup, memory))
        else:
            with progress("reading sessions", waits=True) as told:
                await run_operation(VerbRun(args, setup, memory, progress=told), name)


def say_sessions(records: Sequence[SessionRecord]) -> None:
    """A table of sessions."""
    say_table(SESSION_HEAD, session_rows(records))


def say_found(hits: Sequence[SessionHit]) -> None:
    """Sessions that speak of something, each with the command that goes on with it."""
    for hit in hits:
        say_hit(hit, f"chatbot -r {hit.record.id}")


def say_entries(read: Entries) -> None:
    """Print the entries, each with its number."""
    marked = f" · {read.session.sensitivity}" if read.session.sensitivity != "public" else ""
    say(f"# {printable(read.session.title) or 'untitled'}\n{read.session.id}{marked}")
    for number, entry in enumerate(read.rows, read.first):
        say(f"\n### {number} {entry.role} — {format_time(entry.at)}\n\n{printable(entry.content)}")


def entries_json(read: Entries) -> list[dict[str, Any]]:
    """The entries as JSON, each with its number."""
    return [
        {"number": number, "role": entry.role, "at": format_time(entry.at), "content": entry.content}
        for number, entry in enumerate(read.rows, read.first)
    ]
