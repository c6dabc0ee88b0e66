"""What is known of every row without reading it: columns for order and limits, labels for filters, masks for the gate.

Rows are numbered in the order in which the journal adds them, and keep their number for life; an erased row leaves its
number behind. The table is as small as it can be: a hundred thousand rows take some thirty megabytes.
"""

from __future__ import annotations

import bisect
import hashlib
from array import array
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from stores.access import Guard, View, may_see
from stores.caps import Weighed
from stores.consolidation import LASTING_TYPES, settled
from stores.documents import SEARCHED
from stores.events import STATUS_AFTER, Event
from stores.observation import TYPES, Observation, Status, Triple, counted, rank
from stores.observations.ids import Ids
from stores.observations.labels import Labels
from stores.observations.visible import Lines, Visible
from stores.query import EXACT, Filter, Labelled, Match, Order, key_of, values_of, written
from stores.records import format_time, micros, moment
from stores.row_state import RowState

NEVER = 2**62
_UNCHANGED = -1.0
_KEPT_MASKS = 8
_FOLDED = ("type", "project", "subject", "category", "tags", "concepts", "people", "files")
_FILTERED = {"types": "type", "agent_id": "agent_id", "session_id": "session_id"} | {
    name: name for name in ("project", "subject", "category", "tags", "concepts", "people", "files", "derived_from")
}
PURGED = "purged"
"""The status of a number whose row was erased."""
_NOBODYS = Guard("private", "unknown", "full", "")

Place = tuple[int, int]
"""Where a line of the journal stands: offset and length in bytes."""


