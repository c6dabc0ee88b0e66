"""Rewriting of the journal's lines when rows are erased permanently, and when it is compacted. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from chatbot.stores.errors import InvalidValue
from chatbot.stores.fields import MOST_COUNTED
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.log import Change, ErasedLine, Place
from chatbot.stores.records import parse_time
from chatbot.stores.row_events import Event, parse_event

_GATHERED = 1_000
"""Number of erased rows listed in one line."""
_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_COUNTS = frozenset({"use", "counts", "consolidate"})
_KIND = re.compile(rb'\{"v":1,"event":"([a-z]+)"')
_MENTION = re.compile(rb'\{"v":1,"event":"mention","at":"[^"]*","id":"([^"]*)"')
_REPLACING = re.compile(rb'"(?:supersedes|forgets|compresses)"\s*:')
_ADDING = re.compile(rb'\{"v":1,"event":"add","at":"[^"]*","row":\{"id":"([^"]*)"')


def rewritten(data: bytes, change: Change) -> tuple[bytes, dict[int, Place]]:
    """The lines that `change` makes of those of `data`; where each that is left stands now, by its old start.

    Rows that were erased in one go are told of in one line, where the first of them was added: its `gaps` tell what
    stood between them, so all rows keep their order and numbers. Of lines that only say that something was said again,
    the last stands for those before it.
    """
    found: list[tuple[int, bytes | list[ErasedLine]]] = []
    erased: list[ErasedLine] = []
    begin = 0
    olds = data.split(b"\n")[:-1]
    mentions = _mentions(olds)
    for at, old in enumerate(olds):
        again = mentions.get(at, old)
        new = None if again is None else change(again, begin)
        if isinstance(new, ErasedLine):
            if not erased or len(erased) == _GATHERED:
                erased = []
                found.append((begin, erased))
            erased.append(new)
        elif new is not None:
            found.append((begin, new + b"\n"))
        begin += len(old) + 1
    lines: list[bytes] = []
    moved: dict[int, Place] = {}
    size = 0
    for begin, part in found:
        if isinstance(part, bytes):
            moved[begin] = (size, len(part) - 1)
        lines.append(part if isinstance(part, bytes) else _gathered(part))
        size += len(lines[-1])
    return b"".join(lines), moved


def _mentions(lines: Sequence[bytes]) -> dict[int, bytes | None]:
    """Return the new lines of repeated mentions by their places: of a row's, only the last is left, with a count."""
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    for at, line in enumerate(lines):
        if named := _MENTION.match(line):
            places[named[1]].append(at)
    became: dict[int, bytes | None] = {}
    for row_id, ats in places.items():
        found = [(at, event) for at in ats if (event := _mention(lines[at], row_id))] if len(ats) > 1 else []
        times = sum(event.times for _, event in found)
        if len(found) > 1 and times < MOST_COUNTED:
            at, last = found[-1]
            became |= dict.fromkeys(each for each, _ in found)
            became[at] = encode(replace(last, times=times).as_json()).rstrip(b"\n")
    return became


def _mention(line: bytes, row_id: bytes) -> Event | None:
    """The event, if it says that of the row and nothing more."""
    try:
        event = parse_event(record_of(line))
    except InvalidValue:
        return None
    says_it_alone = [each.encode() for each in event.ids] == [row_id] and not (event.fields or event.why)
    return event if says_it_alone else None


def _gathered(erased: Sequence[ErasedLine]) -> bytes:
    """The line that tells of all of them."""
    first = erased[0]
    gaps = tuple(each.number - first.number for each in erased)
    ids = tuple(each.id for each in erased)
    return encode(replace(first.purge, ids=ids, gaps=() if gaps == tuple(range(len(gaps))) else gaps).as_json())


def erasing(
    gone: Mapping[int, tuple[int, str]],
    at: datetime,
    *,
    who: str = "",
    why: str = "",
    facts: Collection[str] = (),
    before: Collection[str] = (),
) -> Change:
    """Leaves nothing of the rows in `gone` but their ids and numbers.

    `gone` tells where the line of each began, with its number and id. A line that cannot be read goes if it names one
    of them. Of `facts` nothing is left. Of what was erased `before`, and of those, nothing has to be told any more.
    """
    erased = {*(each for _, each in gone.values()), *facts}
    past = erased.union(before)
    marks = {each.encode() for each in erased}
    purge = Event(kind="purge", at=at, who=who, why=why)

    def change(line: bytes, begin: int) -> bytes | ErasedLine | None:
        if begin in gone:
            number, row_id = gone[begin]
            record = record_of(line) if _REPLACING.search(line) else {}
            if along := _told_along(record, past):  # since the time of the line: what it replaced held no longer
                at = parse_time(record["at"])
                return encode(replace(purge, at=at, ids=(row_id,), **along).as_json()).rstrip(b"\n")
            return ErasedLine(number, row_id, purge)
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

    def without(line: bytes, begin: int) -> bytes | ErasedLine | None:
        return None if _is_count(line) else change(line, begin)

    return without


def _is_count(line: bytes) -> bool:
    if plain := _KIND.match(line):
        return plain[1].decode() in _COUNTS
    try:
        return record_of(line).get("event") in _COUNTS
    except InvalidValue:
        return False


def _told_along(record: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
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
