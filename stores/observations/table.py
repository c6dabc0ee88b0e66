"""Table of all rows without their texts: columns for order and limits, labels for filters, masks for the gate.

Rows are numbered in the order of the journal; a number is never changed or reused. 100,000 rows take about 30 MB.
"""

from __future__ import annotations

import bisect
import json
from array import array
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from chatbot.stores.access import Guard, View, fold, may_see
from chatbot.stores.log import LinePlace
from chatbot.stores.observation import (
    LASTING_TYPES,
    NEVER,
    TYPES,
    Observation,
    RowState,
    Status,
    Triple,
    Type,
    cap_weight,
    next_strength,
    parse_triple,
    with_counts,
)
from chatbot.stores.observations import lookups
from chatbot.stores.query import FactFilter, Order
from chatbot.stores.records import format_time, micros, moment
from chatbot.stores.row_events import STATUS_AFTER, Event

_LATE = ("later", "expiring", "after", "triples", "sessions")
"""Rarely needed parts of a snapshot, each parsed when first used."""
_NO_STRENGTH = -1.0
_KEPT_MASKS = 32
"""Masks kept for different callers and statuses: a new one reads every row."""
PURGED = "purged"
"""The status of a number whose row was erased."""
_HIDDEN = Guard("private", "unknown", "full", "", "")


def _words_of(fact: Triple | FactFilter) -> tuple[str, ...]:
    return tuple(fold(each or "") for each in (fact.subject, fact.predicate, fact.object))