class Table:
    """The columns. Not safe between threads; whoever holds it locks."""

    def __init__(self) -> None:
        self.ids = Ids()
        self._unread: dict[str, Callable[[], object]] = {}
        self.classes: list[tuple[str, Guard]] = []
        self.class_of = array("H")
        self.starts = array("Q")
        self.lengths = array("I")
        self.later: dict[int, list[Place]] = {}
        """The lines of what happened to a row after it was added, uses aside."""
        self.texts = array("q")
        """Of each row, a digest of what is searched: 0 where that is nothing, for it is not active."""
        self.created = array("q")
        self.updated = array("q")
        self.expires = array("q")
        self.expiring: list[tuple[int, int]] = []
        """When rows expire, with their numbers, soonest first."""
        self.used = array("q")
        self.quiet = array("q")
        """When something last happened to each row."""
        self.uses = array("I")
        self.mentions = array("I")
        self.confirms = array("I")
        self.importance = array("d")
        self.strength = array("d")
        """Importance as time and use have changed it, or below 0 where they have not."""
        self.consolidated = array("q")
        self.consolidated_touches = array("I")
        self.types = array("B")
        self.twin_keys = bytearray()
        self.labels = Labels()
        self.after: dict[str, str] = {}
        self.triples: dict[str, Triple] = {}
        self.sessions: list[str | None] = [None]
        self.session_of = array("I")
        self.lines = 0
        """How many lines the journal has."""
        self.use_lines = 0
        """How many of them only count uses."""
        self._awaited: dict[int, str] = {}
        self._twins: dict[bytes, list[int]] | None = None
        self._orders: dict[Order, list[int]] = {}
        self._masks: OrderedDict[object, _Mask] = OrderedDict()
        self._lines: WeakKeyDictionary[Visible, Lines] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def numbers(self) -> Mapping[str, int]:
        """From the ids of all rows that were not erased to their numbers."""
        return self.ids.numbers

    def leave(self, name: str, read: Callable[[], object]) -> None:
        """Let `read` give this attribute when it is first asked for."""
        delattr(self, name)
        self._unread[name] = read

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """What was left."""
            if name not in self.__dict__.get("_unread", ()):
                raise AttributeError(f"a table has no {name}")
            value = self._unread[name]()
            setattr(self, name, value)
            del self._unread[name]
            return value

    @cached_property
    def before(self) -> dict[str, list[str]]:
        """From the id of a row to those of the rows that it took the place of."""
        found: dict[str, list[str]] = {}
        for earlier, later in self.after.items():
            found.setdefault(later, []).append(earlier)
        return found

    def add(self, row: Observation, place: Place) -> int:
        """A new row at the end; its number."""
        number = self.ids.add(row.id)
        self.class_of.append(self._class(row.status, Guard.of(row)))
        self.starts.append(place[0])
        self.lengths.append(place[1])
        self.texts.append(_searched(row))
        self.session_of.append(self._session(row.session_id))
        self.created.append(micros(row.created_at))
        self.updated.append(micros(row.updated_at))
        self.expires.append(NEVER if row.expires_at is None else micros(row.expires_at))
        self.used.append(0 if row.last_used_at is None else micros(row.last_used_at))
        self.quiet.append(micros(row.quiet_since))
        self.uses.append(row.use_count)
        self.mentions.append(row.mention_count)
        self.confirms.append(row.confirmed_count)
        self.importance.append(row.importance)
        self.strength.append(_UNCHANGED)
        self.consolidated.append(0)
        self.consolidated_touches.append(0)
        self._set_strength(number, row)
        self.types.append(TYPES.index(row.type))
        self.twin_keys += twin_key(row)
        for label in labels_of(row):
            self.labels.add(label, number)
        self._link(row.id, row.superseded_by)
        self._note_added(number)
        self._take_awaited()
        return number

    def add_erased(self, ids: Sequence[str], gaps: Sequence[int] = ()) -> None:
        """Numbers whose rows are gone: the next ones, or, by `gaps`, some that come when others were added."""
        first = len(self.ids)
        self.ids.erased.update(ids)
        for gap, each in zip(gaps or range(len(ids)), ids, strict=True):
            self._awaited[first + gap] = each
        self._take_awaited()

    def _take_awaited(self) -> None:
        while (each := self._awaited.pop(len(self.ids), None)) is not None:
            self._append_erased(each)

    def _append_erased(self, observation_id: str) -> None:
        number = self.ids.add_erased(observation_id)
        self.class_of.append(self._class(PURGED, _NOBODYS))
        self.twin_keys += bytes(16)
        counts = (self.uses, self.mentions, self.confirms, self.types, self.consolidated_touches)
        for column in (*counts, self.starts, self.lengths, self.texts, self.session_of):
            column.append(0)
        for column in (self.created, self.updated, self.used, self.quiet, self.consolidated):
            column.append(0)
        self.strength.append(_UNCHANGED)
        self.expires.append(NEVER)
        self.importance.append(0)
        self._note_added(number)

    def change(self, before: Observation, after: Observation) -> None:
        """A row became another one, still of the same id."""
        number = self.numbers[after.id]
        self._move(number, "updated", micros(after.updated_at))
        self._set_expiry(number, NEVER if after.expires_at is None else micros(after.expires_at))
        self._set_class(number, after.status, Guard.of(after))
        self.uses[number], self.mentions[number] = after.use_count, after.mention_count
        self.confirms[number] = after.confirmed_count
        self.used[number] = 0 if after.last_used_at is None else micros(after.last_used_at)
        self.quiet[number] = micros(after.quiet_since)
        self.importance[number] = after.importance
        self._set_strength(number, after)
        self.types[number] = TYPES.index(after.type)
        self.texts[number] = _searched(after)
        self._set_twin_key(number, twin_key(after))
        self._relabel(number, set(labels_of(before)), set(labels_of(after)))
        self._unlink(before.id)
        self._link(after.id, after.superseded_by)
        self._show(number)

    def restate(self, number: int, event: Event) -> None:
        """A row has another status, or stands behind another row; what it says is as it was."""
        self._set_class(number, STATUS_AFTER[event.kind], self.guard(number)[1])
        self.texts[number] = 0
        if event.kind in {"supersede", "compress", "delete"}:
            self.quiet[number] = max(self.quiet[number], micros(event.at))
        if event.kind in {"supersede", "compress"}:
            self._unlink(self.ids[number])
            self._link(self.ids[number], event.by)
        self._show(number)

    def use(self, number: int, at: datetime) -> None:
        """A row was handed out."""
        self.uses[number] += 1
        self.used[number] = micros(at)
        self.quiet[number] = max(self.quiet[number], self.used[number])

    def erase(self, numbers: AbstractSet[int]) -> None:
        """Forget everything about rows but their ids and their numbers."""
        gone = {self.ids[number] for number in numbers}
        for number in numbers:
            self._erase(self.ids[number], number)
        self.labels.erase(numbers)
        self.triples = {key: fact for key, fact in self.triples.items() if fact.source not in gone}

    def _erase(self, row_id: str, number: int) -> None:
        self.ids.erase(row_id)
        self._set_class(number, PURGED, _NOBODYS)
        self._set_twin_key(number, bytes(16))
        self._unlink(row_id)
        self.before.pop(row_id, None)
        self.later.pop(number, None)
        self.texts[number] = 0
        self._show(number)

    def places(self, number: int) -> list[Place]:
        """Where the lines of a row stand, the one that added it first."""
        return [(self.starts[number], self.lengths[number]), *self.later.get(number, ())]

    def note_line(self, number: int, place: Place) -> None:
        """Something happened to the row, as the line at `place` tells."""
        self.later.setdefault(number, []).append(place)

    def counted(self, row: Observation, number: int) -> Observation:
        """The row with the uses and the strength that only the table knows."""
        uses, strength = self.uses[number], self.strength[number]
        if uses == row.use_count and strength == (_UNCHANGED if row.strength is None else row.strength):
            return row  # which no count changes alone
        used = (uses, moment(self.used[number]) if self.used[number] else None)
        return counted(row, used, self._consolidation(number))

    def consolidate(self, number: int, strength: float, at: datetime, touches: int) -> None:
        """Time and use have changed how important a row is."""
        self.strength[number] = strength
        self.consolidated[number] = micros(at)
        self.consolidated_touches[number] = max(0, touches)

    def standing(self, number: int) -> float:
        """How important the row is by now."""
        strength = self.strength[number]
        return self.importance[number] if strength < 0 else strength

    def _rank(self, number: int) -> float:
        return rank(TYPES[self.types[number]], self.importance[number], self.standing(number))

    def guard(self, number: int) -> tuple[str, Guard]:
        """Status and guard of a row."""
        return self.classes[self.class_of[number]]

    def state(self, number: int) -> RowState:
        """Where the row stands."""
        status, guard = self.guard(number)
        expires = self.expires[number]
        return RowState(
            self.ids[number],
            TYPES[self.types[number]],
            guard,
            cast("Status", status),
            self.after.get(self.ids[number]),
            moment(self.quiet[number]),
            None if expires == NEVER else moment(expires),
        )

    def number_seen(self, observation_id: str, view: View) -> int | None:
        """The number of a row that the caller may see, whatever its status."""
        number = self.ids.number(observation_id)
        return number if number is not None and may_see(self.guard(number)[1], view) else None

    def visible(self, view: View, statuses: Sequence[Status] = ("active",)) -> Visible:
        """Which rows the caller may see, and have one of the statuses at `view.now`."""
        key = (view.clearance, view.sensitivities, view.namespaces, frozenset(statuses))
        mask = self._masks.get(key)
        now = micros(view.now)
        if mask is None or now < mask.now:
            mask = self._masks[key] = _Mask(self, view, frozenset(statuses), now)
        mask.expire_until(now)
        self._masks.move_to_end(key)
        while len(self._masks) > _KEPT_MASKS:
            self._masks.popitem(last=False)
        return mask.visible

    def fitting(self, wanted: Filter) -> set[int] | None:
        """The rows that carry the labels that `wanted` names, or None where it names none."""
        groups = [
            [_label(name, value) for value in _values(getattr(wanted, asked))]
            for asked, name in _FILTERED.items()
            if getattr(wanted, asked) not in {None, ()}
        ]
        groups += [[_label(f"metadata.{key}", written(value))] for key, value in wanted.metadata.items()]
        found: set[int] | None = None
        for group in sorted(groups, key=lambda labels: sum(len(self.labels.of(label)) for label in labels)):
            rows: set[int] = set()
            for label in group:
                rows.update(self._without_any(label) if label in _EMPTY else self.labels.of(label))
            found = rows if found is None else found & rows
        return found

    def _without_any(self, empty: str) -> set[int]:
        """The rows that have nothing in the field whose label with an empty value is `empty`."""
        others = (numbers for label, numbers in self.labels.items() if label.startswith(empty))
        return set(range(len(self))).difference(*others)

    def test(self, wanted: Filter) -> Callable[[int], bool]:
        """What tells of a row whether it fits what of `wanted` is neither label nor status; `always` for nothing."""
        checks = list(self._checks(wanted))
        if len(checks) < 2:
            return checks[0] if checks else always
        return lambda number: all(check(number) for check in checks)

    def _checks(self, wanted: Filter) -> Iterator[Callable[[int], bool]]:
        if wanted.after is not None:
            begin = micros(wanted.after)
            yield lambda number: self.created[number] >= begin
        if wanted.before is not None:
            end = micros(wanted.before)
            yield lambda number: self.created[number] < end
        if wanted.min_importance > 0:
            yield lambda number: self.importance[number] >= wanted.min_importance
        if wanted.visibilities:
            yield lambda number: self.guard(number)[1].visibility in wanted.visibilities
        if wanted.quiet_since is not None:
            last = micros(wanted.quiet_since)
            yield lambda number: self.quiet[number] <= last
        if wanted.fading is not None:
            at, per_day = micros(wanted.fading.at), wanted.fading.per_day
            yield lambda number: self.settled(number, at, per_day) is not None

    def settled(self, number: int, at: int, per_day: float) -> tuple[float, int] | None:
        """What `stores.consolidation.consolidated` says of the row, and its touches; it is not read for that."""
        elapsed = (at - (self.consolidated[number] or self.updated[number])) / 1_000_000
        touches = self.uses[number] + self.mentions[number] + self.confirms[number]
        strength = settled(
            self.standing(number),
            self.importance[number],
            touches - self.consolidated_touches[number],
            elapsed=elapsed,
            quiet=min(elapsed, max(0.0, (at - self.quiet[number]) / 1_000_000)),
            rate=per_day / 2 if TYPES[self.types[number]] in LASTING_TYPES else per_day,
        )
        return None if strength is None else (strength, touches)

    def in_order(self, order: Order, numbers: set[int] | None, *, ascending: bool, after: str | None) -> Iterator[int]:
        """Rows by time, all of them or those in `numbers`, beginning behind the row `after`."""
        times = self.created if order == "created" else self.updated
        few = numbers is not None and is_few(len(numbers), len(self))
        keys = sorted(times[number] << 32 | number for number in numbers or ()) if few else self._sorted(order)
        begin = None if after is None else times[self.numbers[after]] << 32 | self.numbers[after]
        if ascending:
            chosen: Iterable[int] = keys[bisect.bisect_right(keys, begin) if begin is not None else 0 :]
        else:
            end = bisect.bisect_left(keys, begin) if begin is not None else len(keys)
            chosen = (keys[at] for at in range(end - 1, -1, -1))
        for key in chosen:
            number = key & 0xFFFFFFFF
            if few or numbers is None or number in numbers:
                yield number

    def match(self, number: int, score: float) -> Match:
        """The row as something found."""
        return Match(
            self.ids[number],
            score,
            TYPES[self.types[number]],
            self.sessions[self.session_of[number]],
            moment(self.created[number]),
            moment(self.updated[number]),
            self._rank(number),
            self.mentions[number],
            self.uses[number],
            self.confirms[number],
        )

    def beside(self, number: int, visible: Visible, reach: int) -> dict[int, int] | None:
        """The visible rows next to one in its session, with how far off they are; None for a row without a session."""
        session = self.sessions[self.session_of[number]]
        if session is None:
            return None
        line = self._lines.setdefault(visible, Lines(visible)).of(
            session, self.labels.of(_label("session_id", session))
        )
        at = bisect.bisect_left(line, number)
        begin = max(0, at - reach)
        return {other: begin + step - at for step, other in enumerate(line[begin : at + reach + 1]) if other != number}

    def holders(self, name: Labelled, flags: bytearray) -> Iterator[tuple[str, list[int]]]:
        """The values of a field, folded, each with the visible rows that hold it."""
        start = _label(name, "")
        for label, numbers in self.labels.items():
            if label.startswith(start) and (seen := [number for number in numbers if flags[number]]):
                yield label[len(start) :], seen

    def twins(self, row: Observation) -> list[int]:
        """Rows of the same agent, namespace and visibility that say the same, whatever their status."""
        if self._twins is None:
            self._twins = {}
            for number in self.numbers.values():
                self._twins.setdefault(bytes(self.twin_keys[number * 16 : number * 16 + 16]), []).append(number)
        return self._twins.get(twin_key(row), [])

    def type(self, number: int) -> str:
        """The row's type."""
        return TYPES[self.types[number]]

    def count_active(self) -> int:
        """How many rows have the status active, whoever may see them."""
        return sum(self._sizes[number] for number in self._active_classes())

    def active(self) -> list[int]:
        """The rows whose status is active, whoever may see them."""
        wanted = self._active_classes()
        return [number for number, found in enumerate(self.class_of) if found in wanted]

    def derived_from(self, observation_id: str) -> list[int]:
        """The rows that were made from that one."""
        return list(self.labels.of(_label("derived_from", observation_id)))

    def counting(self, besides: AbstractSet[int] = frozenset()) -> list[Event]:
        """The lines that say how often each row was used and how strong it is; those of `besides` are left out.

        Rows that were used as often, and last at once, have one line together; so have those of one consolidation.
        """
        strong: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        counted: defaultdict[tuple[int, tuple[tuple[str, Any], ...]], list[str]] = defaultdict(list)
        for number in self.numbers.values():
            if number in besides:
                continue
            fields: dict[str, Any] = {}
            if self.uses[number]:
                fields["use_count"] = self.uses[number]
            if self.used[number]:
                fields["last_used_at"] = format_time(moment(self.used[number]))
            if self.consolidated[number] and self.strength[number] < 0:
                touches = self.consolidated_touches[number]
                at = format_time(moment(self.consolidated[number]))
                fields |= {"strength": None, "consolidated_at": at, "consolidated_touches": touches}
            elif self.consolidated[number]:
                set_to = [self.strength[number], self.consolidated_touches[number]]
                strong[self.consolidated[number]][self.ids[number]] = set_to
            if fields:
                at_last = max(self.used[number], self.consolidated[number])
                counted[at_last, tuple(fields.items())].append(self.ids[number])
        return [
            *(
                Event(kind="counts", at=moment(at), ids=tuple(ids), fields=dict(fields))
                for (at, fields), ids in counted.items()
            ),
            *(Event(kind="consolidate", at=moment(at), ids=tuple(rows), fields=rows) for at, rows in strong.items()),
        ]

    def set_counts(self, number: int, row: Observation) -> None:
        """How often a row was handed out so far, and when last, and how strong it is."""
        self.uses[number] = row.use_count
        self.used[number] = 0 if row.last_used_at is None else micros(row.last_used_at)
        self.quiet[number] = micros(row.quiet_since)
        self._set_strength(number, row)

    def relocate(self, moved: Mapping[int, Place]) -> None:
        """The lines of the journal stand elsewhere now; what stands nowhere any more is forgotten."""
        for number, start in enumerate(self.starts):
            self.starts[number], self.lengths[number] = moved.get(start, (0, 0))
        self.later = {
            number: [moved[place[0]] for place in places if place[0] in moved] for number, places in self.later.items()
        }

    def weighed(self, number: int) -> Weighed:
        """The row, weighed for a cap."""
        uses = self.uses[number] + self.mentions[number]
        return Weighed(self.ids[number], number, TYPES[self.types[number]], self.standing(number), uses)

    def is_current(self, number: int, now: datetime) -> bool:
        """Whether the row is active and not past its time."""
        return self.guard(number)[0] == "active" and self.expires[number] > micros(now)

    def fold_triples(self, event: Event) -> None:
        """A fact was stated or taken back."""
        if event.triple is not None:
            self.triples.setdefault(event.triple.id, event.triple)
        if event.kind == "retract":
            for each in event.ids:
                self.triples.pop(each, None)

    def _set_strength(self, number: int, row: Observation) -> None:
        self.strength[number] = _UNCHANGED if row.strength is None else row.strength
        self.consolidated[number] = 0 if row.consolidated_at is None else micros(row.consolidated_at)
        self.consolidated_touches[number] = max(0, row.consolidated_touches)

    def _consolidation(self, number: int) -> tuple[float | None, datetime, int] | None:
        if not self.consolidated[number]:
            return None
        strength = self.strength[number]
        at = moment(self.consolidated[number])
        return (None if strength < 0 else strength, at, self.consolidated_touches[number])

    def _class(self, status: str, guard: Guard) -> int:
        key = (status, guard)
        sizes, number = self._sizes, self._class_numbers.get(key)
        if number is None:
            number = self._class_numbers[key] = len(self.classes)
            self.classes.append(key)
            sizes.append(0)
        sizes[number] += 1
        return number

    @cached_property
    def _class_numbers(self) -> dict[tuple[str, Guard], int]:
        return {each: number for number, each in enumerate(self.classes)}

    @cached_property
    def _sizes(self) -> list[int]:
        sizes = Counter(self.class_of)
        return [sizes[number] for number in range(len(self.classes))]

    def _set_class(self, number: int, status: str, guard: Guard) -> None:
        self._sizes[self.class_of[number]] -= 1
        self.class_of[number] = self._class(status, guard)

    def _active_classes(self) -> set[int]:
        return {number for number, (status, _) in enumerate(self.classes) if status == "active"}

    def _note_added(self, number: int) -> None:
        for order, keys in self._orders.items():
            times = self.created if order == "created" else self.updated
            bisect.insort(keys, times[number] << 32 | number)
        if self.expires[number] != NEVER:
            bisect.insort(self.expiring, (self.expires[number], number))
        if self._twins is not None:
            self._twins.setdefault(bytes(self.twin_keys[-16:]), []).append(number)
        for mask in self._masks.values():
            mask.append(number)

    def _show(self, number: int) -> None:
        for mask in self._masks.values():
            mask.refresh(number)

    def _move(self, number: int, order: Order, new: int) -> None:
        keys = self._orders.get(order)
        times = self.created if order == "created" else self.updated
        if keys is not None and times[number] != new:
            del keys[bisect.bisect_left(keys, times[number] << 32 | number)]
            bisect.insort(keys, new << 32 | number)
        times[number] = new

    def _sorted(self, order: Order) -> list[int]:
        keys = self._orders.get(order)
        if keys is None:
            times = self.created if order == "created" else self.updated
            keys = self._orders[order] = sorted(times[number] << 32 | number for number in range(len(self)))
        return keys

    def _set_expiry(self, number: int, new: int) -> None:
        if self.expires[number] == new:
            return
        if self.expires[number] != NEVER:
            del self.expiring[bisect.bisect_left(self.expiring, (self.expires[number], number))]
        if new != NEVER:
            bisect.insort(self.expiring, (new, number))
        self.expires[number] = new

    def _set_twin_key(self, number: int, new: bytes) -> None:
        old = bytes(self.twin_keys[number * 16 : number * 16 + 16])
        if old == new:
            return
        self.twin_keys[number * 16 : number * 16 + 16] = new
        if self._twins is not None:
            self._twins[old].remove(number)
            if any(new):
                bisect.insort(self._twins.setdefault(new, []), number)

    def _relabel(self, number: int, old: set[str], new: set[str]) -> None:
        for label in old - new:
            self.labels.remove(label, number)
        for label in new - old:
            self.labels.insert(label, number)

    def _link(self, row_id: str, later: str | None) -> None:
        if later is not None:
            self.before.setdefault(later, []).append(row_id)
            self.after[row_id] = later

    def _unlink(self, row_id: str) -> None:
        others = self.before.get(self.after.pop(row_id, ""), [])
        if row_id in others:  # it is not where the later one was erased
            others.remove(row_id)

    def _session(self, session_id: str | None) -> int:
        number = self._session_numbers.get(session_id)
        if number is None:
            number = self._session_numbers[session_id] = len(self.sessions)
            self.sessions.append(session_id)
        return number

    @cached_property
    def _session_numbers(self) -> dict[str | None, int]:
        return {each: number for number, each in enumerate(self.sessions)}


