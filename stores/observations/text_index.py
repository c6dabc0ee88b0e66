"""The text index of the observations: a cache that may be deleted at any time, and never shows what is hidden.

Rows are numbered as in the journal. A row is found by the newest of its texts that was `put` here or that a segment
holds, never by an older one beside it. Scores are those of `stores.bm25.rank` over the visible rows, bit for bit.

Guarded by the owner's lock, but for `write` and `release`, which may run beside everything else.
"""

from __future__ import annotations

import logging
import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from weakref import WeakKeyDictionary

from stores.bm25 import LENGTHS, Document, contribution, inverse_frequency
from stores.errors import StoreError
from stores.files import Stamp
from stores.observations import analysed
from stores.observations import manifest as manifests
from stores.observations.manifest import Manifest
from stores.observations.overlay import Overlay, Text
from stores.observations.postings import PostingsCache, Scored
from stores.observations.segments import MAX_ROWS, DamagedSegment, Entry, Segment, build, open_segment, remove, save
from stores.observations.visible import Totals, Visible, covering
from stores.observations.whoosh_files import IndexUnusable

__all__ = ["DamagedSegment", "IndexUnusable", "Plan", "TextIndex", "Visible", "Written"]

logger = logging.getLogger(__name__)

FLUSH_ROWS = 512
"""With fewer rows than this in memory, nothing is written."""
_STALE_SHARE = 8
_MANY = 4 * FLUSH_ROWS
_LOG_ROWS = 20_000
_KEPT_FROM = 32
"""Fewer rows than this each process analyses for itself, lest the file be written for each of them."""
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows to write next as one segment. Their texts must be read after this was made, or not be older."""

    start: int
    end: int
    generation: int
    erasures: int


@dataclass(eq=False, slots=True)
class Written:
    """A segment on the disk that nobody uses yet. Publish it: until then, nobody else may write."""

    segment: Segment
    plan: Plan
    right: ExitStack = field(repr=False)


@dataclass(frozen=True, slots=True)
class Released:
    """A segment that others use already."""

    segment: Segment
    manifest: Manifest
    stamp: Stamp | None


class TextIndex:
    """See the module. `key` seals the files, so that nobody without it can put something in their place."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder = folder
        self._key = key
        self._manifest = Manifest()
        self._stamp: Stamp | None = None
        self._segments: list[Segment] = []
        self._overlay = Overlay()
        self._kept: dict[int, int] = {}
        self._log: list[int] = []
        self._cache = PostingsCache()
        self._totals: WeakKeyDictionary[Visible, Totals] = WeakKeyDictionary()

    @property
    def pending(self) -> int:
        """How many rows are in memory only."""
        return len(self._overlay)

    def open(self) -> None:
        """Take over the sound segments and remove all else. Raises `IndexUnusable`, never for what is in the files."""
        if find_spec("whoosh") is None:
            raise IndexUnusable("whoosh is not installed")
        try:
            manifests.prepare(self._folder)
            if not os.access(self._folder, os.W_OK | os.X_OK):
                raise IndexUnusable(f"{self._folder} cannot be written")
            self._load()
            manifests.try_sweep(self._folder, self._manifest)
        except (StoreError, OSError) as error:
            raise IndexUnusable(f"no text index can be kept in {self._folder}: {error}") from error

    def close(self) -> None:
        """Forget everything; what is on the disk stays."""
        self._segments = []
        self._overlay = Overlay()
        self._log = []
        self._cache.clear()
        self._totals.clear()

    def refresh(self) -> bool:
        """Adopt what another process published; returns whether there was anything. One call to the system if not."""
        if manifests.current_stamp(self._folder) == self._stamp:
            return False
        self._load()
        return True

    def uncovered(self, versions: array[int]) -> list[int]:
        """The rows whose text of exactly that version was neither put nor is in a segment."""
        rows: list[int] = []
        position, count = 0, len(versions)
        for segment in self._segments:
            rows.extend(range(position, min(segment.start, count)))
            wanted = versions[segment.start : segment.end]
            if wanted != segment.seqs:
                pairs = zip(segment.seqs, wanted, strict=False)
                rows.extend(row for row, (have, want) in enumerate(pairs, segment.start) if have != want)
            position = segment.end
        rows.extend(range(position, count))
        return [row for row in rows if self._overlay.seq(row) != versions[row]]

    def put(self, row: int, seq: int, document: Document) -> None:
        """From now on the row is found by this text and by no other."""
        self._put(row, Text.of(seq, document))

    def take_analysed(self, rows: Iterable[int], versions: array[int]) -> list[int]:
        """Put what `leave_analysed` left of these rows, here or elsewhere; returns those of which it left nothing."""
        found = analysed.read(self._folder, self._key)
        self._kept = {row: text.seq for row, text in found.items()}
        known = {row: text for row in rows if (text := found.get(row)) and text.seq == versions[row]}
        for row, text in known.items():
            self._put(row, text)
        return [row for row in rows if row not in known]

    def leave_analysed(self, is_current: Callable[[], bool]) -> None:
        """Keep in a file what is in memory only, where enough of it is in no file. `is_current` as for `write`."""
        texts = {row: text for row, text in self._overlay.texts.items() if any(text.postings)}
        if sum(self._kept.get(row) != text.seq for row, text in texts.items()) < _KEPT_FROM:
            return
        with manifests.changing(self._folder) as place:
            if manifests.read(self._folder).generation == self._manifest.generation and is_current():
                analysed.write(place, texts, self._key)

    def match(self, query: Sequence[str], visible: Visible) -> dict[int, float]:
        """The scores of the visible rows that have any of the terms, in no particular order.

        Raises `DamagedSegment`, as `holders` does: `drop` it, put the rows that are `uncovered` then, and ask again.
        """
        totals = self._totals_of(visible)
        scores: dict[int, float] = {}
        for term in dict.fromkeys(query):
            held = self._held(term, visible, totals)
            matching = _count(held)
            for number, found, fresh in held:
                weights = _Weights(number, totals.count, totals.lengths[number] / totals.count, matching)
                _score(scores, found, fresh, weights)
        self._cache.trim()
        return scores

    def holders(self, term: str, visible: Visible) -> Collection[int]:
        """The visible rows that hold the term, in whatever field."""
        return _rows_of(self._held(term, visible, self._totals_of(visible)))

    def drop(self, damage: DamagedSegment) -> None:
        """Let go of a segment that is not what was written, and remove it; or of one that others replaced meanwhile."""
        if self.refresh():
            return
        self._cache.clear()
        self._adopt(self._manifest, [segment for segment in self._segments if segment.entry != damage.entry])
        self._drop_bad(str(damage))

    def plan(self) -> Plan | None:
        """What to write next: None while too little is in memory."""
        if len(self._overlay) < FLUSH_ROWS:
            return None
        regions = sorted(self._regions(), reverse=True)
        worthwhile = [
            (pending, start, end) for pending, start, end in regions if self._is_worthwhile(pending, start, end)
        ]
        if not worthwhile and len(self._overlay) >= _MANY:
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
        documents: Iterable[tuple[int, int, Document]],
        is_current: Callable[[], bool] = lambda: True,
    ) -> Written | None:
        """Make the segment of the plan on the disk, in any thread; None if it is not wanted any more, or not now.

        `documents` gives row, version and terms of every row of the plan; a row that it leaves out stays uncovered.
        Nothing is written once `is_current` denies that they are still to be had: whoever makes that so and then calls
        `erase` can be sure.
        """
        manifests.prepare(self._folder)
        right = manifests.begin_writing(self._folder, wait=True)
        if right is None:
            return None
        with right:
            if manifests.read(self._folder).generation != plan.generation:
                return None
            draft = build(plan.start, plan.end, documents, self._key)
            with manifests.changing(self._folder):
                if manifests.read(self._folder).generation != plan.generation or not is_current():
                    return None
                segment = save(draft, self._folder)
            return Written(segment, plan, right.pop_all())

    def publish(self, written: Written) -> None:
        """Let the segment count, here and for others, instead of those that it replaces. If too late, it is dropped."""
        self.adopt(self.release(written))

    def release(self, written: Written) -> Released | None:
        """Let the segment count for others; may run beside everything else, and is to be followed by `adopt`."""
        segment = written.segment
        with written.right, manifests.changing(self._folder) as place:
            disk = manifests.read(self._folder)
            if disk.erasures != written.plan.erasures or not (self._folder / segment.entry.name).is_dir():
                manifests.sweep(place, disk)
                return None
            kept = [entry for entry in disk.entries if entry.end <= segment.start or entry.start >= segment.end]
            after = disk.replaced([*kept, segment.entry])
            stamp = manifests.write(place, after)
            manifests.sweep(place, after)
        return Released(segment, after, stamp)

    def adopt(self, released: Released | None) -> None:
        """Let a released segment count here as well; none, or one that others replaced meanwhile, changes nothing."""
        if released is not None and released.manifest.generation > self._manifest.generation:
            self._take(released.manifest, released.stamp, {released.segment.entry.digest: released.segment})

    def erase(self, rows: Collection[int]) -> None:
        """Purge rows: when this returns, no file holds anything of their texts. Their neighbours become uncovered.

        A segment that was written when nothing of them was searched any more stays.
        """
        self._overlay.drop(rows)
        known = {segment.entry.digest: segment for segment in self._segments}
        manifests.prepare(self._folder)
        with manifests.changing(self._folder) as place:
            disk = manifests.read(self._folder)
            kept = [entry for entry in disk.entries if not _may_hold(entry, known.get(entry.digest), rows)]
            after = disk.replaced(kept, erased=True)
            stamp = manifests.write(place, after)
            manifests.sweep(place, after)
            place.sync()
        self._take(after, stamp, {})

    def _put(self, row: int, text: Text) -> None:
        self._overlay.put(row, text)
        self._log.append(row)
        if len(self._log) > _LOG_ROWS:
            self._adopt(self._manifest, self._segments)

    def _load(self) -> None:
        for _ in range(_ATTEMPTS):
            stamp, found = manifests.current_stamp(self._folder), manifests.read(self._folder)
            if self._take(found, stamp, {}) or manifests.current_stamp(self._folder) == stamp:
                break
        if len(self._segments) < len(self._manifest.entries):
            self._drop_bad("it is not what was written")

    def _drop_bad(self, why: str) -> None:
        """Unlist and remove what is damaged; nobody will use it, even if that fails."""
        logger.warning("the index in %s is damaged, and a part of it is built again: %s", self._folder, why)
        with suppress(StoreError):
            self._remove_bad()

    def _remove_bad(self) -> None:
        good = {segment.entry.digest for segment in self._segments}
        bad = {entry.digest for entry in self._manifest.entries if entry.digest not in good}
        with manifests.changing(self._folder) as place:
            disk = manifests.read(self._folder)
            gone = [entry for entry in disk.entries if entry.digest in bad]
            after = disk.replaced(entry for entry in disk.entries if entry not in gone)
            stamp = manifests.write(place, after)
            remove(self._folder, [entry.name for entry in gone])
        self._take(after, stamp, {})

    def _take(self, manifest: Manifest, stamp: Stamp | None, opened: dict[str, Segment]) -> bool:
        """Use this manifest; returns whether all of its segments were sound."""
        known = {segment.entry.digest: segment for segment in self._segments}
        known |= opened
        found = [known.get(entry.digest) or open_segment(self._folder, entry, self._key) for entry in manifest.entries]
        sound = [segment for segment in found if segment]
        self._stamp = stamp
        self._kept = {}
        self._adopt(manifest, sound)
        return len(sound) == len(found)

    def _adopt(self, manifest: Manifest, segments: Iterable[Segment]) -> None:
        """Use these segments; the log begins with the rows that the overlay holds in their stead."""
        self._manifest = manifest
        self._segments = list(segments)  # another one each time, by which all that is cached knows it
        self._log = []
        last = self._segments[-1].end if self._segments else 0
        for row in [row for row in self._overlay if row < last]:
            if segment := covering(self._segments, row):
                if segment.seqs[row - segment.start] == self._overlay.seq(row):
                    self._overlay.drop((row,))
                else:
                    self._log.append(row)

    def _totals_of(self, visible: Visible) -> Totals:
        totals = self._totals.get(visible)
        if totals is None or not totals.is_for(visible, self._segments):
            totals = self._totals[visible] = Totals(visible, self._segments, self._overlay, len(self._log))
        else:
            totals.update(visible, self._overlay, self._log)
        return totals

    def _held(self, term: str, visible: Visible, totals: Totals) -> list[_Held]:
        """Where the term stands in what may be seen, for each field that has it."""
        sees_all = totals.sees_all(self._segments[-1].end if self._segments else 0)
        held = []
        for number, total in enumerate(totals.lengths):
            if total:
                found = self._listed(number, term, None if sees_all else visible)
                fresh = self._fresh(number, term, visible)
                if found.rows or fresh:
                    held.append((number, found, fresh))
        return held

    def _listed(self, number: int, term: str, visible: Visible | None) -> Scored:
        listed = self._cache.listed((number, term), self._segments, self._log)
        return listed if visible is None or not listed.rows else self._cache.filtered((number, term), listed, visible)

    def _fresh(self, number: int, term: str, visible: Visible) -> list[tuple[int, int]]:
        flags, horizon = visible.flags, len(visible.flags)
        postings = self._overlay.postings(number, term)
        return [posting for posting in postings.items() if posting[0] < horizon and flags[posting[0]]]

    def _plan(self, start: int, end: int) -> Plan:
        return Plan(start, end, self._manifest.generation, self._manifest.erasures)

    def _regions(self) -> Iterator[tuple[int, int, int]]:
        """The ranges that could be written, each with how many of its rows are in memory."""
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


