"""Parts of the table: columns, ids, labels and masks; and the history of a row as a caller may see it.

An event of the history is visible if the row was visible before and after it, and is visible now: text written while
the row was hidden from a caller stays hidden. Ids of hidden rows are removed, and no result depends on a hidden row.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import replace

from chatbot.stores.access import Guard, View, may_see
from chatbot.stores.fields import Field, Form, InTable
from chatbot.stores.observation import (
    FIELDS,
    NEVER,
    WRITTEN_DEFAULTS,
    Observation,
    Status,
    replace_unchecked,
    searched_of,
)
from chatbot.stores.query import LABELS, EventStep, Version, key_of
from chatbot.stores.records import ID, canonical, micros
from chatbot.stores.row_events import Event, apply

if TYPE_CHECKING:
    from chatbot.stores.observations.table import Table

ID_LENGTH = 36
Key = TypeVar("Key")
_NO_ROWS: Sequence[int] = ()


class Ids(list[str]):
    """Ids of rows by number, the first ones joined in `text`. Numbers of erased rows are not used again; ids may be."""

    def __init__(self, text: str = "", gone: Iterable[int] = ()) -> None:
        super().__init__(text[at : at + ID_LENGTH] for at in range(0, len(text), ID_LENGTH))
        self.gone = set(gone)
        """The numbers whose rows were erased."""
        self.erased = {self[number] for number in self.gone}
        """Ids of erased rows; one may be in use again."""
        self.numbers = {each: number for number, each in enumerate(self) if number not in self.gone}
        """The numbers of all rows that were not erased, in order."""

    def add(self, each: str) -> int:
        """Add a row and return its number."""
        self.append(each)
        number = self.numbers[each] = len(self) - 1
        return number

    def add_erased(self, each: str) -> None:
        """Add a number whose row is gone."""
        self.append(each)
        self.erased.add(each)
        self.gone.add(len(self) - 1)

    def erase(self, each: str) -> None:
        """Remove a row; its number stays taken."""
        self.gone.add(self.numbers.pop(each))
        self.erased.add(each)


class Numbering(dict[Key, int]):
    """Maps each of `values` to its number; looking up a new value adds it at the end of both."""

    def __init__(self, values: list[Key]) -> None:
        super().__init__({each: number for number, each in enumerate(values)})
        self._values = values

    def __missing__(self, key: Key) -> int:
        self._values.append(key)
        self[key] = number = len(self)
        return number


def numbers_in(code: str, part: bytes | memoryview) -> array[Any]:
    """Return the numbers in a part of a snapshot."""
    found = array(code)
    found.frombytes(part)
    return found


class LabelTexts(NamedTuple):
    """Labels in order: joined texts, joined rows, and the end of each label's rows."""

    texts: str
    text_ends: array[int]
    rows: bytes | memoryview
    row_ends: array[int]

    def all(self) -> Iterator[tuple[str, array[int]]]:
        """Yield each label with its rows."""
        rows = numbers_in("I", self.rows)
        for (begin, end), (first, stop) in zip(
            pairwise((0, *self.text_ends)), pairwise((0, *self.row_ends)), strict=True
        ):
            yield self.texts[begin:end], rows[first:stop]


class Labels(dict[str, "array[int]"]):
    """Maps labels to their rows, ascending."""

    def of(self, label: str) -> Sequence[int]:
        """Return the rows with the label, which must not be changed."""
        return self.get(label, _NO_ROWS)

    def add(self, label: str, number: int) -> None:
        """Add the label to a row, mostly the last one."""
        if (rows := self.get(label)) is None:
            self[label] = array("I", (number,))
        elif rows[-1] < number:
            rows.append(number)
        else:
            insort(rows, number)

    def remove(self, label: str, number: int) -> None:
        """Remove the label from a row, which may lack it if the journal was edited in place."""
        rows = self.get(label)
        if rows is not None and number in rows:
            rows.remove(number)
            if not rows:
                del self[label]

    def erase(self, numbers: AbstractSet[int]) -> None:
        """Remove all labels from these rows."""
        for label, held in [each for each in self.items() if not numbers.isdisjoint(each[1])]:
            if left := [number for number in held if number not in numbers]:
                self[label] = array("I", left)
            else:
                del self[label]

    def as_texts(self) -> LabelTexts:
        """Return all labels."""
        ordered = sorted(self.items())
        text_ends = array("I", accumulate(len(label) for label, _ in ordered))
        row_ends = array("I", accumulate(len(rows) for _, rows in ordered))
        texts, rows = "".join(label for label, _ in ordered), b"".join(rows.tobytes() for _, rows in ordered)
        return LabelTexts(texts, text_ends, rows, row_ends)


