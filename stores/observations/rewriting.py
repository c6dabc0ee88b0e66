"""What happens to each line of the journal when rows are erased for good, and when it is compacted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime

from stores.errors import InvalidValue
from stores.events import Event, parse_event
from stores.json_lines import encode, record_of
from stores.observation import Observation
from stores.records import format_time

Change = Callable[[bytes], bytes | None]
"""From a line to what is left of it, or None."""


def erasing(gone: Collection[str], at: datetime) -> Change:
    """Leaves nothing of the rows in `gone` but their ids, in the place where each was added: rows keep their numbers.

    A line that cannot be read goes if it names one of them.
    """
    marks = [each.encode() for each in gone]
    added: set[str] = set()

    def change(line: bytes) -> bytes | None:
        if not any(mark in line for mark in marks):
            return line
        try:
            event = parse_event(record_of(line))
        except InvalidValue:
            return None
        if event.row is not None and event.row.id in gone:
            if event.row.id in added:
                return None  # the id was used twice, and only the first row has a number
            added.add(event.row.id)
        return _without(event, gone, at, line)

    return change


def without_uses(line: bytes) -> bytes | None:
    """Drops the lines that only count uses; the counts are written again in a line for each row."""
    if b'"event":"use"' not in line and b'"event":"counts"' not in line:
        return line
    try:
        event = parse_event(record_of(line))
    except InvalidValue:
        return line
    return None if event.kind in {"use", "counts"} else line


def counts(rows: Iterable[Observation], at: datetime) -> list[Event]:
    """The lines that say how often each row was used so far."""
    return [
        Event(
            kind="counts",
            at=at,
            ids=(row.id,),
            fields={"use_count": row.use_count, "last_used_at": format_time(row.last_used_at or at)},
        )
        for row in rows
    ]


def _without(event: Event, gone: Collection[str], at: datetime, line: bytes) -> bytes | None:
    if event.row is not None:
        if event.row.id not in gone:
            return line  # it only refers to one of them, by its id
        return encode(Event(kind="purge", at=at, ids=(event.row.id,)).as_json()).rstrip(b"\n")
    if event.triple is not None:
        return None if event.triple.source in gone else line
    left = tuple(each for each in event.ids if each not in gone)
    if len(left) == len(event.ids) or event.kind == "purge":
        return line
    return encode(replace(event, ids=left).as_json()).rstrip(b"\n") if left else None
