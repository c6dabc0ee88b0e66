"""Labels of rows. Of a snapshot's labels, those that are asked for are read, or all if they are many."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, pairwise
from typing import NamedTuple

_MANY = 1_000
"""Who asks for more of them is better off with all."""
_ROW_BYTES = array("I").itemsize
_NO_ROWS: Sequence[int] = ()


class LabelTexts(NamedTuple):
    """Labels in their order: the texts and the rows of all, one behind the other, and where those of each end."""

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
        """A row carries the label, the last of all."""
        self._own(label).append(number)

    def insert(self, label: str, number: int) -> None:
        """A row carries the label."""
        insort(self._own(label), number)

    def remove(self, label: str, number: int) -> None:
        """A row carries the label no more."""
        self._find_all()
        rows = self._rows[label]
        rows.remove(number)
        if not rows:
            del self._rows[label]

    def erase(self, numbers: AbstractSet[int]) -> None:
        """These rows carry no label any more."""
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
        if self._asked > _MANY:
            self._find_all()
        elif (rows := self._written.find(label)) is not None:
            self._rows[label] = rows
        return self._rows.get(label)

    def _find_all(self) -> None:
        if self._written is not None:
            self._rows = dict(self._written.all()) | self._rows
            self._written = None
