"""What happens to each line of the journal when rows are erased for good, and when it is compacted. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from stores.errors import InvalidValue
from stores.events import Event, parse_event
from stores.json_lines import encode, record_of
from stores.observation import Observation
from stores.records import format_time

Change = Callable[[bytes], bytes | None]
"""From a line to what is left of it, or None."""
_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_COUNTING = re.compile(rb'"event":"(?:use|counts|consolidate)"')


def erasing(gone: Collection[str], at: datetime, *, who: str = "", why: str = "") -> Change:
    """Leaves nothing of the rows in `gone` but their ids, in the place where each was added: rows keep their numbers.

    A line that cannot be read goes if it names one of them.
    """
    marks = {each.encode() for each in gone}
    purge = Event(kind="purge", at=at, who=who, why=why)
    added: set[str] = set()

    def change(line: bytes) -> bytes | None:
        if marks.isdisjoint(_ID.findall(line)):
            return line
        try:
            event = parse_event(record_of(line))
        except InvalidValue:
            return None
        if event.row is not None and event.row.id in gone:
            if event.row.id in added:
                return None  # the id was used twice, and only the first row has a number
            added.add(event.row.id)
        return _without(event, gone, purge, line)

    return change


def without_counts(line: bytes) -> bytes | None:
    """Drops the lines that only count; uses and strength are written again in a line for each row."""
    if not _COUNTING.search(line):
        return line
    try:
        event = parse_event(record_of(line))
    except InvalidValue:
        return line
    return None if event.kind in {"use", "counts", "consolidate"} else line


def counts(rows: Iterable[Observation], at: datetime) -> list[Event]:
    """The lines that say how often each row was used so far, and how strong it is."""
    return [Event(kind="counts", at=at, ids=(row.id,), fields=_counts(row)) for row in rows]


def _counts(row: Observation) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if row.use_count:
        fields["use_count"] = row.use_count
    if row.last_used_at is not None:
        fields["last_used_at"] = format_time(row.last_used_at)
    if row.consolidated_at is not None:
        fields["strength"] = row.strength
        fields["consolidated_at"] = format_time(row.consolidated_at)
        fields["consolidated_touches"] = row.consolidated_touches
    return fields


def _without(event: Event, gone: Collection[str], purge: Event, line: bytes) -> bytes | None:
    if event.row is not None:
        if event.row.id not in gone:
            return line  # it only refers to one of them, by its id
        along = {name: getattr(event, name) for name in ("compresses", "supersedes", "forgets")}
        rest = replace(purge, ids=(event.row.id,), **along)
        return encode(rest.as_json()).rstrip(b"\n")
    if event.triple is not None:
        return None if event.triple.source in gone or event.triple.id in gone else line
    left = tuple(each for each in event.ids if each not in gone)
    if len(left) == len(event.ids) or event.kind == "purge":
        return line
    return encode(replace(event, ids=left).as_json()).rstrip(b"\n") if left else None
