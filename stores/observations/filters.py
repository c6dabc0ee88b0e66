"""Filters of rows over the columns and labels of a table, and rows in order of time."""

import bisect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import ge, lt
from typing import Any

from chatbot.stores.observations.lookups import label_of
from chatbot.stores.observations.table import Table
from chatbot.stores.query import EMPTY, FILTERED, MISSING, Filter, Labelled, Order, passes, tests_of
from chatbot.stores.records import canonical, micros

Range = tuple[Sequence[float], Callable[[Any, float], Any], float]
"""A column, how its numbers are compared, and with which number."""
_EMPTY = frozenset(label_of(name, "") for name in EMPTY)
"""Labels that ask for the rows without a value in a field."""


def fitting_rows(table: Table, wanted: Filter) -> set[int] | None:
    """Return the rows with the labels and metadata that `wanted` names; None if it names none."""
    groups = [
        [label_of(name, value) for value in _values(getattr(wanted, asked))]
        for asked, name in FILTERED.items()
        if getattr(wanted, asked) not in {None, ()}
    ]
    exact = {key: value for key, value in wanted.metadata.items() if key[:1] != "$" and tests_of(value) is None}
    groups += [[label_of(f"metadata.{key}", canonical(value))] for key, value in exact.items()]
    compared = {key: value for key, value in wanted.metadata.items() if key not in exact}
    found = _rows_meeting_all(table, compared) if compared else None
    for group in groups:
        rows: set[int] = set()
        for label in group:
            rows.update(_without_any(table, label) if label in _EMPTY else table.labels.of(label))
        found = rows if found is None else found & rows
    return found


def _rows_meeting_all(table: Table, conditions: Mapping[str, Any]) -> set[int]:
    return set.intersection(set(range(len(table))), *(_rows_meeting(table, *each) for each in conditions.items()))


def _rows_meeting(table: Table, name: str, asked: Any) -> set[int]:
    if name == "$and":
        return set.intersection(set(range(len(table))), *(_rows_meeting_all(table, each) for each in asked))
    if name == "$or":
        return set().union(*(_rows_meeting_all(table, each) for each in asked))
    if name == "$not":
        return set(range(len(table))) - _rows_meeting_all(table, asked)
    if (tests := tests_of(asked)) is None:
        return set(table.labels.of(label_of(f"metadata.{name}", canonical(asked))))
    start = label_of(f"metadata.{name}", "")
    held = {label[len(start) :]: numbers for label, numbers in table.labels.items() if label.startswith(start)}
    found = set().union(*(numbers for value, numbers in held.items() if passes(json.loads(value), tests)))
    if passes(MISSING, tests):
        found |= set(range(len(table))).difference(*held.values())
    return found


def _without_any(table: Table, empty: str) -> set[int]:
    """Return the rows without a value in the field whose label with an empty value is `empty`."""
    others = (numbers for label, numbers in table.labels.items() if label.startswith(empty))
    return set(range(len(table))).difference(*others)


def predicate(table: Table, wanted: Filter, *, without_ranges: bool = False) -> Callable[[int], bool]:
    """Return a test for the parts of `wanted` that are neither label nor status; `always` if there are none.

    `without_ranges` leaves out comparisons that can be made with a whole column at once.
    """
    found = [] if without_ranges else ranges(table, wanted)
    checks: list[Callable[[int], bool]] = [partial(_in_range, each) for each in found]
    checks += _checks(table, wanted)
    if len(checks) < 2:
        return checks[0] if checks else always
    return lambda number: all(check(number) for check in checks)


def ranges(table: Table, wanted: Filter) -> list[Range]:
    """Return the comparisons of whole columns."""
    found: list[Range] = []
    if wanted.after is not None:
        found.append((table.created_at, ge, micros(wanted.after)))
    if wanted.before is not None:
        found.append((table.created_at, lt, micros(wanted.before)))
    if wanted.min_importance > 0:
        found.append((table.importance, ge, wanted.min_importance))
    return found


def _in_range(wanted: Range, number: int) -> bool:
    column, compare, bound = wanted
    return bool(compare(column[number], bound))


def _checks(table: Table, wanted: Filter) -> Iterator[Callable[[int], bool]]:
    if wanted.visibilities:
        yield lambda number: table.guard(number)[1].visibility in wanted.visibilities
    if wanted.quiet_since is not None:
        last = micros(wanted.quiet_since)
        yield lambda number: table.quiet[number] <= last
    if wanted.fading is not None:
        at, per_day = micros(wanted.fading.at), wanted.fading.per_day
        yield lambda number: table.next_strength(number, at, per_day) is not None


def in_order(
    table: Table, order: Order, numbers: set[int] | None, *, ascending: bool, after: str | None
) -> Iterator[int]:
    """Yield rows by time, all of them or those in `numbers`, starting after the row `after`."""
    times = table.created_at if order == "created" else table.updated_at
    few = numbers is not None and is_few(len(numbers), len(table))
    keys = sorted(times[number] << 32 | number for number in numbers or ()) if few else table.sorted_by(order)
    begin = None if after is None else times[table.numbers[after]] << 32 | table.numbers[after]
    if ascending:
        chosen: Iterable[int] = keys[bisect.bisect_right(keys, begin) if begin is not None else 0 :]
    else:
        end = bisect.bisect_left(keys, begin) if begin is not None else len(keys)
        chosen = (keys[at] for at in range(end - 1, -1, -1))
    for key in chosen:
        number = key & 0xFFFFFFFF
        if few or numbers is None or number in numbers:
            yield number


def holders(table: Table, name: Labelled, flags: bytearray) -> Iterator[tuple[str, list[int]]]:
    """Yield the values of a field, folded, each with the visible rows that hold it."""
    start = label_of(name, "")
    for label, numbers in table.labels.items():
        if label.startswith(start) and (seen := [number for number in numbers if flags[number]]):
            yield label[len(start) :], seen


def always(_: int) -> bool:
    """Return True: every row fits."""
    return True


def is_few(some: int, rows: int) -> bool:
    """Return whether sorting some rows costs less than a pass over all rows."""
    return some * 4 < rows


def _values(asked: object) -> Sequence[str]:
    return asked if isinstance(asked, tuple) else (str(asked),)
