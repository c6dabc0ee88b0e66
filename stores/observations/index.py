"""The text index of the observations: a cache that may be deleted at any time, and never shows what is hidden.

Rows are numbered as in the journal. A row is found by its newest text only, `put` here or held by a segment. Scores are
those of `bm25.rank` over the visible rows, bit for bit.

Guarded by the owner's lock, except `write` and `release`, which may run beside everything else.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from chatbot.stores.errors import StoreError
from chatbot.stores.log import Hands, Shelf
from chatbot.stores.observations import ranking
from chatbot.stores.observations.arrays import DamagedArrays, DamagedSegment
from chatbot.stores.observations.lookups import Visible
from chatbot.stores.observations.overlay import FLUSH_ROWS, Overlay, Text
from chatbot.stores.observations.ranking import RankedRows, Totals
from chatbot.stores.observations.segments import (
    MAX_ROWS,
    Ints,
    Manifest,
    Segment,
    SegmentEntry,
    read_manifest,
    sweep,
    try_sweep,
    write_manifest,
)
from chatbot.stores.query import Corpus
from chatbot.stores.text.bm25 import Document, average_length

__all__ = ["DamagedSegment", "IndexUnusable", "Plan", "TextIndex", "UnpublishedSegment", "Visible"]

logger = logging.getLogger(__name__)

_STALE_SHARE = 8
_MANY = 4 * FLUSH_ROWS
_LOG_ROWS = 20_000
_ATTEMPTS = 3


class IndexUnusable(Exception):
    """No text index can be kept on the disk: its folder cannot be written, or Whoosh cannot be imported."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows to write next as one segment, from `texts` or else from `segments`."""

    start: int
    end: int
    generation: int
    erasures: int
    texts: Mapping[int, Text] = field(default_factory=dict, repr=False)
    segments: Sequence[Segment] = ()


@dataclass(eq=False, slots=True)
class UnpublishedSegment:
    """A segment on the disk that is not in use yet. Publish it: no other process can write until then."""

    segment: Segment
    plan: Plan
    right: ExitStack = field(repr=False)


class PublishedSegment(Struct, frozen=True):
    """A segment that others use already."""

    segment: Segment
    manifest: Manifest
    stamp: Hashable | None


