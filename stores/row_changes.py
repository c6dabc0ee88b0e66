"""Changes of the rows that a caller may see, from a position on: one rule for every observation store. Pure.

A change is told under the rule of history: the row was visible before and after it, and is visible now. Nothing that is
told, the positions included, depends on any other row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from chatbot.stores.access import View
from chatbot.stores.errors import InvalidValue
from chatbot.stores.history import told
from chatbot.stores.observation import Observation
from chatbot.stores.records import micros
from chatbot.stores.row_events import Event, Kind

Key: TypeAlias = tuple[int, int]
"""Place of a change among all: that of its line, and the number of the row."""
BEGINNING: Key = (-1, -1)
_FORM = re.compile(r"(\d{1,16})(?:~([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:~(\d{1,6}))?)?", re.ASCII)
_LATE_US = 60_000_000
"""How long a change may take from its time to the log, and how far the clocks of machines are apart."""
_MS_US = 1_000
_MOST_OLDER = 256
"""Lines of an earlier time after which those before them are taken to be as old: an import may keep times and ids."""


@dataclass(frozen=True, slots=True)
class Position:
    """A change by its time and its row, or a time alone; 0 is before everything. It means the same to every store."""

    at: int
    """In microseconds since 1970."""
    id: str = ""
    nth: int = 0
    """Which of the row's changes at that very time it is."""

    def __str__(self) -> str:
        return "~".join([str(self.at), *([self.id] if self.id else []), *([str(self.nth)] if self.nth else [])])

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read what `str` wrote. Raises `InvalidValue`."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise InvalidValue(
                f"{text!r:.80} is not a position: use one that came with a change, or 0 for the beginning"
            )
        return cls(int(found[1]), found[2] or "", int(found[3] or 0))


@dataclass(frozen=True, slots=True)
class ChangeCursor:
    """How far a reader is in an open store. Not for callers: it tells of rows that they may not know."""

    log: object
    """Identity of the log, which a rewrite changes."""
    key: Key
    rows: int
    """Number of rows ever added up to there."""
    position: Position
    """The last change that the caller may know, which a rewritten log may still hold."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row."""

    kind: Kind
    at: datetime
    row: Observation
    """The row as it is now, so that a reader who is late does not write old values."""
    position: Position


@dataclass(frozen=True, slots=True)
class Changes:
    """Some changes in the order in which they were made, and where the next ones begin."""

    items: tuple[Change, ...]
    reached: ChangeCursor
    is_all: bool
    """True if nothing more has happened yet."""


Line: TypeAlias = tuple[Key, str]
"""Place of a change, and the id of the row."""
History: TypeAlias = Sequence[tuple[Key, Event]]
"""The changes of a row, oldest first."""


def told_from(
    lines: Iterable[Line],
    history_of: Callable[[str], History],
    row_of: Callable[[str], Observation],
    view: View,
    *,
    limit: int,
) -> tuple[list[Change], Key | None]:
    """Return the first changes that the caller may know, and the place of the last line looked at, if any.

    `lines` are in order, and of rows that are visible now.
    """
    found: list[Change] = []
    known: dict[str, Mapping[Key, tuple[Event, Position]]] = {}
    last: Key | None = None
    for key, row_id in lines:
        if len(found) == limit:
            return found, last
        if row_id not in known:
            known[row_id] = _known(row_id, history_of(row_id), view)
        if key in known[row_id]:
            event, position = known[row_id][key]
            found.append(Change(event.kind, event.at, row_of(row_id), position))
        last = key
    return found, last


def place_of(position: Position, history: History) -> Key | None:
    """Return the place of the change of this row, or of the one before it where that is gone; None for neither."""
    same = [key for key, event in history if micros(event.at) == position.at]
    if position.nth < len(same):
        return same[position.nth]
    return max((key for key, event in history if micros(event.at) <= position.at), default=None)


def before_time(at: int, lines: Iterable[Line], history_of: Callable[[str], History]) -> Key | None:
    """Return the place before the first change that may have been written at that time or later; None for no such.

    `lines` are those of all visible rows, the newest first; it reads little further back than it must. What was written
    a little before is told again rather than lost.
    """
    first: Key | None = None
    older = 0
    for key, row_id in lines:
        history = history_of(row_id)
        event = next(event for place, event in history if place == key)
        if max(micros(event.at), _made_at(row_id) if key == history[0][0] else 0) >= at - _LATE_US:
            first, older = (key[0], key[1] - 1), 0
        elif (older := older + 1) > _MOST_OLDER:
            break
    return first


def newest(lines: Iterable[Line], history_of: Callable[[str], History], view: View) -> Position:
    """Return the position of the last change that the caller may know. `lines` are as in `before_time`."""
    for key, row_id in lines:
        known = _known(row_id, history_of(row_id), view)
        if key in known:
            return known[key][1]
    return Position(0)


def _made_at(row_id: str) -> int:
    """Return the time in a UUIDv7; 0 for other ids."""
    uuid = UUID(row_id)
    return (uuid.int >> 80) * _MS_US if uuid.version == 7 else 0


def _known(row_id: str, history: History, view: View) -> dict[Key, tuple[Event, Position]]:
    events = [event for _, event in history]
    seen: dict[int, int] = {}
    found = {}
    for (key, event), is_told in zip(history, told(events, view), strict=True):
        at = micros(event.at)
        nth = seen[at] = seen.get(at, -1) + 1
        if is_told:
            found[key] = (event, Position(at, row_id, nth))
    return found
