"""The postings of the segments in memory: decoded once, kept right while rows change, at most so many.

For each term in a field there is one list over all segments, without the rows that the overlay holds. For each caller
who may not see everything there is a second one, without the rows that it may not see.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from operator import is_not
from weakref import WeakKeyDictionary

from stores.observations.segments import Segment
from stores.observations.visible import Visible

MAX_POSTINGS = 1_000_000
_ENTRY_COST = 16
"""What a list costs beside its postings, lest a million empty ones be kept."""

Key = tuple[int, str]


class Scored:
    """Ascending rows, their codes, and what each was worth the last time, under the conditions of that time."""

    __slots__ = ("_conditions", "_counted", "_parts", "codes", "distinct", "rows")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.codes: list[int] = []
        self.distinct: frozenset[int] = frozenset()
        self._conditions: object = None
        self._parts: list[float] = []
        self._counted: tuple[list[frozenset[int]], int] = ([], 0)

    def count(self, others: Sequence[Scored]) -> int:
        """How many rows are in this list or in one of the others; as the last time, if no list is different now."""
        if not others:
            return len(self.rows)
        lists = [self.distinct, *(each.distinct for each in others)]  # another object with every change
        before, count = self._counted
        if len(lists) != len(before) or any(map(is_not, lists, before)):
            count = len(set(self.rows).union(*(each.rows for each in others)))
            self._counted = (lists, count)
        return count

    def parts(self, conditions: object, weigh: Callable[[Iterable[int]], Mapping[int, float]]) -> list[float]:
        """What each posting adds to a score: as the last time, if nothing that it depends on is different now."""
        if conditions != self._conditions:
            self._parts = list(map(weigh(self.distinct).__getitem__, self.codes))
            self._conditions = conditions
        return self._parts


class Listed(Scored):
    """The list over all segments. `stamp` changes with every change."""

    __slots__ = ("changes", "segments", "stamp")

    def __init__(self) -> None:
        super().__init__()
        self.segments: Sequence[Segment] = ()
        self.changes = 0
        self.stamp: object = None

    def extend(self, key: Key, segments: Sequence[Segment]) -> None:
        """Read what of `segments` is not in this list, and drop what comes from segments that are gone."""
        same = 0
        for old, new in zip(self.segments, segments, strict=False):
            if old is not new:
                break
            same += 1
        if same < len(self.segments):
            cut = bisect_left(self.rows, self.segments[same].start)
            del self.rows[cut:], self.codes[cut:]
        for segment in segments[same:]:
            if found := segment.postings(*key):
                self.rows += found[0]
                self.codes += found[1]
        self.segments = segments
        self.changes = 0
        self.changed()

    def drop(self, rows: Sequence[int]) -> None:
        """Remove rows that are in the overlay now."""
        for row in rows:
            place = bisect_left(self.rows, row)
            if place < len(self.rows) and self.rows[place] == row:
                del self.rows[place], self.codes[place]
                self.changed()

    def changed(self) -> None:
        """Note that the list is another one now."""
        self.distinct = frozenset(self.codes)
        self.stamp = object()
        self._conditions = None


class Filtered(Scored):
    """A list without what one caller may not see."""

    __slots__ = ("horizon", "stamp", "version")

    def __init__(self, listed: Listed, visible: Visible) -> None:
        super().__init__()
        flags = visible.flags
        rows = listed.rows
        if rows and rows[-1] >= len(flags):
            rows = rows[: bisect_left(rows, len(flags))]
        mask = bytes(map(flags.__getitem__, rows))
        self.rows = list(compress(rows, mask))
        self.codes = list(compress(listed.codes, mask))
        self.distinct = frozenset(self.codes)
        self.stamp = listed.stamp
        self.version = visible.version
        self.horizon = len(flags) if len(rows) < len(listed.rows) else None

    def is_for(self, listed: Listed, visible: Visible) -> bool:
        """Whether this is still right."""
        return (
            self.stamp is listed.stamp
            and self.version == visible.version
            and (self.horizon is None or self.horizon == len(visible.flags))
        )


class PostingsCache:
    """The lists, the least recently used of which are dropped when there are too many postings."""

    def __init__(self, limit: int = MAX_POSTINGS) -> None:
        self._limit = limit
        self._size = 0
        self._listed: OrderedDict[Key, Listed] = OrderedDict()
        self._filtered: WeakKeyDictionary[Visible, dict[Key, Filtered]] = WeakKeyDictionary()

    def clear(self) -> None:
        """Forget all lists."""
        self._listed.clear()
        self._filtered.clear()
        self._size = 0

    def listed(self, key: Key, segments: Sequence[Segment], log: Sequence[int]) -> Listed:
        """The list of a term in a field over all of the segments. `log` names the rows that the overlay has."""
        found = self._listed.get(key)
        if found is None:
            found = self._listed[key] = Listed()
            self._size += _ENTRY_COST
        elif found.segments is segments and found.changes == len(log):
            self._listed.move_to_end(key)
            return found
        before = len(found.rows)
        if found.segments is not segments:
            found.extend(key, segments)
        found.drop(log[found.changes :])
        found.changes = len(log)
        self._size += len(found.rows) - before
        self._listed.move_to_end(key)
        return found

    def filtered(self, key: Key, listed: Listed, visible: Visible) -> Filtered:
        """The same without what `visible` hides."""
        if (mine := self._filtered.get(visible)) is None:
            mine = self._filtered[visible] = {}
        found = mine.get(key)
        if found is None or not found.is_for(listed, visible):
            self._size -= _cost(found)
            found = mine[key] = Filtered(listed, visible)
            self._size += _cost(found)
        return found

    def trim(self) -> None:
        """Drop the lists that were not used for longest, until the rest fits."""
        if self._size <= self._limit:
            return
        self._size = sum(map(_cost, self._listed.values()))
        self._size += sum(_cost(each) for mine in self._filtered.values() for each in mine.values())
        while self._size > self._limit and self._listed:
            key, dropped = self._listed.popitem(last=False)
            self._size -= _cost(dropped)
            for mine in self._filtered.values():
                self._size -= _cost(mine.pop(key, None))


def _cost(entry: Scored | None) -> int:
    return len(entry.rows) + _ENTRY_COST if entry else 0