def labels_of(row: Observation) -> list[str]:
    """Return the labels by which a row can be found, each once."""
    labels = [
        label_of(name, value)
        for name, held in zip(_LABEL_NAMES, _labelled(row), strict=True)
        if held
        for value in ((held,) if isinstance(held, str) else held)
    ]
    labels += [label_of(f"metadata.{key}", canonical(value)) for key, value in row.metadata.items()]
    return list(dict.fromkeys(labels))


# For each attribute of a row that holds labels, the name of its labels.
_LABEL_NAMES = tuple(name for name, held in LABELS.items() for _ in held)
_labelled = attrgetter(*(each.name for held in LABELS.values() for each in held))


def label_of(name: str, value: str) -> str:
    """Return the label of a value in a field."""
    return f"{name}\0{value if name.startswith('metadata.') else key_of(name, value)}"


class Visible:
    """One flag a row: 1 if it may be seen. A row without a flag may not.

    `version` changes whenever the flag of an existing row does; appending rows does not change it. Results computed
    from it are cached with it, so extend the object instead of replacing it.
    """

    __slots__ = ("__weakref__", "flags", "version")

    def __init__(self, flags: bytearray) -> None:
        self.flags = flags
        self.version = 0

    def sees(self, row: int) -> bool:
        """Return whether the row may be seen."""
        return row < len(self.flags) and bool(self.flags[row])


class Mask:
    """A `Visible` that is kept up to date; call `set_time` before use."""

    def __init__(self, table: Table, view: View, statuses: frozenset[Status]) -> None:
        self._table = table
        self._view = view
        self._statuses = statuses
        self._allowed: list[bool] = []
        self._now = -NEVER
        self._add_classes()
        self.visible = Visible(bytearray(map(self._allowed.__getitem__, table.class_of)))

    def append(self, number: int) -> None:
        """Add the flag of a new row."""
        self.visible.flags.append(self._is_visible(number))

    def refresh(self, number: int) -> None:
        """Update the flag of a row that changed."""
        if self.visible.flags[number] != (seen := self._is_visible(number)):
            self.visible.flags[number] = seen
            self.visible.version += 1

    def set_time(self, now: int) -> None:
        """Update the flags of rows whose expiry is between the last time and `now`, which may be earlier."""
        if now == self._now:
            return
        expiring = self._table.expiring
        begin, end = (bisect_right(expiring, (each, NEVER)) for each in sorted((self._now, now)))
        self._now = now
        for _, number in expiring[begin:end]:
            self.refresh(number)

    def _is_visible(self, number: int) -> bool:
        if len(self._allowed) < len(self._table.classes):
            self._add_classes()
        found = self._table.class_of[number]
        if self._table.expires_at[number] <= self._now and self._table.classes[found][0] == "active":
            return "expired" in self._statuses and may_see(self._table.classes[found][1], self._view)
        return self._allowed[found]

    def _add_classes(self) -> None:
        for status, guard in self._table.classes[len(self._allowed) :]:
            self._allowed.append(status in self._statuses and may_see(guard, self._view))


class Column(NamedTuple):
    """A number that is kept for each row."""

    code: str
    """Its type code in an `array`."""
    of: Callable[[Observation], float] | None = None
    """Function from a row that is added or changed to its number; None if the table sets it by other means."""
    blank: float = 0
    """The number of a row that was erased before it was read."""
    number: Callable[[Any], float] = float
    """Function from the value of the row's field to a number."""
    value: Callable[[Any], Any] | None = None
    """Function from a number to the value of the row's field; None if it is not needed."""