def _may_hold(entry: Entry, segment: Segment | None, rows: Iterable[int]) -> bool:
    """Whether a text of one of the rows may be in there."""
    inside = (row - entry.start for row in rows if entry.start <= row < entry.end)
    return any(segment is None or segment.seqs[row] > 0 for row in inside)


def _among(rows: list[int], start: int, end: int) -> int:
    return bisect_left(rows, end) - bisect_left(rows, start)


_Held = tuple[int, Scored, list[tuple[int, int]]]
"""A field, and the postings of a term in it: those of the segments, and those in memory."""


def _rows_of(held: Sequence[_Held]) -> Collection[int]:
    """The rows that hold a term, each once, in whatever field."""
    rows = [part for _, found, fresh in held for part in (found.rows, [row for row, _ in fresh]) if part]
    return rows[0] if len(rows) == 1 else set().union(*rows)


def _count(held: Sequence[_Held]) -> int:
    """How many rows hold a term. One in memory is in no list, for its text there counts no more."""
    lists = [found for _, found, _ in held if found.rows]
    return (lists[0].count(lists[1:]) if lists else 0) + len({row for *_, fresh in held for row, _ in fresh})


@dataclass(frozen=True, slots=True)
class _Weights:
    field: int
    visible: int
    average: float

    matching: int

    def weigh(self, codes: Iterable[int]) -> dict[int, float]:
        """What a posting is worth, by its code."""
        idf, field, average = inverse_frequency(self.visible, self.matching), self.field, self.average
        return {code: contribution(field, idf, code >> 8, LENGTHS[code & 255], average) for code in codes}


def _score(scores: dict[int, float], found: Scored, fresh: list[tuple[int, int]], weights: _Weights) -> None:
    """Add what one term in one field is worth to each row that has it."""
    parts = found.parts(weights, weights.weigh)
    known = scores.get
    if scores:
        for row, part in zip(found.rows, parts, strict=True):
            scores[row] = known(row, 0.0) + part
    else:
        scores.update(zip(found.rows, parts, strict=True))
    if fresh:
        worth = weights.weigh({code for _, code in fresh})
        for row, code in fresh:
            scores[row] = known(row, 0.0) + worth[code]
