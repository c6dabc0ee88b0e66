"""The text index of the observations: a cache that may be deleted at any time, and never shows what is hidden.

Rows are numbered as in the journal. A row is found by its newest text only, `put` here or held by a segment. Scores are
those of `bm25.rank` over the visible rows, bit for bit.

Guarded by the owner's lock, except `write`, which may run at the same time as anything else.
"""

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from chatbot.stores.cache import MemoryShelf
from chatbot.stores.errors import StoreError
from chatbot.stores.log import Shelf, ShelfWriter
from chatbot.stores.observations.arrays import FLUSH_ROWS, INDEX_FORMAT, Piece, PieceList, Pieces, read_list
from chatbot.stores.observations.lookups import Visible
from chatbot.stores.observations.ranking import RankedRows, Totals, rank_rows, rows_holding
from chatbot.stores.observations.segments import MAX_ROWS, Numbers, Overlay, Segment, Text, count_terms
from chatbot.stores.text.bm25 import Document

logger = logging.getLogger(__name__)

_STALE_SHARE = 8
"""A segment is rewritten when one row in this many has a newer text."""
_MANY = 4 * FLUSH_ROWS
"""Rows in memory from which on any region is written."""
_MOST_CHANGED_ROWS = 20_000
"""Rows that were put since the segments changed, after which totals are counted anew."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows to write next as one segment, from `texts` or else from `segments`."""

    start: int
    end: int
    generation: int
    texts: Mapping[int, Text] = field(default_factory=dict, repr=False)
    segments: Sequence[Segment] = ()


class PublishedSegment(NamedTuple):
    """A segment that other processes use already, with the list and the stamp of the shelf."""

    segment: Segment
    list: PieceList
    stamp: Hashable | None