class _Mask:
    """A `Visible` that is kept up to date."""

    def __init__(self, table: Table, view: View, statuses: frozenset[Status], now: int) -> None:
        self._table = table
        self._view = view
        self._statuses = statuses
        self._allowed: list[bool] = []
        self.now = -NEVER
        self._know_classes()
        self.visible = Visible(bytearray(map(self._allowed.__getitem__, table.class_of)))
        self.expire_until(now)

    def append(self, number: int) -> None:
        """A row was added."""
        self.visible.flags.append(self._is_visible(number))

    def refresh(self, number: int) -> None:
        """A row became another one."""
        if self.visible.flags[number] != (seen := self._is_visible(number)):
            self.visible.flags[number] = seen
            self.visible.version += 1

    def expire_until(self, now: int) -> None:
        """Time has passed."""
        if now == self.now:
            return
        expiring = self._table.expiring
        begin = bisect.bisect_right(expiring, (self.now, NEVER))
        self.now = now
        for _, number in expiring[begin : bisect.bisect_right(expiring, (now, NEVER))]:
            self.refresh(number)

    def _is_visible(self, number: int) -> bool:
        if len(self._allowed) < len(self._table.classes):
            self._know_classes()
        found = self._table.class_of[number]
        if self._table.expires[number] <= self.now and self._table.classes[found][0] == "active":
            return "expired" in self._statuses and may_see(self._table.classes[found][1], self._view)
        return self._allowed[found]

    def _know_classes(self) -> None:
        for status, guard in self._table.classes[len(self._allowed) :]:
            self._allowed.append(status in self._statuses and may_see(guard, self._view))


