"""Memories as known or true at a time: with rows that were replaced since, and without later ones.

A row counts as known from when it was said, or, where it was brought in later and `known_at` is asked for, from when it
was written. What was forgotten is not brought back by asking for the past, nor is what was erased.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from chatbot.memory.scope import Scope
from chatbot.memory.scoring import ROOM, RowScore, ScoringProfile, scored
from chatbot.stores.access import View
from chatbot.stores.candidates import Candidates
from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import Observation
from chatbot.stores.query import Filter, Match
from chatbot.stores.records import check_time
from chatbot.stores.text.analysis import terms

_LEFT: tuple[Any, ...] = ("superseded", "compressed", "expired", "archived")


def moment(as_of: datetime | None, known_at: datetime | None, now: datetime) -> datetime | None:
    """The time that is asked for; None for now. Raises `InvalidValue` for a time to come."""
    given = [check_time(each) for each in (as_of, known_at) if each is not None]
    if not given:
        return None
    if max(given) > now:
        raise InvalidValue("as_of and known_at cannot be in the future")
    return min(given)


def until(wanted: Filter, at: datetime) -> Filter:
    """Return the same filter for rows that existed at a time."""
    end = at + timedelta.resolution
    return replace(wanted, before=end if wanted.before is None else min(end, wanted.before))


async def left_since(scope: Scope, view: View, wanted: Filter, at: datetime) -> list[Observation]:
    """Rows that fit, and that were current at a time, and are not now."""
    rows = await scope.rows(replace(until(wanted, at), statuses=_LEFT), view=view)
    return [row for row in rows if _ends(row) is None or _ends(row) > at]  # type: ignore[operator]


def scored_past(rows: Sequence[Observation], text: str, profile: ScoringProfile, now: datetime) -> list[RowScore]:
    """Rows that no index holds, scored by the share of the words of a text that they hold; those with none left out."""
    asked = frozenset(terms(text))
    found = Candidates(weight=ROOM)
    for row in rows:
        held = asked & frozenset(terms(row.text()))
        if held or not asked:
            found.rows[row.id] = Match.of(row, ROOM * len(held) / max(len(asked), 1))
    return scored(found, profile, now)


async def rows_then(
    scope: Scope, view: View, ids: Sequence[str], past: Mapping[str, Observation], known_at: datetime | None
) -> dict[str, Observation]:
    """Return the rows with these ids, those that are `past` too, and without those that were not `known_at` a time."""
    rows = {row.id: row for row in await scope.store.get(view, ids)}
    rows |= {each: past[each] for each in ids if each in past}
    if known_at is None:
        return rows
    return {each: row for each, row in rows.items() if await _is_known(scope, view, each, known_at)}


async def _is_known(scope: Scope, view: View, observation_id: str, at: datetime) -> bool:
    """Return whether a row had been written by a time."""
    line = await scope.store.history(view.asking_all(), observation_id)
    events = next((version.events for version in line if version.observation.id == observation_id), ())
    return bool(events) and events[0].at <= at


def _ends(row: Observation) -> datetime | None:
    """Return when a row ceased to be current; None if that is unknown."""
    return row.superseded_at if row.status in {"superseded", "compressed"} else row.expires_at