class TextIndex:
    """Index of texts in segments on a shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._pieces: Pieces[Segment] = Pieces(shelf, INDEX_FORMAT, Segment)
        self._segments: list[Segment] = []
        self._overlay = Overlay()
        self._changed_rows: list[int] = []
        self._totals: WeakKeyDictionary[Visible, Totals] = WeakKeyDictionary()

    @property
    def pending(self) -> int:
        """Number of rows that are only in memory."""
        return len(self._overlay)

    @classmethod
    def opened(cls, shelf: Shelf) -> "TextIndex":
        """Return the index on a shelf; one in memory, with a warning, if none can be kept there."""
        index = cls(shelf)
        try:
            shelf.prepare()
            index.refresh()
        except (StoreError, OSError) as error:
            logger.warning("no text index can be kept in %s, so each process reads all rows: %s", shelf.name, error)
            return cls(MemoryShelf(shelf.name))
        return index

    def refresh(self) -> bool:
        """Use a list that another process published; return whether there was one. Takes one system call if not."""
        if not self._pieces.refresh():
            return False
        self._use_segments()
        return True

    def uncovered(self, versions: "array[int]") -> list[int]:
        """Return the rows whose text of that version was neither put nor is in a segment."""
        wanted = np.array(versions, "i8")
        missing = np.ones(len(wanted), bool)
        for segment in self._segments:
            have = segment.versions[: max(0, len(wanted) - segment.start)]
            missing[segment.start : segment.end] = have != wanted[segment.start : segment.end]
        rows: list[int] = np.flatnonzero(missing).tolist()
        return [row for row in rows if self._overlay.version(row) != versions[row]]

    def put(self, row: int, version: int, document: Document) -> None:
        """Index this text of the row in place of any earlier one."""
        self._overlay.put(row, Text.of(version, document))
        self._changed_rows.append(row)
        if len(self._changed_rows) > _MOST_CHANGED_ROWS:
            self._use_segments()

    def ranked(
        self, query: Sequence[str], visible: Visible, *, limit: int | None = None, wanted: Numbers | None = None
    ) -> RankedRows:
        """Return the best of the visible rows that have any of the terms, only `wanted` ones if that is given."""
        totals = self._totals_of(visible)
        return rank_rows(query, totals, self._overlay, visible, limit=limit, wanted=wanted)

    def rows_holding(self, terms: Sequence[str], visible: Visible) -> list[Numbers]:
        """Return for each of the distinct terms the visible rows that hold it, in any field."""
        return rows_holding(terms, self._totals_of(visible), self._overlay, visible)

    def count(self, visible: Visible) -> int:
        """Return how many rows are visible."""
        return self._totals_of(visible).count

    def plan(self, least: int = 0) -> Plan | None:
        """Plan the next segment to write; None while fewer rows than `least`, or too few to be worth it, wait."""
        if len(self._overlay) < (least or FLUSH_ROWS):
            return None
        regions = sorted(self._regions(), reverse=True)
        worthwhile = [region for region in regions if self._is_worthwhile(*region)]
        if not worthwhile and (least or len(self._overlay) >= _MANY):
            worthwhile = regions
        return self._plan(*worthwhile[0][1:]) if worthwhile else None

    def rebuild_plans(self, n_rows: int) -> Iterator[Plan]:
        """Yield plans for all rows that no segment covers, in order; write and adopt each before taking the next."""
        row = 0
        while row < n_rows:
            ahead = next((segment for segment in self._segments if segment.end > row), None)
            if ahead and ahead.start <= row:
                row = ahead.end
                continue
            end = min(row + MAX_ROWS, n_rows, ahead.start if ahead else n_rows)
            yield self._plan(row, end)
            row = end

    def write(
        self,
        plan: Plan,
        documents: Iterable[tuple[int, int, Document]] = (),
        is_current: Callable[[], bool] = lambda: True,
        pause: Callable[[], object] = lambda: None,
    ) -> PublishedSegment | None:
        """Write and publish the segment of the plan, in any thread; `adopt` must follow. None if others wrote before.

        `documents` has row, version and terms of rows whose texts are not in the plan; missing rows stay uncovered.
        Nothing is written once `is_current` returns false: before calling `erase`, make it false. `pause` is called
        between rows.
        """
        from chatbot.stores.observations.codec import build

        if read_list(self.shelf, INDEX_FORMAT).generation != plan.generation:
            return None
        draft = build(plan.start, plan.end, _texts_of(plan, documents), plan.segments, pause)
        self.shelf.prepare()
        with self.shelf.alone() as writer:
            now = read_list(self.shelf, INDEX_FORMAT)
            if now.generation != plan.generation or not is_current():
                return None
            segment = draft.save(writer)
            kept = [each for each in now.pieces if each.end <= plan.start or each.start >= plan.end]
            return PublishedSegment(segment, *self._pieces.publish(writer, [*kept, segment.piece]))

    def adopt(self, published: PublishedSegment) -> None:
        """Use a published segment here as well, unless others replaced it meanwhile."""
        segment, found, stamp = published
        if found.generation > self._pieces.list.generation:
            self._pieces.adopt(found, stamp, {segment.piece: segment})
            self._use_segments()

    def erase(self, rows: Collection[int]) -> None:
        """Purge rows: when this returns, no file holds anything of their texts.

        Segments with such a text are rewritten without it, or dropped if that fails, uncovering their rows.
        """
        self._overlay.drop(rows)
        self._totals.clear()
        known = self._pieces.all
        self.shelf.prepare()
        made: dict[Piece, Segment] = {}
        with self.shelf.alone() as writer:
            pieces = read_list(self.shelf, INDEX_FORMAT).pieces
            kept = [each for each in pieces if not _may_hold(each, known.get(each), rows)]
            for each in {*pieces} - {*kept}:
                if rest := self._without(known.get(each), rows, writer):
                    made[rest.piece] = rest
            after = self._pieces.publish(writer, [*kept, *made])
            writer.sync()
        self._pieces.adopt(*after, made)
        self._use_segments()

    def _without(self, segment: Segment | None, rows: Collection[int], writer: ShelfWriter) -> Segment | None:
        """Rewrite the segment without these rows; None if that is not worth it, or fails."""
        from chatbot.stores.observations.codec import build

        inside = [row for row in rows if segment is not None and segment.start <= row < segment.end]
        if segment is None or 2 * len(inside) > len(segment):
            return None
        try:
            return build(segment.start, segment.end, ((row, 0, {}) for row in inside), [segment]).save(writer)
        except (OSError, StoreError) as error:
            logger.info("the rest of %s is indexed again: %s", segment.piece.name, error)
            return None

    def _use_segments(self) -> None:
        """Use the segments of the list; the changed rows are now those that the overlay replaces in them."""
        self._segments = [*self._pieces.all.values()]  # a new list each time: caches compare its identity
        self._changed_rows = []
        covered: list[int] = []
        ends = [segment.end for segment in self._segments]
        for row in self._overlay:
            at = bisect_right(ends, row)
            if at < len(ends) and self._segments[at].has_text(row):
                segment = self._segments[at]
                is_current = segment.versions[row - segment.start] == self._overlay.version(row)
                (covered if is_current else self._changed_rows).append(row)
        self._overlay.drop(covered)

    def _totals_of(self, visible: Visible) -> Totals:
        totals = self._totals.get(visible)
        if totals is None or not totals.is_for(visible, self._segments):
            totals = self._totals[visible] = Totals(visible, self._segments, self._overlay, len(self._changed_rows))
        else:
            totals.update(visible, self._overlay, self._changed_rows)
        return totals

    def _plan(self, start: int, end: int) -> Plan:
        texts = {row: text for row, text in self._overlay.items() if start <= row < end}
        segments = [segment for segment in self._segments if segment.start < end and segment.end > start]
        return Plan(start, end, self._pieces.list.generation, texts, segments)

    def _regions(self) -> Iterator[tuple[int, int, int]]:
        """Yield the ranges that could be written, each with the number of its rows in memory."""
        rows = sorted(self._overlay)
        position = 0
        for segment in self._segments:
            yield from self._gap(rows, position, segment.start)
            yield _among(rows, segment.start, segment.end), segment.start, segment.end
            position = segment.end
        if rows and rows[-1] >= position:
            start, end = position, min(rows[-1] + 1, position + MAX_ROWS)
            pending = _among(rows, start, end)
            for segment in reversed(self._segments):  # small neighbours become one with the new segment
                size = segment.end - segment.start
                if segment.end != start or size > end - start or end - segment.start > MAX_ROWS:
                    break
                start = segment.start
            yield pending, start, end

    def _gap(self, rows: list[int], start: int, end: int) -> Iterator[tuple[int, int, int]]:
        for first in range(start, end, MAX_ROWS):
            last = min(first + MAX_ROWS, end)
            yield _among(rows, first, last), first, last

    def _is_worthwhile(self, pending: int, start: int, end: int) -> bool:
        if any(segment.start == start and segment.end == end for segment in self._segments):  # it is rewritten
            return pending >= max(1, (end - start) // _STALE_SHARE)
        return pending >= min(FLUSH_ROWS, end - start)


def _may_hold(piece: Piece, segment: Segment | None, rows: Iterable[int]) -> bool:
    inside = (row - piece.start for row in rows if piece.start <= row < piece.end)
    return any(segment is None or segment.versions[row] > 0 for row in inside)


def _texts_of(
    plan: Plan, documents: Iterable[tuple[int, int, Document]]
) -> Iterator[tuple[int, int, Mapping[str, Mapping[str, int]]]]:
    for row, version, document in documents:
        yield row, version, count_terms(document)
    for row, text in plan.texts.items():
        yield row, text.version, text.fields


def _among(rows: list[int], start: int, end: int) -> int:
    return bisect_left(rows, end) - bisect_left(rows, start)
