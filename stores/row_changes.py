"""History of the rows that a caller may see, and the feed of their changes: one rule for every observation store. Pure.

An event is visible if the row was visible before and after it, and is visible now: text written while the row was
hidden from a caller stays hidden, even if the row is visible today. Ids of hidden rows are removed from every result,
and no result, the positions of changes included, depends on a hidden row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from chatbot.stores.access import Guard, View, may_see
from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import WRITTEN_DEFAULTS, Observation, unchecked
from chatbot.stores.query import Version
from chatbot.stores.records import micros
from chatbot.stores.row_events import Event, Kind, applied

Sees = Callable[[str], bool]
"""Return True if the caller may know the observation with that id."""

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
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
    """How far a reader is in an open store. Not for callers: it contains places of hidden rows."""

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
    """The row as it is now, so that a late reader does not write old values."""
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


def naming(view: View, guard_of: Callable[[str], Guard | None]) -> Sees:
    """Return the ids that the caller may know, for any sensitivity that it may ask for.

    `guard_of` returns the guard of a row, or None if the row is gone: who could see it is unknown, so only full
    clearance gets its id.
    """
    everything = view.asking_all()

    def sees(observation_id: str) -> bool:
        guard = guard_of(observation_id)
        return view.clearance == "full" if guard is None else may_see(guard, everything)

    return sees


def shown(row: Observation, sees: Sees) -> Observation:
    """The row without the ids of hidden ones."""
    after, sources = row.superseded_by, row.derived_from
    hidden: dict[str, Any] = {}
    if after is not None and not sees(after):
        hidden["superseded_by"] = None
    if sources and not all(map(sees, sources)):
        hidden["derived_from"] = tuple(filter(sees, sources))
    return unchecked(row, **hidden) if hidden else row


def version(row: Observation, events: Sequence[Event], view: View, sees: Sees) -> Version:
    """Return a visible row with those of its events that are visible, the first of which added it."""
    seen: list[Event] = []
    changes: list[Mapping[str, tuple[Any, Any]]] = []
    for event, before, after in _steps(events):
        if _are_seen(before, after, view):
            seen.append(_shown_event(event, sees))
            changes.append(_changes(event, before, after, sees))
    return Version(shown(row, sees), tuple(seen), tuple(changes))


def _visibilities(events: Sequence[Event], view: View) -> list[bool]:
    """Return for each event of a row whether it is visible to the caller, who sees the row now."""
    return [_are_seen(before, after, view) for _, before, after in _steps(events)]


def _steps(events: Sequence[Event]) -> Iterator[tuple[Event, Observation | None, Observation | None]]:
    """Each event of a row, with the row before and after it."""
    before: Observation | None = None
    for event in events:
        after = event.row if before is None else applied(before, event)
        yield event, before, after
        before = after


def _are_seen(before: Observation | None, after: Observation | None, view: View) -> bool:
    return all(may_see(each, view) for each in (before, after) if each is not None)


def _changes(
    event: Event, before: Observation | None, after: Observation | None, sees: Sees
) -> dict[str, tuple[Any, Any]]:
    """The fields that the event changed, each with its value before and after, as they are written."""
    if before is None or after is None or not event.fields:
        return {}
    old, new = (_written(shown(row, sees), event.fields) for row in (before, after))
    return {name: (old[name], new[name]) for name in sorted(event.fields) if old[name] != new[name]}


def _written(row: Observation, names: Mapping[str, Any]) -> dict[str, Any]:
    line = row.as_json()
    return {name: line.get(name, WRITTEN_DEFAULTS.get(name)) for name in names}


def _shown_event(event: Event, sees: Sees) -> Event:
    single = {name: value for name in ("by", "supersedes", "forgets") if (value := getattr(event, name)) is not None}
    hidden: dict[str, Any] = {name: None for name, value in single.items() if not sees(value)}
    for name in ("ids", "compresses"):
        ids = getattr(event, name)
        if not all(map(sees, ids)):
            hidden[name] = tuple(filter(sees, ids))
    if not all(map(sees, _ID.findall(event.why))):
        hidden["why"] = ""
    if not all(map(sees, event.fields.get("derived_from", ()))):
        hidden["fields"] = {**event.fields, "derived_from": list(filter(sees, event.fields["derived_from"]))}
    if event.row is not None and (row := shown(event.row, sees)) is not event.row:
        hidden["row"] = row
    return replace(event, **hidden) if hidden else event


class ChangeSource(Protocol):
    """The changes of all rows, as an engine keeps them."""

    def end(self) -> Key:
        """Return a place after the last change."""

    def lines_behind(self, begin: Key, view: View) -> list[Line]:
        """Return the changes of visible rows after a place, in order."""

    def dated(self, observation_id: str) -> History:
        """Return the changes of one row."""

    def shown_to(self, view: View) -> Callable[[str], Observation]:
        """Return a function from an id to the row, without ids that the caller may not know."""

    def is_seen(self, observation_id: str, view: View) -> bool:
        """Return whether the caller may see the row, whatever its status."""

    def resumed(self, cursor: ChangeCursor, view: View) -> Key:
        """Return the place of a cursor."""

    def cursor(self, key: Key, position: Position) -> ChangeCursor:
        """Return a cursor at a place."""


def changes_behind(source: ChangeSource, view: View, after: Position | ChangeCursor | None, *, limit: int) -> Changes:
    """Return the visible changes after a position, at most `limit`; None begins with what comes next."""
    end = source.end()
    begin = end if after is None else _key_behind(source, after, view)
    lines = source.lines_behind(begin, view) if begin < end else []
    items, key = _visible_changes(lines, source, view, limit)
    is_all = key is None or key == lines[-1][0]
    if items:
        position = items[-1].position
    elif after is None:
        position = _newest(source, view)
    else:
        position = after.position if isinstance(after, ChangeCursor) else after
    return Changes(tuple(items), source.cursor(end if is_all or key is None else key, position), is_all)


def key_at(source: ChangeSource, position: Position, view: View) -> Key | None:
    """Return the place of a change, or of the one before it if it is gone; None for a row that is not visible."""
    if not position.id or not source.is_seen(position.id, view):
        return None
    history = source.dated(position.id)
    same = [key for key, event in history if micros(event.at) == position.at]
    if position.nth < len(same):
        return same[position.nth]
    return max((key for key, event in history if micros(event.at) <= position.at), default=None)


def _key_behind(source: ChangeSource, after: Position | ChangeCursor, view: View) -> Key:
    """Return the place after which a reader continues."""
    if isinstance(after, ChangeCursor):
        return source.resumed(after, view)
    if not after.at:
        return BEGINNING
    if (key := key_at(source, after, view)) is not None:
        return key
    return _before_time(after.at, source, view) or source.end()


def _visible_changes(
    lines: Iterable[Line], source: ChangeSource, view: View, limit: int
) -> tuple[list[Change], Key | None]:
    """Return the first visible changes, and the place of the last line that was examined, if any."""
    row_of = source.shown_to(view)
    found: list[Change] = []
    known: dict[str, Mapping[Key, tuple[Event, Position]]] = {}
    last: Key | None = None
    for key, row_id in lines:
        if len(found) == limit:
            return found, last
        if row_id not in known:
            known[row_id] = _known(row_id, source.dated(row_id), view)
        if key in known[row_id]:
            event, position = known[row_id][key]
            found.append(Change(event.kind, event.at, row_of(row_id), position))
        last = key
    return found, last


def _before_time(at: int, source: ChangeSource, view: View) -> Key | None:
    """Return the place before the first change that may have been written at that time or later; None if there is none.

    It reads little further back than it must. What was written a little earlier is returned again rather than lost.
    """
    first: Key | None = None
    older = 0
    for key, row_id in reversed(source.lines_behind(BEGINNING, view)):
        history = source.dated(row_id)
        event = next(event for place, event in history if place == key)
        if max(micros(event.at), _made_at(row_id) if key == history[0][0] else 0) >= at - _LATE_US:
            first, older = (key[0], key[1] - 1), 0
        elif (older := older + 1) > _MOST_OLDER:
            break
    return first


def _newest(source: ChangeSource, view: View) -> Position:
    """Return the position of the last visible change."""
    for key, row_id in reversed(source.lines_behind(BEGINNING, view)):
        known = _known(row_id, source.dated(row_id), view)
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
    for (key, event), is_visible in zip(history, _visibilities(events, view), strict=True):
        at = micros(event.at)
        nth = seen[at] = seen.get(at, -1) + 1
        if is_visible:
            found[key] = (event, Position(at, row_id, nth))
    return found
