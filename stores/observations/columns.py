"""Questions to the table that NumPy answers over whole columns: imported with the first search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chatbot.stores.observations.filters import always, fitting, predicate
from chatbot.stores.observations.lookups import Visible
from chatbot.stores.observations.segments import Ints
from chatbot.stores.observations.table import Table
from chatbot.stores.query import Filter
from chatbot.stores.records import micros
from chatbot.stores.text.bm25 import K1, inverse_frequency


def wanted_rows(table: Table, wanted: Filter) -> Ints | None:
    """Return a flag for each row, true if it matches `wanted`, its status aside; None if all rows do."""
    numbers, flags = fitting(table, wanted), None
    if numbers is not None:
        flags = np.zeros(len(table), bool)
        flags[np.fromiter(numbers, "i8", len(numbers))] = True
    for each in _ranges(table, wanted):
        flags = each if flags is None else flags & each
    rest = predicate(table, wanted, without_ranges=True)
    if rest is not always:
        among = range(len(table)) if flags is None else np.flatnonzero(flags).tolist()
        chosen = [number for number in among if rest(number)]
        flags = np.zeros(len(table), bool)
        flags[chosen] = True
    return flags


def wanted_and_seen(table: Table, wanted: Filter, visible: Visible) -> Ints:
    """Return a flag for each row, true if it is visible and matches `wanted`, its status aside."""
    seen = np.frombuffer(bytes(visible.flags), bool)
    flags = wanted_rows(table, wanted)
    return seen if flags is None else flags & seen


def sessions_about(table: Table, held: Sequence[Ints]) -> dict[str, float]:
    """Score sessions as `chatbot.stores.text.bm25.about` does, from the rows that hold each of the terms."""
    names = table.sessions
    sessions = np.array(table.session_of, "i8")
    counts = [np.bincount(sessions[rows], minlength=len(names)) for rows in held]
    for each in counts:
        each[0] = 0  # those without a session
    total = int(np.count_nonzero(sum(counts))) if counts else 0
    scores = np.zeros(len(names))
    for each in counts:
        among = np.flatnonzero(each)
        if len(among):
            idf = inverse_frequency(total, len(among))
            scores[among] += idf * (each[among] * (K1 + 1)) / (each[among] + K1)
    found = np.flatnonzero(scores)
    return {names[at] or "": score for at, score in zip(found.tolist(), scores[found].tolist(), strict=True)}


def _ranges(table: Table, wanted: Filter) -> list[Ints]:
    found = []
    if wanted.after is not None:
        found.append(np.array(table.created_at) >= micros(wanted.after))
    if wanted.before is not None:
        found.append(np.array(table.created_at) < micros(wanted.before))
    if wanted.min_importance > 0:
        found.append(np.array(table.importance) >= wanted.min_importance)
    return found
