"""Changing what is remembered."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from chatbot.cli.memory.desk import Desk, warn_redacted
from chatbot.cli.memory.tables import say_observations
from chatbot.cli.output import check_can_ask, is_sure, say, say_json, say_marked, warn
from chatbot.cli.repl.editor import edited
from chatbot.memory.writing import Remembered
from stores.access import SENSITIVITIES
from stores.errors import InvalidValue
from stores.events import made_from
from stores.observation import STATUSES, Observation
from stores.query import status_now
from stores.records import format_time

_LISTS = {"fact": "facts", "tag": "tags", "concept": "concepts", "person": "people", "file": "files_read"}
_SINGLE = (
    "title",
    "subtitle",
    "narrative",
    "type",
    "subject",
    "category",
    "project",
    "importance",
    "visibility",
    "sensitivity",
)
_BECAME = {
    "added": "added {}",
    "exact_dup": "the same was remembered before: {}",
    "updated": "changed {}",
    "deleted": "deleted {}",
    "skipped": "nothing to change in {}",
}


async def add(desk: Desk) -> None:
    """Remember something, and say what became of it."""
    fields = _fields(desk, read_stdin=desk.args.stdin == "-")
    if desk.args.supersedes:
        fields["supersedes"] = await desk.id(desk.args.supersedes)
    _tell(desk, await desk.memories.remember(**fields, source="user"))


async def edit(desk: Desk) -> None:
    """Set the fields that are given; without any, let the narrative be edited."""
    found = await desk.id(desk.args.id)
    fields = _fields(desk)
    if not fields:
        fields = {"narrative": await _edited(desk, found)}
    if "expires_at" in fields and fields["expires_at"] is not None:
        fields["expires_at"] = format_time(fields["expires_at"])
    _tell(desk, await desk.memories.update(found, **fields))


async def supersede(desk: Desk) -> None:
    """Let one take the place of another."""
    old, new = await desk.id(desk.args.old), await desk.id(desk.args.new)
    await desk.memories.supersede(old, new)
    desk.tell({"superseded": old, "by": new}, f"{new} took the place of {old}")


async def confirm(desk: Desk) -> None:
    """Vouch for observations."""
    ids = await _those(desk, "confirm", lambda status: status == "active")
    if ids:
        await desk.memories.confirm(*ids)
    _tell_each(desk, "confirmed", ids)


async def forget(desk: Desk) -> None:
    """Take observations out of memory; several once that is agreed to, where there is somebody to ask."""
    args = desk.args
    ids = await _those(desk, "forget", lambda status: status != "deleted")
    if len(ids) > 1 and not (args.yes or args.dry_run) and sys.stdin.isatty():
        say_observations([await desk.row(each) for each in ids])
        if not is_sure("forget these? restore brings them back;"):
            raise InvalidValue("nothing was forgotten")
    if ids and not args.dry_run:
        await desk.memories.forget(*ids)
    _tell_each(desk, "forgotten", ids, dry_run=args.dry_run)


async def restore(desk: Desk) -> None:
    """Bring observations back."""
    ids = await _those(desk, "restore", lambda status: status != "active")
    if ids:
        await desk.memories.restore(*ids)
    _tell_each(desk, "restored", ids)


async def purge(desk: Desk) -> None:
    """Erase for good, once that is agreed to."""
    args = desk.args
    if bool(args.ids) == args.expired:
        raise InvalidValue("name what is to be purged by its ids, or use --expired for all that is past its time")
    rows = await _rows(desk, ["expired"]) if args.expired else []
    ids = [row.id for row in rows] if args.expired else await desk.ids(args.ids)
    if not ids:
        desk.tell({"purged": [], "dry_run": args.dry_run}, "nothing to purge")
        return
    if args.dry_run:
        _tell_each(desk, "purged", [row.id for row in await _going(desk, ids)], dry_run=True)
        return
    if not args.yes:
        await _agree(desk, ids)
    gone = await (desk.memories.purge_expired() if args.expired else desk.memories.purge(*ids))
    if args.json:
        desk.tell({"purged": gone, "dry_run": False}, "")
        return
    for each in gone:
        say(f"purged {each}" + ("" if each in ids else ", which was derived from what was purged"))
    say_marked("what was said in sessions is still in their transcripts: `chatbot sessions delete` erases those")


async def _those(desk: Desk, verb: str, fits: Callable[[str], bool]) -> list[str]:
    """The ids on the command line to which `verb` can be done by their status; of the others we warn."""
    ids = []
    for each in await desk.ids(desk.args.ids):
        status = status_now(await desk.row(each), datetime.now(UTC))
        if fits(status):
            ids.append(each)
        else:
            warn(f"there is nothing to {verb}: {each} is {status}")
    return ids


async def _agree(desk: Desk, ids: Collection[str]) -> None:
    """Show all that would go, and ask. Raises `InvalidValue` unless the answer is yes."""
    check_can_ask("purging")
    going = await _going(desk, ids)
    say_observations(going)
    if derived := len(going) - len(ids):
        say(f"{derived} of these go too because they were derived from the others")
    if not is_sure("erase for good?"):
        raise InvalidValue("nothing was purged")


async def _going(desk: Desk, ids: Collection[str]) -> list[Observation]:
    """What would be purged with these: they, and all that was derived from them."""
    rows = await _rows(desk, STATUSES)
    made: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        for source in row.derived_from:
            made[source].append(row.id)
    going = {*ids, *made_from(ids, lambda each: made.get(each, ()))}
    return [row for row in rows if row.id in going]


async def _rows(desk: Desk, statuses: Collection[str]) -> list[Observation]:
    """Every observation of these statuses that the caller may see."""
    return await desk.memories.every(ask=SENSITIVITIES, statuses=list(statuses))


def _fields(desk: Desk, *, read_stdin: bool = False) -> dict[str, Any]:
    """The fields that stand on the command line."""
    args = desk.args
    fields = {name: value for name in _SINGLE if (value := getattr(args, name)) is not None}
    fields |= {field: value for name, field in _LISTS.items() if (value := getattr(args, name)) is not None}
    if args.meta:
        fields["metadata"] = dict(args.meta)
    if hasattr(args, "expires"):
        fields["expires_at"] = args.expires
    if read_stdin and args.narrative is not None:
        raise InvalidValue("there is a --narrative and a -: the narrative can only come from one of them")
    if read_stdin or args.narrative == "-":
        fields["narrative"] = sys.stdin.read().strip("\n")
    return fields


async def _edited(desk: Desk, observation_id: str) -> str:
    """The narrative after it went through the person's editor."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidValue("there is nothing to change: name a field, such as --title")
    return await asyncio.to_thread(edited, (await desk.row(observation_id)).narrative)


def _tell(desk: Desk, became: Remembered) -> None:
    if became.warning:
        warn(became.warning)
    warn_redacted(became.redacted)
    desk.tell(asdict(became), _BECAME[became.outcome].format(became.id))


def _tell_each(desk: Desk, what: str, ids: Collection[str], *, dry_run: bool | None = None) -> None:
    """Each id in a line, or all of them for programs, which are told of `dry_run` where there is such an option."""
    if desk.args.json:
        say_json({what: list(ids)} | ({} if dry_run is None else {"dry_run": dry_run}))
        return
    for each in ids:
        say(f"{'would be ' if dry_run else ''}{what} {each}")
