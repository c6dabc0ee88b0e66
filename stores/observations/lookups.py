"""Rows by id, by label, and by who may see them.

Ids and labels of a snapshot are read one by one, or all at once if many are asked for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import NamedTuple

from chatbot.stores.observation import Observation
from chatbot.stores.query import LABELS, key_of, written

ID_LENGTH = 36
_MANY_IDS = 2_000
"""After this many questions, all ids are looked up at once."""


class Ids:
    """Rows are numbered as they are added. The number of an erased row is not used again; its id may be.

    `written` are the first ids, joined; `gone` are the numbers of erased ones, and `order` are the numbers of the
    others in the order of their ids.
    """

    def __init__(self, written: bytes | memoryview = b"", gone: Iterable[int] = (), order: Sequence[int] = ()) -> None:
        self._written = written
        self._begin = len(written) // ID_LENGTH
        self._order = order
        self._asked = 0
        self._added: list[str] = []
        self._numbers: dict[str, int] = {}
        self.gone = set(gone)
        """The numbers whose rows were erased."""
        self.erased = {self._cut(number) for number in self.gone}
        """Their ids; one may have been used again."""

    def __len__(self) -> int:
        return self._begin + len(self._added)

    def __getitem__(self, number: int) -> str:
        return self._cut(number) if number < self._begin else self._added[number - self._begin]

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def add(self, each: str) -> int:
        """Add a row and return its number."""
        self._added.append(each)
        number = self._numbers[each] = len(self) - 1
        return number

    def add_erased(self, each: str) -> int:
        """Add a number whose row is gone."""
        self._added.append(each)
        self.erased.add(each)
        self.gone.add(len(self) - 1)
        return len(self) - 1

    def erase(self, each: str) -> None:
        """Remove a row; its number stays taken."""
        self.gone.add(self.numbers[each])
        del self._numbers[each]
        self.erased.add(each)

    def number(self, each: str) -> int | None:
        """The number of a row, unless there is none or it was erased."""
        found = self._numbers.get(each)
        if found is not None or not self._order:
            return found
        self._asked += 1
        if self._asked > _MANY_IDS:
            return self.numbers.get(each)
        at = bisect_left(self._order, each, key=self._cut)
        return self._order[at] if at < len(self._order) and self._cut(self._order[at]) == each else None

    @property
    def numbers(self) -> Mapping[str, int]:
        """The numbers of all rows that were not erased, in order."""
        if self._written:
            self._look_up_all()
        return self._numbers

    def text(self) -> str:
        """Return all ids, joined."""
        return str(self._written, "ascii") + "".join(self._added)

    def order(self) -> list[int]:
        """The numbers of all rows that were not erased, in the order of their ids."""
        return sorted(self.numbers.values(), key=self._added.__getitem__)  # which are all, now that they are looked up

    def _cut(self, number: int) -> str:
        return str(self._written[number * ID_LENGTH : (number + 1) * ID_LENGTH], "ascii")

    def _look_up_all(self) -> None:
        text = str(self._written, "ascii")
        ids = [text[at : at + ID_LENGTH] for at in range(0, len(text), ID_LENGTH)]
        self._numbers = {each: number for number, each in enumerate(ids) if number not in self.gone} | self._numbers
        self._added = ids + self._added
        self._written, self._begin, self._order = b"", 0, ()


_MANY_LABELS = 1_000
"""After this many questions, all labels are read at once."""
_ROW_BYTES = array("I").itemsize
_NO_ROWS: Sequence[int] = ()


class LabelTexts(NamedTuple):
    """Labels in order: their texts joined, their rows joined, and where those of each end."""

    texts: str
    text_ends: array[int]
    rows: bytes | memoryview
    row_ends: array[int]

    def text(self, at: int) -> str:
        """A label by its place."""
        return self.texts[self.text_ends[at - 1] if at else 0 : self.text_ends[at]]

    def find(self, label: str) -> array[int] | None:
        """The rows of a label, if it is there."""
        at = bisect_left(range(len(self.text_ends)), label, key=self.text)
        if at == len(self.text_ends) or self.text(at) != label:
            return None
        rows = array("I")
        rows.frombytes(self.rows[(self.row_ends[at - 1] if at else 0) * _ROW_BYTES : self.row_ends[at] * _ROW_BYTES])
        return rows

    def all(self) -> Iterator[tuple[str, array[int]]]:
        """Each label with its rows."""
        rows = array("I")
        rows.frombytes(self.rows)
        for (begin, end), (first, stop) in zip(
            pairwise((0, *self.text_ends)), pairwise((0, *self.row_ends)), strict=True
        ):
            yield self.texts[begin:end], rows[first:stop]


class Labels:
    """From labels to their rows, ascending."""

    def __init__(self, written: LabelTexts | None = None) -> None:
        self._written = written
        self._asked = 0
        self._rows: dict[str, array[int]] = {}

    def of(self, label: str) -> Sequence[int]:
        """The rows that carry the label; not to be changed."""
        return self._rows.get(label) or self._found(label) or _NO_ROWS

    def items(self) -> Iterator[tuple[str, array[int]]]:
        """Each label with its rows; not to be changed."""
        self._find_all()
        return iter(self._rows.items())

    def add(self, label: str, number: int) -> None:
        """Add the label to the last row."""
        self._own(label).append(number)

    def insert(self, label: str, number: int) -> None:
        """Add the label to a row."""
        insort(self._own(label), number)

    def remove(self, label: str, number: int) -> None:
        """Remove the label from a row."""
        self._find_all()
        rows = self._rows[label]
        rows.remove(number)
        if not rows:
            del self._rows[label]

    def erase(self, numbers: AbstractSet[int]) -> None:
        """Remove all labels from these rows."""
        self._find_all()
        for label, held in [each for each in self._rows.items() if not numbers.isdisjoint(each[1])]:
            if left := [number for number in held if number not in numbers]:
                self._rows[label] = array("I", left)
            else:
                del self._rows[label]

    def written(self) -> LabelTexts:
        """Return all labels."""
        ordered = sorted(self.items())
        text_ends = array("I", accumulate(len(label) for label, _ in ordered))
        row_ends = array("I", accumulate(len(rows) for _, rows in ordered))
        texts, rows = "".join(label for label, _ in ordered), b"".join(rows.tobytes() for _, rows in ordered)
        return LabelTexts(texts, text_ends, rows, row_ends)

    def _own(self, label: str) -> array[int]:
        rows = self._rows.get(label) or self._found(label)
        if rows is None:
            rows = self._rows[label] = array("I")
        return rows

    def _found(self, label: str) -> array[int] | None:
        """Return the written rows of a label that was not read yet."""
        if self._written is None:
            return None
        self._asked += 1
        if self._asked > _MANY_LABELS:
            self._find_all()
        elif (rows := self._written.find(label)) is not None:
            self._rows[label] = rows
        return self._rows.get(label)

    def _find_all(self) -> None:
        if self._written is not None:
            self._rows = dict(self._written.all()) | self._rows
            self._written = None


def labels_of(row: Observation) -> list[str]:
    """Return the labels by which a row can be found, each once."""
    labels = [
        label_of(name, value)
        for name, held in zip(_LABEL_NAMES, _labelled(row), strict=True)
        if held
        for value in ((held,) if isinstance(held, str) else held)
    ]
    labels += [label_of(f"metadata.{key}", written(value)) for key, value in row.metadata.items()]
    return list(dict.fromkeys(labels))


_LABEL_NAMES = tuple(name for name, held in LABELS.items() for _ in held)
_labelled = attrgetter(*(each.name for held in LABELS.values() for each in held))


def label_of(name: str, value: str) -> str:
    """Return the label of a value in a field."""
    return f"{name}\0{value if name.startswith('metadata.') else key_of(name, value)}"


class Visible:
    """One flag a row: 1 if it may be seen. A row without a flag may not.

    `version` changes whenever the flag of an existing row does; rows are appended without changing it. Whatever is
    computed from one of these is kept with it, so keep the object and let it grow.
    """

    __slots__ = ("__weakref__", "_lines", "_lines_version", "flags", "version")

    def __init__(self, flags: bytearray, version: int = 0) -> None:
        self.flags = flags
        self.version = version
        self._lines: dict[str, tuple[array[int], int, int]] = {}
        self._lines_version = version

    def sees(self, row: int) -> bool:
        """Return whether the row may be seen."""
        return row < len(self.flags) and bool(self.flags[row])

    def of_session(self, session: str, rows: Sequence[int]) -> array[int]:
        """Return the visible ones of `rows`, which are all rows of that session, in order.

        They are kept until a flag changes; new rows are appended.
        """
        if self.version != self._lines_version:
            self._lines_version = self.version
            self._lines.clear()
        line, known, last = self._lines.get(session, (array("I"), 0, -1))
        if known > len(rows) or (known and rows[known - 1] != last):
            line, known = array("I"), 0
        if known < len(rows):
            line.extend(row for row in rows[known:] if self.flags[row])
            self._lines[session] = (line, len(rows), rows[-1])
        return line
