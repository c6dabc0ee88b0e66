"""History of the rows that a caller may see: one rule for every observation store. Pure.

An event is visible if the row was visible before and after it, and is visible now: text written while the row was
hidden from a caller stays hidden, even if the row is visible today. Ids of hidden rows are removed from every result,
and no result depends on a hidden row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from chatbot.stores.access import Guard, View, may_see
from chatbot.stores.observation import WRITTEN_DEFAULTS, Observation, unchecked
from chatbot.stores.query import Version
from chatbot.stores.records import ID
from chatbot.stores.row_events import Event, applied

Sees = Callable[[str], bool]
"""Returns True for an id that the caller may know."""


def naming(view: View, guard_of: Callable[[str], Guard | None]) -> Sees:
    """Return a test for ids that the caller may know, at any sensitivity.

    `guard_of` returns the guard of a row; None if it is gone: then only full clearance gets its id.
    """
    everything = view.asking_all()

    def sees(observation_id: str) -> bool:
        guard = guard_of(observation_id)
        return view.clearance == "full" if guard is None else may_see(guard, everything)

    return sees


def shown(row: Observation, sees: Sees) -> Observation:
    """Return the row without ids of hidden rows."""
    after, sources = row.superseded_by, row.derived_from
    hidden: dict[str, Any] = {}
    if after is not None and not sees(after):
        hidden["superseded_by"] = None
    if sources and not all(map(sees, sources)):
        hidden["derived_from"] = tuple(filter(sees, sources))
    return unchecked(row, **hidden) if hidden else row


def version(row: Observation, events: Sequence[Event], view: View, sees: Sees) -> Version:
    """Return a visible row with its visible events, from the one that added it."""
    seen: list[Event] = []
    changes: list[Mapping[str, tuple[Any, Any]]] = []
    for event, before, after in _steps(events):
        if all(may_see(each, view) for each in (before, after) if each is not None):
            seen.append(_shown_event(event, sees))
            changes.append(_changes(event, before, after, sees))
    return Version(shown(row, sees), tuple(seen), tuple(changes))


def _steps(events: Sequence[Event]) -> Iterator[tuple[Event, Observation | None, Observation | None]]:
    """Yield each event of a row, with the row before and after it."""
    before: Observation | None = None
    for event in events:
        after = event.row if before is None else applied(before, event)
        yield event, before, after
        before = after


def _changes(
    event: Event, before: Observation | None, after: Observation | None, sees: Sees
) -> dict[str, tuple[Any, Any]]:
    """Return the fields that the event changed, each with its written value before and after."""
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
    if not all(map(sees, ID.findall(event.why))):
        hidden["why"] = ""
    if not all(map(sees, event.fields.get("derived_from", ()))):
        hidden["fields"] = {**event.fields, "derived_from": list(filter(sees, event.fields["derived_from"]))}
    if event.row is not None and (row := shown(event.row, sees)) is not event.row:
        hidden["row"] = row
    return replace(event, **hidden) if hidden else event
