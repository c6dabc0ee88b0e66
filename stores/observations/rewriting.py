"""What happens to each line of the journal when rows are erased for good, and when it is compacted. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime

from stores.errors import InvalidValue
from stores.events import Event, parse_event
from stores.json_lines import encode, record_of
from stores.observations.table import Place

Change = Callable[[bytes], "bytes | Event | None"]
"""From a line to what is left of it: nothing, or an event that says so, to be gathered with others like it."""
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
        new = change(old)
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


def erasing(gone: Collection[str], at: datetime, *, who: str = "", why: str = "") -> Change:
    """Leaves nothing of the rows in `gone` but their ids, in the place where each was added: rows keep their numbers.

    A line that cannot be read goes if it names one of them.
    """
    marks = {each.encode() for each in gone}
    purge = Event(kind="purge", at=at, who=who, why=why)
    added: set[str] = set()

    def change(line: bytes) -> bytes | Event | None:
        other = _ADDING.match(line)
        if marks.isdisjoint(other.groups() if other else _ID.findall(line)):
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


def uncounted(change: Change) -> Change:
    """Drops the lines that only count as well; uses and strength are written again, in few lines."""

    def without(line: bytes) -> bytes | Event | None:
        return None if not line.startswith(_ADDED) and _is_count(line) else change(line)

    return without


def _is_count(line: bytes) -> bool:
    if not _COUNTING.search(line):
        return False
    try:
        return record_of(line).get("event") in {"use", "counts", "consolidate"}
    except InvalidValue:
        return False


def _without(event: Event, gone: Collection[str], purge: Event, line: bytes) -> bytes | Event | None:
    if event.row is not None:
        if event.row.id not in gone:
            return line  # it only refers to one of them, by its id
        rest = replace(purge, ids=(event.row.id,), compresses=event.compresses, supersedes=event.supersedes)
        stands_for_others = event.compresses or event.supersedes is not None
        return encode(rest.as_json()).rstrip(b"\n") if stands_for_others else rest
    if event.triple is not None:
        return None if event.triple.source in gone else line
    left = tuple(each for each in event.ids if each not in gone)
    if len(left) == len(event.ids) or event.kind == "purge":
        return line
    return encode(replace(event, ids=left).as_json()).rstrip(b"\n") if left else None
