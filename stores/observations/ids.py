"""The ids of rows by their numbers, and back. Those of a snapshot stay one text until all of them are wanted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

ID_LENGTH = 36
_MANY = 2_000
"""Who asks more often than this is likely to go on."""


class Ids:
    """Rows are numbered as they are added. An id that is erased leaves its number behind, and may be used again.

    `written` are the first ids, one behind the other, `gone` are the numbers of those that were erased, and `order` are
    the numbers of the others in the order of their ids.
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
        """Their ids, one of which may have been used again."""

    def __len__(self) -> int:
        return self._begin + len(self._added)

    def __getitem__(self, number: int) -> str:
        return self._cut(number) if number < self._begin else self._added[number - self._begin]

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def add(self, each: str) -> int:
        """A new row; its number."""
        self._added.append(each)
        number = self._numbers[each] = len(self) - 1
        return number

    def add_erased(self, each: str) -> int:
        """A number whose row is gone."""
        self._added.append(each)
        self.erased.add(each)
        self.gone.add(len(self) - 1)
        return len(self) - 1

    def erase(self, each: str) -> None:
        """Forget a row, keeping its number."""
        self.gone.add(self.numbers[each])
        del self._numbers[each]
        self.erased.add(each)

    def number(self, each: str) -> int | None:
        """The number of a row, unless there is none or it was erased."""
        found = self._numbers.get(each)
        if found is not None or not self._order:
            return found
        self._asked += 1
        if self._asked > _MANY:
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
        """All of them, one behind the other."""
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
