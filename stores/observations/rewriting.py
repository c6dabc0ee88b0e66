"""Rewriting of the journal's lines when rows are erased permanently, and when it is compacted. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from chatbot.stores.errors import InvalidValue
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.log import Change, Place
from chatbot.stores.records import parse_time
from chatbot.stores.row_events import Event, parse_event

_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_COUNTS = frozenset({"use", "counts", "consolidate"})
_KIND = re.compile(rb'\{"v":1,"event":"([a-z]+)"')
_REPLACING = re.compile(rb'"(?:supersedes|forgets|compresses)"\s*:')
_ADDING = re.compile(rb'\{"v":1,"event":"add","at":"[^"]*","row":\{"id":"([^"]*)"')


def rewritten(data: bytes, change: Change) -> tuple[bytes, dict[int, Place]]:
    """Return the lines that `change` makes of those of `data`, and the new place of each by its old start."""
    lines: list[bytes] = []
    moved: dict[int, Place] = {}
    begin = size = 0
    for old in data.split(b"\n")[:-1]:
        new = change(old, begin)
        if new is not None:
            moved[begin] = (size, len(new))
            lines.append(new + b"\n")
            size += len(lines[-1])
        begin += len(old) + 1
    return b"".join(lines), moved


def erasing(
    gone: Mapping[int, str],
    at: datetime,
    *,
    who: str = "",
    why: str = "",
    facts: Collection[str] = (),
    before: Collection[str] = (),
) -> Change:
    """Leave nothing of `facts`, and of the rows in `gone` only their ids, each in place of the line that added it.

    `gone` has the id of each row by the start of that line. A line that cannot be read goes if it names one of them.
    Rows that these replaced stay replaced, but those that were erased `before` are not named any more.
    """
    erased = {*gone.values(), *facts}
    past = erased.union(before)
    marks = {each.encode() for each in erased}
    purge = Event(kind="purge", at=at, who=who, why=why)

    def change(line: bytes, begin: int) -> bytes | None:
        if begin in gone:
            record = record_of(line) if _REPLACING.search(line) else {}
            along = _replaced(record, past)
            since = parse_time(record["at"]) if along else at  # from then on what it replaced was outdated
            return encode(replace(purge, at=since, ids=(gone[begin],), **along).as_json()).rstrip(b"\n")
        other = _ADDING.match(line)
        if marks.isdisjoint(other.groups() if other else _ID.findall(line)):
            return line
        try:
            return _without(parse_event(record_of(line)), erased, line)
        except InvalidValue:
            return None

    return change


def uncounted(change: Change) -> Change:
    """Drop the lines that only count as well: uses and strength are written again, in few lines."""

    def without(line: bytes, begin: int) -> bytes | None:
        return None if _is_count(line) else change(line, begin)

    return without


def _is_count(line: bytes) -> bool:
    if plain := _KIND.match(line):
        return plain[1].decode() in _COUNTS
    try:
        return record_of(line).get("event") in _COUNTS
    except InvalidValue:
        return False


def _replaced(record: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """Return the existing rows that the row of a line replaced, by field of the line."""
    along = {name: each for name in ("supersedes", "forgets") if (each := record.get(name)) and each not in gone}
    if compresses := tuple(each for each in record.get("compresses", ()) if each not in gone):
        along["compresses"] = compresses
    return along


def _without(event: Event, gone: Collection[str], line: bytes) -> bytes | None:
    if event.row is not None:
        return None if event.row.id in gone else line  # an id used twice; or one of them is only referred to
    if event.triple is not None:
        return None if event.triple.source in gone or event.triple.id in gone else line
    if event.kind == "purge":
        compresses = tuple(each for each in event.compresses if each not in gone)
        return encode(replace(event, compresses=compresses).as_json()).rstrip(b"\n")
    left = tuple(each for each in event.ids if each not in gone)
    if len(left) == len(event.ids):
        return line
    return encode(replace(event, ids=left).as_json()).rstrip(b"\n") if left else None
