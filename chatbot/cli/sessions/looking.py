"""Looking at sessions: nothing here changes any."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chatbot.cli.output import (
    SESSION_HEAD,
    age,
    printable,
    progress,
    say,
    say_json,
    say_marked,
    say_table,
    session_rows,
)
from chatbot.cli.paging import page_of, reach
from chatbot.cli.sessions.filtering import filter_of
from chatbot.memory import MemorySystem
from chatbot.stores.records import TranscriptEntry, format_time

if TYPE_CHECKING:
    from chatbot.memory.session_search import SessionHit


async def list_(memory: MemorySystem, args: argparse.Namespace) -> None:
    """A page of sessions, and how to ask for the next."""
    wanted = filter_of(args)
    if args.page_after is not None:
        wanted = replace(wanted, behind=(await memory.find_session(args.page_after)).id)
    more = None if wanted.limit is None else wanted.limit + 1
    records = await memory.choose_sessions(replace(wanted, limit=more))
    page = records[: wanted.limit]
    if args.json:
        say_json([record.as_json() for record in page])
    elif page:
        say_table(SESSION_HEAD, session_rows(page))
    else:
        say("that is all" if wanted.behind else "no sessions yet" if wanted.is_open else "no such sessions")
    if len(records) > len(page) and not args.json:
        say(f"more: --page-after {page[-1].id}")


async def show(memory: MemorySystem, args: argparse.Namespace) -> None:
    """What was said, each entry with its number."""
    session = await memory.load_session((await memory.find_session(args.session)).id, any_agent=True)
    entries = list(enumerate(await session.transcript_read_all(), 1))
    entries = entries[-args.last :] if args.last else entries
    if args.json:
        say_json(session.record.as_json() | {"entries": [_told(entry, number) for number, entry in entries]})
        return
    say(f"# {printable(session.record.title) or 'untitled'}\n{session.id}")
    for number, entry in entries:
        say(f"\n{_headed(entry, number)}\n\n{printable(entry.content)}")


async def search(memory: MemorySystem, args: argparse.Namespace) -> None:
    """The best sessions first, each with the line that says it and how to go on."""
    wanted = filter_of(args)
    with progress("reading sessions", waits=True) as told:
        hits = await memory.search_sessions(
            " ".join(args.text), limit=reach(args), wanted=replace(wanted, limit=None), progress=told
        )
    page, more = page_of(hits, args)
    if args.json:
        say_json([hit.as_json() for hit in page])
        return
    for hit in page:
        say_hit(hit, f"chatbot -r {hit.record.id}")
    if more or not page:
        say(more or ("that is all" if hits else "no session speaks of that"))


async def compare(memory: MemorySystem, args: argparse.Namespace) -> None:
    """The common beginning in a line, then what follows it in each."""
    left, right = [await memory.find_session(text) for text in (args.left, args.right)]
    compared = await memory.compare_sessions(left.id, right.id)
    parts = ((left, compared.left), (right, compared.right))
    if args.json:
        say_json(
            {
                "sessions": [left.as_json(), right.as_json()],
                "common": compared.common,
                "left": _numbered(compared.left, compared.common),
                "right": _numbered(compared.right, compared.common),
            }
        )
        return
    say(f"the first {compared.common} entries are the same")
    for mark, (record, entries) in zip("<>", parts, strict=True):
        say(f"\n{mark} {record.id} {printable(record.title)}: {len(entries)} more")
        for number, entry in enumerate(entries, compared.common + 1):
            said = f"{_headed(entry, number)}\n{printable(entry.content)}"
            say("\n".join(f"{mark} {line}" for line in said.splitlines()))


def say_hit(hit: SessionHit, command: str) -> None:
    """A session that speaks of something, with the line that says it and the command that goes on with it."""
    record = hit.record
    where = f"entry {hit.number}, {hit.role}" if hit.number else hit.role
    archived = ", archived" if record.archived_at else ""
    say_marked(f"{record.title or 'untitled'} ({age(record.used_at)}{archived})")
    say_marked(f"{where}: {hit.line}", [(a + len(where) + 2, b + len(where) + 2) for a, b in hit.ranges], indent="  ")
    say(f"  {command}\n")


def _numbered(entries: Sequence[TranscriptEntry], common: int) -> list[dict[str, Any]]:
    return [_told(entry, number) for number, entry in enumerate(entries, common + 1)]


def _told(entry: TranscriptEntry, number: int) -> dict[str, Any]:
    return {"number": number, "role": entry.role, "at": format_time(entry.at), "content": entry.content}


def _headed(entry: TranscriptEntry, number: int) -> str:
    return f"### {number} {entry.role} — {format_time(entry.at)}"
