"""Putting sessions away, and erasing them: many at once, so each can be tried dry, and is asked about."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from chatbot.cli.output import SESSION_HEAD, check_can_ask, is_sure, say, say_json, say_table, session_rows, warn
from chatbot.cli.sessions.filtering import chosen, filter_of
from chatbot.errors import SessionNotFound
from chatbot.memory import MemorySystem, SessionRecord
from stores.errors import InvalidValue


async def archive(memory: MemorySystem, args: argparse.Namespace) -> None:
    """Put them away, or bring them back. Nothing is lost by it, so only many are asked about."""
    if args.undo and args.is_archived is False:
        args.is_archived = True
    records = [record for record in await chosen(memory, args) if (record.archived_at is not None) == args.undo]
    what = "bring back" if args.undo else "archive"
    if len(records) > 1:
        _agree(records, args, what.replace("bring", "bringing").replace("archive", "archiving"), f"{what} these?")
    for record in () if args.dry_run else records:
        await memory.archive_session(record.id, undo=args.undo)
    _tell("restored" if args.undo else "archived", records, args)


async def delete(memory: MemorySystem, args: argparse.Namespace) -> None:
    """Erase them, once that is agreed to."""
    await _erase(memory, await chosen(memory, args), args)


async def prune(memory: MemorySystem, args: argparse.Namespace) -> None:
    """Erase what is past its time; or, with a filter, what fits that."""
    wanted = filter_of(args)
    if not wanted.is_open or args.limit:
        await _erase(memory, await memory.choose_sessions(wanted), args)
        return
    expired = await memory.expired_sessions()
    if not args.dry_run:
        await memory.expire_sessions()
    _tell("deleted", expired, args)


async def _erase(memory: MemorySystem, records: Sequence[SessionRecord], args: argparse.Namespace) -> None:
    if records:
        _agree(records, args, "deleting", "erase for good?")
    gone = []
    for record in records:
        try:
            if not args.dry_run:
                await memory.delete_session(record.id)
            gone.append(record)
        except SessionNotFound:
            warn(f"{record.id} was deleted meanwhile")
    _tell("deleted", gone, args)


def _agree(records: Sequence[SessionRecord], args: argparse.Namespace, doing: str, question: str) -> None:
    """Show what it is about, and ask. Raises `InvalidValue` unless the answer is yes, or nothing is to be done."""
    if args.yes or args.dry_run:
        return
    check_can_ask(f"{doing} {len(records)} session{'s' * (len(records) > 1)}")
    say_table(SESSION_HEAD, session_rows(records), aside=True)
    if not is_sure(question):
        raise InvalidValue("nothing was changed")


_WORDS = {"deleted": "erased", "archived": "archived", "restored": "brought back"}


def _tell(what: str, records: Sequence[SessionRecord], args: argparse.Namespace) -> None:
    if args.json:
        say_json({what: [record.id for record in records], "dry_run": args.dry_run})
        return
    would = "would be " if args.dry_run else ""
    for record in records:
        say(f"{would}{_WORDS[what]} {record.id}")
    if not records:
        say("nothing to erase" if what == "deleted" else "nothing to change")