class Table:
    """Columns of the table, from the parts of a snapshot if there is one. Not thread-safe: callers lock."""

    class_of: array[int]
    starts: array[int]
    lengths: array[int]
    session_of: array[int]
    texts: array[int]
    """Digest of the searched text of each row; 0 for a row that is not active."""
    created_at: array[int]
    updated_at: array[int]
    expires_at: array[int]
    last_used_at: array[int]
    quiet: array[int]
    """Time of the last change or use of each row."""
    use_count: array[int]
    mention_count: array[int]
    confirmed_count: array[int]
    importance: array[float]
    strength: array[float]
    """Importance after consolidation; below 0 before the first one."""
    consolidated_at: array[int]
    consolidated_touches: array[int]
    type: array[int]

    def __init__(self, parts: Mapping[str, memoryview] | None = None) -> None:
        parts = parts or {}
        self._unparsed = {name: bytes(parts[name]) for name in _LATE if name in parts}
        self.ids = lookups.Ids()
        self.classes: list[tuple[str, Guard]] = []  # each status with each guard; `class_of` has their indexes
        for name, column in lookups.COLUMNS.items():
            setattr(self, name, lookups.numbers_in(column.code, parts.get(name, b"")))
        self.twin_keys = bytearray(parts.get("twin_keys", b""))
        self.labels = lookups.Labels()
        self.lines = 0
        self.use_lines = 0
        """Number of lines that only count uses."""
        self.retracted: set[str] = set()
        """Ids of retracted facts."""
        self._twins: dict[bytes, list[int]] | None = None
        self._orders: dict[Order, list[int]] = {}
        self._masks: OrderedDict[object, lookups.Mask] = OrderedDict()

    @cached_property
    def later(self) -> dict[int, list[LinePlace]]:
        """Lines of changes of each row after it was added, except uses."""
        return {number: [(start, size) for start, size in places] for number, places in self._read("later", [])}

    @cached_property
    def expiring(self) -> list[tuple[int, int]]:
        """Times when rows expire, with their numbers, soonest first."""
        rows = lookups.numbers_in("I", self._unparsed.pop("expiring", b""))
        return [(self.expires_at[number], number) for number in rows]

    @cached_property
    def after(self) -> dict[str, str]:
        """Id of the successor of each replaced row."""
        found: dict[str, str] = self._read("after", {})
        return found

    @cached_property
    def triples(self) -> dict[str, Triple]:
        """All facts by id, retracted ones too: erasure has to find them."""
        return {fact.id: fact for fact in map(parse_triple, self._read("triples", []))}

    @cached_property
    def stated(self) -> defaultdict[tuple[str, ...], dict[str, None]]:
        """Ids of all facts by their words, also by those that they had before they were stated again with others."""
        found = defaultdict[tuple[str, ...], dict[str, None]](dict)
        for fact in self.triples.values():
            found[_words_of(fact)][fact.id] = None
        return found

    def facts_like(self, wanted: FactFilter) -> Iterable[Triple]:
        """Return the facts that may fit: those of the same words if the filter has all three, or else all."""
        if None in (wanted.subject, wanted.predicate, wanted.object):
            return self.triples.values()
        return [self.triples[each] for each in self.stated.get(_words_of(wanted), ())]

    @cached_property
    def sessions(self) -> list[str | None]:
        """Ids of sessions by the numbers in `session_of`; the first is None."""
        found: list[str | None] = self._read("sessions", [None])
        return found

    def _read(self, name: str, nothing: Any) -> Any:
        part = self._unparsed.pop(name, None)
        return nothing if part is None else json.loads(part)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def numbers(self) -> Mapping[str, int]:
        """Map the ids of all rows that were not erased to their numbers."""
        return self.ids.numbers

    @cached_property
    def before(self) -> dict[str, list[str]]:
        """Ids of the rows that each row replaced."""
        found: dict[str, list[str]] = {}
        for earlier, later in self.after.items():
            found.setdefault(later, []).append(earlier)
        return found

    def add(self, row: Observation, place: LinePlace) -> int:
        """Add a row at the end and return its number."""
        number = self.ids.add(row.id)
        fixed = (self._class(row.status, Guard.of(row)), *place, self._session_numbers[row.session_id])
        for name, value in zip(lookups.COLUMNS, fixed, strict=False):
            getattr(self, name).append(value)
        for name, of in lookups.FROM_ROW.items():
            getattr(self, name).append(of(row))
        self.twin_keys += lookups.twin_key(row)
        for label in lookups.labels_of(row):
            self.labels.add(label, number)
        self._link(row.id, row.superseded_by)
        self._note_added(number)
        return number

    def add_erased(self, ids: Sequence[str]) -> None:
        """Add erased rows, so that later rows keep their numbers."""
        for each in ids:
            self.ids.add_erased(each)
            for name, column in lookups.COLUMNS.items():
                blank = self._class(PURGED, _HIDDEN) if name == "class_of" else column.blank
                getattr(self, name).append(blank)
            self.twin_keys += bytes(16)
            self._note_added(len(self.ids) - 1)

    def change(self, before: Observation, after: Observation) -> None:
        """Replace the content of a row; its id stays."""
        number = self.numbers[after.id]
        self._set_updated(number, micros(after.updated_at))
        self._set_expiry(number, NEVER if after.expires_at is None else micros(after.expires_at))
        self._set_class(number, after.status, Guard.of(after))
        for name, of in lookups.FROM_ROW.items():
            getattr(self, name)[number] = of(after)
        self._set_twin_key(number, lookups.twin_key(after))
        old, new = set(lookups.labels_of(before)), set(lookups.labels_of(after))
        for label in old - new:
            self.labels.remove(label, number)
        for label in new - old:
            self.labels.add(label, number)
        self._unlink(before.id)
        self._link(after.id, after.superseded_by)
        self._refresh_masks(number)

    def set_status(self, number: int, event: Event) -> None:
        """Set the status of a row, and its successor if it has one; its text is unchanged."""
        self._set_class(number, STATUS_AFTER[event.kind], self.guard(number)[1])
        self.texts[number] = 0
        if event.kind in {"supersede", "compress", "delete"}:
            self.quiet[number] = max(self.quiet[number], micros(event.at))
        if event.kind in {"supersede", "compress"}:
            self._unlink(self.ids[number])
            self._link(self.ids[number], event.by)
        self._refresh_masks(number)

    def use(self, number: int, at: datetime) -> None:
        """Count a use of the row."""
        self.use_count[number] += 1
        self.last_used_at[number] = micros(at)
        self.quiet[number] = max(self.quiet[number], self.last_used_at[number])

    def erase(self, numbers: AbstractSet[int]) -> None:
        """Erase rows, except their ids and numbers."""
        gone = {self.ids[number] for number in numbers}
        for number in numbers:
            self._erase(self.ids[number], number)
        self.labels.erase(numbers)
        self.erase_triples(key for key, fact in list(self.triples.items()) if fact.source in gone)

    def erase_triples(self, ids: Iterable[str]) -> None:
        """Remove facts."""
        for each in ids:
            self.triples.pop(each, None)
            self.retracted.discard(each)
            vars(self).pop("stated", None)

    def _erase(self, row_id: str, number: int) -> None:
        self.ids.erase(row_id)
        self._set_class(number, PURGED, _HIDDEN)
        self._set_twin_key(number, bytes(16))
        self._unlink(row_id)
        self.before.pop(row_id, None)
        self.later.pop(number, None)
        self.texts[number] = 0
        self._refresh_masks(number)

    def places(self, number: int) -> list[LinePlace]:
        """Return the places of a row's lines, the one that added it first."""
        return [(self.starts[number], self.lengths[number]), *self.later.get(number, ())]

    def with_counts(self, row: Observation, number: int) -> Observation:
        """Return the row with its uses and strength, which only the table has."""
        uses, strength = self.use_count[number], self.strength[number]
        row_strength = _NO_STRENGTH if row.strength is None else row.strength
        is_consolidated = bool(self.consolidated_at[number])
        if (uses, strength, is_consolidated) == (row.use_count, row_strength, row.consolidated_at is not None):
            return row  # it has these counts already
        used = (uses, moment(self.last_used_at[number]) if self.last_used_at[number] else None)
        at, touches = self.consolidated_at[number], self.consolidated_touches[number]
        return with_counts(row, used, (None if strength < 0 else strength, moment(at), touches) if at else None)

    def consolidate(self, number: int, strength: float, at: datetime, touches: int) -> None:
        """Set the strength of a row after consolidation."""
        self.strength[number] = strength
        self.consolidated_at[number] = micros(at)
        self.consolidated_touches[number] = max(0, touches)

    def current_strength(self, number: int) -> float:
        """Return the importance of the row now."""
        strength = self.strength[number]
        return self.importance[number] if strength < 0 else strength

    def guard(self, number: int) -> tuple[str, Guard]:
        """Return the status and guard of a row."""
        return self.classes[self.class_of[number]]

    def state(self, number: int) -> RowState:
        """Return the state of the row."""
        status, guard = self.guard(number)
        expires = self.expires_at[number]
        return RowState(
            self.ids[number],
            self.type_of(number),
            guard,
            cast("Status", status),
            self.after.get(self.ids[number]),
            moment(self.quiet[number]),
            None if expires == NEVER else moment(expires),
        )

    def is_seen(self, observation_id: str, view: View) -> bool:
        """Return whether there is a row of that id, of any status, that the caller may see."""
        number = self.numbers.get(observation_id)
        return number is not None and may_see(self.guard(number)[1], view)

    def numbers_seen(self, ids: Iterable[str], visible: lookups.Visible) -> list[int]:
        """Return the numbers of the visible rows with these ids, in the order of the ids."""
        number_of = self.numbers.get
        return [number for each in ids if (number := number_of(each)) is not None and visible.flags[number]]

    def visible(self, view: View, statuses: Sequence[Status] = ("active",)) -> lookups.Visible:
        """Return which rows the caller may see and have one of the statuses at `view.now`."""
        asked = (view.clearance, view.asked, view.erasing)
        key = (*asked, view.namespaces, view.project, frozenset(statuses))
        mask, now = self._masks.get(key), micros(view.now)
        if mask is None:
            mask = self._masks[key] = lookups.Mask(self, view, frozenset(statuses))
        mask.set_time(now)
        self._masks.move_to_end(key)
        while len(self._masks) > _KEPT_MASKS:
            self._masks.popitem(last=False)
        return mask.visible

    def next_strength(self, number: int, at: int, per_day: float) -> tuple[float, int] | None:
        """Return the row's strength as consolidation changes it, and its touches, without reading the row."""
        elapsed = (at - (self.consolidated_at[number] or self.updated_at[number])) / 1_000_000
        touches = self.use_count[number] + self.mention_count[number] + self.confirmed_count[number]
        strength = next_strength(
            self.current_strength(number),
            self.importance[number],
            touches - self.consolidated_touches[number],
            elapsed=elapsed,
            quiet=min(elapsed, max(0.0, (at - self.quiet[number]) / 1_000_000)),
            rate=per_day / 2 if self.type_of(number) in LASTING_TYPES else per_day,
        )
        return None if strength is None else (strength, touches)

    def twins(self, row: Observation) -> list[int]:
        """Return the rows with the same content, agent, namespace, visibility and principal, whatever their status."""
        if self._twins is None:
            self._twins = {}
            for number in self.numbers.values():
                self._twins.setdefault(bytes(self.twin_keys[number * 16 : number * 16 + 16]), []).append(number)
        return self._twins.get(lookups.twin_key(row), [])

    def type_of(self, number: int) -> Type:
        """Return the type of the row."""
        return TYPES[self.type[number]]

    def count_active(self) -> int:
        """Return how many rows have the status active, visible or not."""
        return sum(self._sizes[number] for number in self._active_classes())

    def active(self) -> list[int]:
        """Return the rows whose status is active, visible or not."""
        wanted = self._active_classes()
        return [number for number, found in enumerate(self.class_of) if found in wanted]

    def count_events(self, without: AbstractSet[int] = frozenset()) -> list[Event]:
        """Return events that restore the uses and strength of all rows `without` these.

        Rows with the same count and time share one event, and so do rows of the same consolidation.
        """
        strong: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        counted: defaultdict[tuple[int, tuple[tuple[str, Any], ...]], list[str]] = defaultdict(list)
        for number in self.numbers.values():
            if number in without:
                continue
            fields: dict[str, Any] = {}
            if self.use_count[number]:
                fields["use_count"] = self.use_count[number]
            if self.last_used_at[number]:
                fields["last_used_at"] = format_time(moment(self.last_used_at[number]))
            if self.consolidated_at[number] and self.strength[number] < 0:
                touches = self.consolidated_touches[number]
                at = format_time(moment(self.consolidated_at[number]))
                fields |= {"strength": None, "consolidated_at": at, "consolidated_touches": touches}
            elif self.consolidated_at[number]:
                set_to = [self.strength[number], self.consolidated_touches[number]]
                strong[self.consolidated_at[number]][self.ids[number]] = set_to
            if fields:
                at_last = max(self.last_used_at[number], self.consolidated_at[number])
                counted[at_last, tuple(fields.items())].append(self.ids[number])
        return [
            *(
                Event(kind="counts", at=moment(at), ids=tuple(ids), fields=dict(fields))
                for (at, fields), ids in counted.items()
            ),
            *(Event(kind="consolidate", at=moment(at), ids=tuple(rows), fields=rows) for at, rows in strong.items()),
        ]

    def set_counts(self, number: int, counts: Mapping[str, Any]) -> None:
        """Set the fields of a row's use and strength that are in `counts`."""
        for name, value in counts.items():
            getattr(self, name)[number] = lookups.COLUMNS[name].number(value)
        self.quiet[number] = max(self.quiet[number], self.last_used_at[number])

    def relocate(self, moved: Mapping[int, LinePlace]) -> None:
        """Set the new places of the lines; lines without one are gone."""
        for number, start in enumerate(self.starts):
            self.starts[number], self.lengths[number] = moved.get(start, (0, 0))
        self.later = {
            number: [moved[place[0]] for place in places if place[0] in moved] for number, places in self.later.items()
        }

    def weight(self, number: int) -> tuple[bool, float]:
        """Return the sort key of a row above a cap."""
        uses = self.use_count[number] + self.mention_count[number]
        return cap_weight(self.type_of(number), self.current_strength(number), uses)

    def is_current(self, number: int, now: datetime) -> bool:
        """Return whether the row is active and not expired."""
        return self.guard(number)[0] == "active" and self.expires_at[number] > micros(now)

    def fold_triple(self, event: Event) -> None:
        """Add or retract a fact."""
        if (fact := event.triple) is not None:
            known = None if fact.id in self.retracted else self.triples.get(fact.id)
            if known is not None and fact.count < known.count:  # restated less often by another machine
                fact = replace(known, project=fact.project)
            self.stated[_words_of(fact)][fact.id] = None
            self.triples[fact.id] = fact
            self.retracted.discard(fact.id)
        if event.kind == "retract":
            self.retracted.update(self.triples.keys() & event.ids)

    def _class(self, status: str, guard: Guard) -> int:
        sizes, number = self._sizes, self._class_numbers[status, guard]
        sizes[number] += 1
        return number

    @cached_property
    def _class_numbers(self) -> lookups.Numbering[tuple[str, Guard]]:
        return lookups.Numbering(self.classes)

    @cached_property
    def _sizes(self) -> Counter[int]:
        return Counter(self.class_of)

    def _set_class(self, number: int, status: str, guard: Guard) -> None:
        self._sizes[self.class_of[number]] -= 1
        self.class_of[number] = self._class(status, guard)

    def _active_classes(self) -> set[int]:
        return {number for number, (status, _) in enumerate(self.classes) if status == "active"}

    def _note_added(self, number: int) -> None:
        for order, keys in self._orders.items():
            times = self.created_at if order == "created" else self.updated_at
            bisect.insort(keys, times[number] << 32 | number)
        if self.expires_at[number] != NEVER:
            bisect.insort(self.expiring, (self.expires_at[number], number))
        if self._twins is not None:
            self._twins.setdefault(bytes(self.twin_keys[-16:]), []).append(number)
        for mask in self._masks.values():
            mask.append(number)

    def _refresh_masks(self, number: int) -> None:
        for mask in self._masks.values():
            mask.refresh(number)

    def _set_updated(self, number: int, new: int) -> None:
        keys, old = self._orders.get("updated"), self.updated_at[number]
        if keys is not None and old != new:
            del keys[bisect.bisect_left(keys, old << 32 | number)]
            bisect.insort(keys, new << 32 | number)
        self.updated_at[number] = new

    def sorted_by(self, order: Order) -> list[int]:
        """Return the keys `time << 32 | number` of all rows, sorted."""
        if (keys := self._orders.get(order)) is None:
            times = self.created_at if order == "created" else self.updated_at
            keys = self._orders[order] = sorted(times[number] << 32 | number for number in range(len(self)))
        return keys

    def _set_expiry(self, number: int, new: int) -> None:
        if self.expires_at[number] == new:
            return
        if self.expires_at[number] != NEVER:
            del self.expiring[bisect.bisect_left(self.expiring, (self.expires_at[number], number))]
        if new != NEVER:
            bisect.insort(self.expiring, (new, number))
        self.expires_at[number] = new

    def _set_twin_key(self, number: int, new: bytes) -> None:
        old = bytes(self.twin_keys[number * 16 : number * 16 + 16])
        if old == new:
            return
        self.twin_keys[number * 16 : number * 16 + 16] = new
        if self._twins is not None:
            self._twins[old].remove(number)
            if any(new):
                bisect.insort(self._twins.setdefault(new, []), number)

    def _link(self, row_id: str, later: str | None) -> None:
        if later is not None:
            self.before.setdefault(later, []).append(row_id)
            self.after[row_id] = later

    def _unlink(self, row_id: str) -> None:
        others = self.before.get(self.after.pop(row_id, ""), [])
        if row_id in others:  # missing if the later one was erased
            others.remove(row_id)

    @cached_property
    def _session_numbers(self) -> lookups.Numbering[str | None]:
        return lookups.Numbering(self.sessions)