class TextIndex:
    """Index of texts in segments on a shelf. Without a shelf everything stays in memory."""

    def __init__(self, shelf: Shelf | None) -> None:
        self._shelf = shelf
        self._manifest = Manifest()
        self._stamp: Hashable | None = None
        self._segments: list[Segment] = []
        self._overlay = Overlay()
        self._log: list[int] = []
        self._totals: WeakKeyDictionary[Visible, Totals] = WeakKeyDictionary()

    @property
    def pending(self) -> int:
        """Number of rows that are only in memory."""
        return len(self._overlay)

    @property
    def is_kept(self) -> bool:
        """Return whether there is a shelf to keep segments on."""
        return self._shelf is not None

    @classmethod
    def opened(cls, shelf: Shelf) -> TextIndex:
        """Return the index on a shelf; one in memory, with a warning, where none can be kept there."""
        index = cls(shelf)
        try:
            index.open()
        except (IndexUnusable, StoreError, OSError) as error:
            logger.warning("no text index can be kept, so each process reads all rows: %s", error)
            return index.in_memory()
        return index

    @classmethod
    def in_memory(cls) -> TextIndex:
        """Return an empty one that is in memory only."""
        return cls(None)

    def open(self) -> None:
        """Use the sound segments and remove all else. Raises `IndexUnusable`, but not for damaged files."""
        if find_spec("whoosh") is None:
            raise IndexUnusable("whoosh is not installed")
        try:
            self._kept.prepare()
            self._load()
            try_sweep(self._kept, self._manifest)
        except (StoreError, OSError) as error:
            raise IndexUnusable(f"no text index can be kept in {self._kept.name}: {error}") from error

    def close(self) -> None:
        """Forget everything; what is on the disk stays."""
        self._segments = []
        self._overlay = Overlay()
        self._log = []
        self._totals.clear()

    def refresh(self) -> bool:
        """Use a manifest that another process published; return whether there was one. Takes one system call if not."""
        if self._shelf is None or self._shelf.stamp() == self._stamp:
            return False
        self._load()
        return True

    def uncovered(self, versions: array[int]) -> list[int]:
        """Return the rows whose text of that version was neither put nor is in a segment."""
        wanted = np.array(versions, "i8")
        missing = np.ones(len(wanted), bool)
        for segment in self._segments:
            have = segment.texts[: max(0, len(wanted) - segment.start)]
            missing[segment.start : segment.end] = have != wanted[segment.start : segment.end]
        rows: list[int] = np.flatnonzero(missing).tolist()
        return [row for row in rows if self._overlay.version(row) != versions[row]]

    def put(self, row: int, version: int, document: Document) -> None:
        """Find the row by this text only from now on."""
        self._overlay.put(row, Text.of(version, document))
        self._log.append(row)
        if len(self._log) > _LOG_ROWS:
            self._adopt(self._manifest, self._segments)

    def ranked(
        self, query: Sequence[str], visible: Visible, *, limit: int | None = None, wanted: Ints | None = None
    ) -> RankedRows:
        """Return the best of the visible rows that have any of the terms, only `wanted` ones if that is given.

        Raises `DamagedSegment`, as `holders` does: `drop` it, put the rows that are `uncovered` then, and ask again.
        """
        totals = self._totals_of(visible)
        return ranking.ranked(query, totals, self._overlay, visible, limit=limit, wanted=wanted)

    def holders(self, terms: Sequence[str], visible: Visible) -> list[Ints]:
        """Return for each of the distinct terms the visible rows that hold it, in any field."""
        return ranking.holders(terms, self._totals_of(visible), self._overlay, visible)

    def corpus(self, visible: Visible) -> Corpus:
        """Return how many rows are visible, and their mean length."""
        totals = self._totals_of(visible)
        return Corpus(totals.count, average_length(totals.lengths, totals.count))

    def drop(self, damage: DamagedSegment) -> None:
        """Remove a segment that is damaged, or that others replaced meanwhile."""
        if self.refresh():
            return
        self._adopt(self._manifest, [segment for segment in self._segments if segment.entry != damage.entry])
        self._drop_bad(str(damage))

    def plan(self, least: int = 0) -> Plan | None:
        """Plan the next segment to write: None while too little is in memory."""
        if self._shelf is None or len(self._overlay) < (least or FLUSH_ROWS):
            return None
        regions = sorted(self._regions(), reverse=True)
        worthwhile = [region for region in regions if self._is_worthwhile(*region)]
        if not worthwhile and (least or len(self._overlay) >= _MANY):
            worthwhile = regions
        return self._plan(*worthwhile[0][1:]) if worthwhile else None

    def rebuild_plans(self, n_rows: int) -> Iterator[Plan]:
        """Plans for all rows that no segment covers, in order; write and publish each before asking for the next."""
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
    ) -> UnpublishedSegment | None:
        """Write the segment of the plan, in any thread; None if it is outdated or another process is writing.

        `documents` has row, version and terms of rows whose texts are not in the plan; missing rows stay uncovered.
        Nothing is written once `is_current` returns false: before calling `erase`, make it false. `pause` is called
        between rows.
        """
        from chatbot.stores.observations.codec import build

        shelf = self._kept
        shelf.prepare()
        right = shelf.making(wait=True)
        if right is None:
            return None
        with right:
            if read_manifest(shelf).generation != plan.generation:
                return None
            draft = build(plan.start, plan.end, _texts_of(plan, documents), plan.segments, pause)
            with shelf.alone() as hands:
                if read_manifest(shelf).generation != plan.generation or not is_current():
                    return None
                segment = draft.save(shelf, hands)
            return UnpublishedSegment(segment, plan, right.pop_all())

    def publish(self, written: UnpublishedSegment) -> None:
        """Publish the segment in place of those that it replaces; an outdated one is dropped."""
        self.adopt(self.release(written))

    def release(self, written: UnpublishedSegment) -> PublishedSegment | None:
        """Publish the segment for others; may run in parallel with everything else, and `adopt` must follow."""
        segment = written.segment
        with written.right, self._kept.alone() as hands:
            disk = read_manifest(self._kept)
            if disk.erasures != written.plan.erasures or segment.entry.name not in self._kept.names():
                sweep(self._kept, hands, disk)
                return None
            kept = [entry for entry in disk.entries if entry.end <= segment.start or entry.start >= segment.end]
            after = disk.replaced([*kept, segment.entry])
            stamp = write_manifest(hands, after)
            sweep(self._kept, hands, after)
        return PublishedSegment(segment, after, stamp)

    def adopt(self, released: PublishedSegment | None) -> None:
        """Use a released segment here as well, unless others replaced it meanwhile."""
        if released is not None and released.manifest.generation > self._manifest.generation:
            self._take(released.manifest, released.stamp, {released.segment.entry: released.segment})

    def erase(self, rows: Collection[int]) -> None:
        """Purge rows: when this returns, no file holds anything of their texts.

        Segments with such a text are rewritten without it, or dropped if that fails, uncovering their rows. Segments
        written after these rows were last searched stay.
        """
        self._overlay.drop(rows)
        self._totals.clear()
        if self._shelf is None:
            return
        known = {segment.entry: segment for segment in self._segments}
        self._shelf.prepare()
        made: dict[SegmentEntry, Segment] = {}
        with self._shelf.alone() as hands:
            disk = read_manifest(self._shelf)
            kept = [entry for entry in disk.entries if not _may_hold(entry, known.get(entry), rows)]
            for entry in {*disk.entries} - {*kept}:
                if rest := self._without(known.get(entry), rows, hands):
                    made[rest.entry] = rest
            after = disk.replaced([*kept, *made], erased=True)
            stamp = write_manifest(hands, after)
            sweep(self._shelf, hands, after)
            hands.sync()
        self._take(after, stamp, made)

    def _without(self, segment: Segment | None, rows: Collection[int], hands: Hands) -> Segment | None:
        """Rewrite the segment without these rows; None if that is not worth it, or fails."""
        from chatbot.stores.observations.codec import build

        inside = [row for row in rows if segment is not None and segment.start <= row < segment.end]
        if segment is None or 2 * len(inside) > len(segment):
            return None
        try:
            nothing: list[tuple[int, int, dict[str, dict[str, int]]]] = [(row, 0, {}) for row in inside]
            return build(segment.start, segment.end, nothing, [segment]).save(self._kept, hands)
        except (DamagedSegment, OSError, StoreError) as error:
            logger.info("what is left of %s is indexed again: %s", segment.entry.name, error)
            return None

    @property
    def _kept(self) -> Shelf:
        if self._shelf is None:
            raise IndexUnusable("this index is in memory only")
        return self._shelf

    def _load(self) -> None:
        for _ in range(_ATTEMPTS):
            stamp, found = self._kept.stamp(), read_manifest(self._kept)
            if self._take(found, stamp, {}) or self._kept.stamp() == stamp:
                break
        if len(self._segments) < len(self._manifest.entries):
            self._drop_bad("it is not what was written")

    def _drop_bad(self, why: str) -> None:
        """Remove damaged pieces; they are not used again, even if that fails."""
        logger.warning("the index in %s is damaged, and a part of it is built again: %s", self._kept.name, why)
        with suppress(StoreError):
            self._remove_bad()

    def _remove_bad(self) -> None:
        good = {segment.entry for segment in self._segments}
        bad = {entry for entry in self._manifest.entries if entry not in good}
        with self._kept.alone() as hands:
            disk = read_manifest(self._kept)
            gone = [entry for entry in disk.entries if entry in bad]
            after = disk.replaced(entry for entry in disk.entries if entry not in gone)
            stamp = write_manifest(hands, after)
            hands.remove([entry.name for entry in gone])
        self._take(after, stamp, {})

    def _take(self, manifest: Manifest, stamp: Hashable | None, opened: dict[SegmentEntry, Segment]) -> bool:
        """Use this manifest; returns whether all of its segments were sound."""
        known = {segment.entry: segment for segment in self._segments}
        known |= opened
        found = [known.get(entry) or _opened(self._shelf, entry) for entry in manifest.entries]
        sound = [segment for segment in found if segment]
        self._stamp = stamp
        self._adopt(manifest, sound)
        return len(sound) == len(found)

    def _adopt(self, manifest: Manifest, segments: Iterable[Segment]) -> None:
        """Use these segments; the log restarts with the rows that the overlay replaces in them."""
        self._manifest = manifest
        self._segments = list(segments)  # a new list each time: caches compare its identity
        self._log = []
        covered: list[int] = []
        ends = [segment.end for segment in self._segments]
        for row in self._overlay:
            at = bisect_right(ends, row)
            if at < len(ends) and self._segments[at].covers(row):
                segment = self._segments[at]
                held = segment.texts[row - segment.start] == self._overlay.version(row)
                (covered if held else self._log).append(row)
        self._overlay.drop(covered)

    def _totals_of(self, visible: Visible) -> Totals:
        totals = self._totals.get(visible)
        if totals is None or not totals.is_for(visible, self._segments):
            totals = self._totals[visible] = Totals(visible, self._segments, self._overlay, len(self._log))
        else:
            totals.update(visible, self._overlay, self._log)
        return totals

    def _plan(self, start: int, end: int) -> Plan:
        texts = {row: text for row, text in self._overlay.texts.items() if start <= row < end}
        segments = [segment for segment in self._segments if segment.start < end and segment.end > start]
        return Plan(start, end, self._manifest.generation, self._manifest.erasures, texts, segments)

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
            for segment in reversed(self._segments):
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
        stale = any(segment.start == start and segment.end == end for segment in self._segments)
        return pending >= ((end - start) // _STALE_SHARE or 1 if stale else min(FLUSH_ROWS, end - start))


def _may_hold(entry: SegmentEntry, segment: Segment | None, rows: Iterable[int]) -> bool:
    """Return whether the segment may hold a text of one of the rows."""
    inside = (row - entry.start for row in rows if entry.start <= row < entry.end)
    return any(segment is None or segment.texts[row] > 0 for row in inside)


def _opened(shelf: Shelf | None, entry: SegmentEntry) -> Segment | None:
    """Return the segment unless it is damaged; its postings are checked when read."""
    if shelf is None:
        return None
    try:
        segment = Segment.opened(shelf, entry)
    except (DamagedArrays, ValueError, KeyError, TypeError):
        return None
    try:
        return segment if len(segment.texts) == len(segment) else None
    except DamagedSegment:
        return None


def _texts_of(
    plan: Plan, documents: Iterable[tuple[int, int, Document]]
) -> Iterator[tuple[int, int, Mapping[str, Mapping[str, int]]]]:
    for row, version, document in documents:
        yield row, version, Text.of(version, document).fields
    for row, text in plan.texts.items():
        yield row, text.version, text.fields


def _among(rows: list[int], start: int, end: int) -> int:
    return bisect_left(rows, end) - bisect_left(rows, start)
