"""What happens to each line of the journal when rows are erased for good, and when it is compacted. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from stores.errors import InvalidValue
from stores.events import Event, parse_event
from stores.json_lines import encode, record_of
from stores.observations.table import Place

Change = Callable[[bytes, int], "bytes | Event | None"]
"""From a line, and where it began, to what is left of it.

That may be nothing, or an event that says so, to be gathered with others like it.
"""
_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_COUNTING = re.compile(rb'"event":"(?:use|counts|consolidate)"')
_ADDED = b'{"v":1,"event":"add",'
_ADDING = re.compile(rb'\{"v":1,"event":"add","at":"[^"]*","row":\{"id":"([^"]*)"')


def rewritten(data: bytes, change: Change) -> tuple[bytes, dict[int, Place]]:
    """The lines that `change` makes of those of `data`; where each that is left stands now, by its old start.

    Rows that stood in a row and were erased in one go are told of in one line: they keep their order and numbers.
    """
    lines: list[bytes] = []
    moved: dict[int, Place] = {}
    erased: list[Event] = []
    begin = size = 0
    for old in data.split(b"\n")[:-1]:
        new = change(old, begin)
        if isinstance(new, Event):
            erased.append(new)
        elif new is not None:
            if erased and (b'"add"' in new or b'"purge"' in new):
                size += _gather(erased, lines)
            moved[begin] = (size, len(new))
            lines.append(new + b"\n")
            size += len(new) + 1
        begin += len(old) + 1
    _gather(erased, lines)
    return b"".join(lines), moved


def _gather(erased: list[Event], lines: list[bytes]) -> int:
    """Add the line that tells of all of them; its size."""
    if not erased:
        return 0
    ids = tuple(each for event in erased for each in event.ids)
    lines.append(encode(replace(erased[0], ids=ids).as_json()))
    erased.clear()
    return len(lines[-1])


def erasing(
    gone: Mapping[str, int], at: datetime, *, who: str = "", why: str = "", facts: Collection[str] = ()
) -> Change:
    """Leaves nothing of the rows in `gone` but their ids, in the place where each was added: rows keep their numbers.

    `gone` tells where the line of each began. A line that cannot be read goes if it names one of them. Of `facts`
    nothing is left.
    """
    erased = {*gone, *facts}
    marks = {each.encode() for each in erased}
    added = {begin: each for each, begin in gone.items()}
    purge = Event(kind="purge", at=at, who=who, why=why)

    def change(line: bytes, begin: int) -> bytes | Event | None:
        if begin in added:
            return _tombstone(replace(purge, ids=(added[begin],)), record_of(line))
        other = _ADDING.match(line)
        if marks.isdisjoint(other.groups() if other else _ID.findall(line)):
            return line
        try:
            return _without(parse_event(record_of(line)), erased, line)
        except InvalidValue:
            return None

    return change


def uncounted(change: Change) -> Change:
    """Drops the lines that only count as well; uses and strength are written again, in few lines."""

    def without(line: bytes, begin: int) -> bytes | Event | None:
        return None if not line.startswith(_ADDED) and _is_count(line) else change(line, begin)

    return without


def _is_count(line: bytes) -> bool:
    if not _COUNTING.search(line):
        return False
    try:
        return record_of(line).get("event") in {"use", "counts", "consolidate"}
    except InvalidValue:
        return False


def _tombstone(purge: Event, record: Mapping[str, Any]) -> bytes | Event:
    """What is left of the line that added a row; one that took the place of others still says so, in its own line."""
    along = {name: record[name] for name in ("supersedes", "forgets") if record.get(name)}
    if record.get("compresses"):
        along["compresses"] = tuple(record["compresses"])
    return encode(replace(purge, **along).as_json()).rstrip(b"\n") if along else purge


def _without(event: Event, gone: Collection[str], line: bytes) -> bytes | None:
    if event.row is not None:
        return None if event.row.id in gone else line  # an id used twice; or one of them is only referred to
    if event.triple is not None:
        return None if event.triple.source in gone or event.triple.id in gone else line
    left = tuple(each for each in event.ids if each not in gone)
    if len(left) == len(event.ids) or event.kind == "purge":
        return line
    return encode(replace(event, ids=left).as_json()).rstrip(b"\n") if left else None