def _column_of(field: Field, mark: InTable) -> Column:
    form, none = field.form or Form(), mark.none
    value_of, number, value = attrgetter(field.name), form.number, form.value
    if field.default is not None:
        return Column(form.code, lambda row: number(value_of(row)), mark.blank, number, value)

    def number_or_none(found: Any) -> float:
        return none if found is None else number(found)

    return Column(
        form.code,
        lambda row: number_or_none(value_of(row)),
        mark.blank,
        number_or_none,
        lambda kept: None if kept == none else value(kept) if value else kept,
    )


COLUMNS: Mapping[str, Column] = {
    "class_of": Column("I"),
    "starts": Column("Q"),
    "lengths": Column("I"),
    "session_of": Column("I"),
    "texts": Column("q", lambda row: text_digest(row) if row.status == "active" else 0),
    "quiet": Column("q", lambda row: micros(row.quiet_since)),
    **{name: _column_of(each, mark) for name, each in FIELDS.items() if (mark := each.mark(InTable))},
}
FROM_ROW = {name: column.of for name, column in COLUMNS.items() if column.of is not None}


def twin_key(row: Observation) -> bytes:
    """Return 16 bytes that are equal for rows with the same content, agent, namespace, visibility and principal."""
    what = f"{row.hash}\0{row.agent_id}\0{row.namespace}\0{row.visibility}\0{row.principal}"
    return hashlib.blake2b(what.encode(), digest_size=16).digest()


def text_digest(row: Observation) -> int:
    """Return a number that changes with the searched text; never 0, which means no text."""
    said = "\0".join([part if isinstance(part, str) else "\1".join(part) for part in searched_of(row)])
    said += f"\0{row.created_at.date()}"
    return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest(), "little") >> 1 or 1


def column_names() -> list[list[str]]:
    """Return the columns as a snapshot names them, to detect a snapshot of another release."""
    return [[name, column.code] for name, column in COLUMNS.items()]


Sees = Callable[[str], bool]
"""Returns True for an id that the caller may know."""


def sees_of(view: View, guard_of: Callable[[str], Guard | None]) -> Sees:
    """Return a test for ids that the caller may know: of a row that is gone (no guard) only at full clearance."""
    everything = view.asking_all()

    def sees(observation_id: str) -> bool:
        guard = guard_of(observation_id)
        return view.clearance == "full" if guard is None else may_see(guard, everything)

    return sees


def without_hidden_ids(row: Observation, sees: Sees) -> Observation:
    """Return the row without ids of hidden rows."""
    after, sources = row.superseded_by, row.derived_from
    hidden: dict[str, Any] = {}
    if after is not None and not sees(after):
        hidden["superseded_by"] = None
    if sources and not all(map(sees, sources)):
        hidden["derived_from"] = tuple(filter(sees, sources))
    return replace_unchecked(row, **hidden) if hidden else row


def version(row: Observation, events: Sequence[Event], view: View, sees: Sees) -> Version:
    """Return a visible row with its visible events, from the one that added it."""
    steps: list[EventStep] = []
    before: Observation | None = None
    for event in events:
        after = event.row if before is None else apply(before, event)
        if all(may_see(each, view) for each in (before, after) if each is not None):
            steps.append((_shown_event(event, sees), _changes(event, before, after, sees)))
        before = after
    return Version(without_hidden_ids(row, sees), tuple(steps))


def _changes(
    event: Event, before: Observation | None, after: Observation | None, sees: Sees
) -> dict[str, tuple[Any, Any]]:
    """Return the fields that the event changed, each with its written value before and after."""
    if before is None or after is None or not event.fields:
        return {}
    old, new = (WRITTEN_DEFAULTS | without_hidden_ids(row, sees).as_json() for row in (before, after))
    values = ((name, (old.get(name), new.get(name))) for name in sorted(event.fields))
    return {name: each for name, each in values if each[0] != each[1]}


def _shown_event(event: Event, sees: Sees) -> Event:
    """Return the event without ids of hidden rows, also in its reason and its fields."""
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
    if event.row is not None and (row := without_hidden_ids(event.row, sees)) is not event.row:
        hidden["row"] = row
    return replace(event, **hidden) if hidden else event