def always(_: int) -> bool:
    """Every row fits."""
    return True


def is_few(some: int, rows: int) -> bool:
    """Whether it takes less to put some rows in order than to pass all of them by."""
    return some * 4 < rows


def twin_key(row: Observation) -> bytes:
    """16 bytes that are the same for rows that say the same, of one agent, namespace and visibility."""
    what = f"{row.hash}\0{row.agent_id}\0{row.namespace}\0{row.visibility}"
    return hashlib.blake2b(what.encode(), digest_size=16).digest()


def text_digest(row: Observation) -> int:
    """A number that changes when what is searched does; never 0, which stands for nothing."""
    parts = (getattr(row, name) for name in SEARCHED)
    said = "\0".join(part if isinstance(part, str) else "\1".join(part) for part in parts)
    said += f"\0{row.created_at.date()}"
    return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest(), "little") >> 1 or 1


def _searched(row: Observation) -> int:
    return text_digest(row) if row.status == "active" else 0


def labels_of(row: Observation) -> list[str]:
    """What a row can be found by, each once."""
    labels = [_label(name, value) for name in (*EXACT, *_FOLDED) for value in values_of(row, name)]
    labels += [_label(f"metadata.{key}", written(value)) for key, value in row.metadata.items()]
    return list(dict.fromkeys(labels))


def _label(name: str, value: str) -> str:
    return f"{name}\0{value if name.startswith('metadata.') else key_of(name, value)}"


_EMPTY = frozenset(_label(name, "") for name in ("agent_id", "project", "subject", "category"))
"""What is asked for by who wants rows that have nothing there."""


def _values(asked: object) -> Sequence[str]:
    return asked if isinstance(asked, tuple) else (str(asked),)
