"""BM25 over the arrays of segments and overlay, with the scores of `chatbot.stores.text.bm25.rank`, bit for bit.

Also filters of a table over whole columns. Imported with the first search, because it loads NumPy.

The postings of all terms of a question are concatenated, by term and then by field, so that the sum over them has the
order of the reference. N, df and the average lengths are those of the rows that the caller may see; a hidden row has no
influence.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from chatbot.stores.observations.filters import always, fitting_rows, predicate, ranges
from chatbot.stores.observations.lookups import Visible
from chatbot.stores.observations.segments import (
    COUNT_SHIFT,
    FIELD_SHIFT,
    LENGTH_OF,
    MANY,
    REPEATED,
    REPEATED_IN_OVERLAY,
    ROW_SHIFT,
    UNKNOWN,
    Numbers,
    Overlay,
    Segment,
    TermRun,
)
from chatbot.stores.observations.table import Table
from chatbot.stores.query import Filter
from chatbot.stores.text.bm25 import BOOSTS, BS, FIELDS, K1, inverse_frequency

_BOOSTS = np.array(BOOSTS)
_BS = np.array(BS)[:, None]
_NOTHING = np.zeros(0, "i8")


class RankedRows(NamedTuple):
    """Rows and their scores, best first; of equals, the row added last."""

    rows: Numbers
    scores: Numbers


class _VisiblePart(Struct):
    """Visible part of a segment: its documents (None for all), their number, and the sums of their lengths."""

    documents: Numbers | None
    count: int
    lengths: Sequence[int]


class Totals:
    """Visible part of the index for one caller: rows of each segment, and the sums for scores; kept up to date.

    A row counts once: as it is in the overlay, or else as it is in its segment.
    """

    def __init__(self, visible: Visible, segments: Sequence[Segment], overlay: Overlay, seen_changes: int) -> None:
        self.version = visible.version
        self.segments = segments
        self._seen_changes = seen_changes
        self._horizon = len(visible.flags)
        self._counted: dict[int, tuple[int, ...]] = {}
        self._norms: Numbers | None = None
        self.seen = [_visible_part(segment, visible, overlay) for segment in segments]
        self.count = sum(each.count for each in self.seen)
        self.lengths = [sum(each.lengths[field] for each in self.seen) for field in range(len(FIELDS))]
        for row in overlay:
            self._count(row, visible, overlay)

    def is_for(self, visible: Visible, segments: Sequence[Segment]) -> bool:
        """Return whether this can be updated; if not, it must be built again."""
        end = segments[-1].end if segments else 0
        return (
            self.version == visible.version
            and self.segments is segments
            and (len(visible.flags) == self._horizon or self._horizon >= end)
        )

    def update(self, visible: Visible, overlay: Overlay, changes: Sequence[int]) -> None:
        """Count the rows that were put into the overlay, or got a flag, since the last call."""
        rows = {*changes[self._seen_changes :]}
        self._seen_changes = len(changes)
        if len(visible.flags) != self._horizon:
            rows.update(row for row in range(self._horizon, len(visible.flags)) if row in overlay)
            self._horizon = len(visible.flags)
        for row in rows:
            self._count(row, visible, overlay)

    @property
    def norms(self) -> Numbers:
        """The term that BM25 adds to a frequency in its denominator, by `field << 8 | byte of the length`."""
        if self._norms is None:
            averages = np.array([length / self.count if length else 1.0 for length in self.lengths])[:, None]
            self._norms = (K1 * ((1 - _BS) + _BS * LENGTH_OF[None] / averages)).reshape(-1)
        return self._norms

    def _count(self, row: int, visible: Visible, overlay: Overlay) -> None:
        self._norms = None
        if row in self._counted:
            self._add(-1, [-length for length in self._counted.pop(row)])
        else:
            self._hide(row)
        if visible.sees(row):
            self._counted[row] = overlay[row].lengths
            self._add(1, self._counted[row])

    def _hide(self, row: int) -> None:
        """Stop counting the segment's version of a row."""
        for seen, segment in zip(self.seen, self.segments, strict=True):
            if segment.has_text(row):
                document = row - segment.start
                if seen.documents is None:
                    seen.documents = segment.versions != UNKNOWN
                if seen.documents[document]:
                    seen.documents[document] = False
                    self._add(-1, [-length for length in segment.lengths(np.array([document]))])

    def _add(self, count: int, lengths: Sequence[int]) -> None:
        self.count += count
        self.lengths = [a + b for a, b in zip(self.lengths, lengths, strict=True)]


def _visible_part(segment: Segment, visible: Visible, overlay: Overlay) -> _VisiblePart:
    known = segment.versions != UNKNOWN
    flags = np.frombuffer(bytes(visible.flags[segment.start : segment.end]).ljust(len(segment), b"\0"), "u1")
    seen = known & (flags != 0)
    inside = [row - segment.start for row in overlay if segment.start <= row < segment.end]
    seen[inside] = False
    hidden = np.flatnonzero(known & ~seen)
    if not len(hidden):
        return _VisiblePart(None, segment.known, segment.totals)
    gone = segment.lengths(hidden)
    left = [total - length for total, length in zip(segment.totals, gone, strict=True)]
    return _VisiblePart(seen, segment.known - len(hidden), left)


class _Postings(Struct):
    """Postings of a question's terms in a segment or in the overlay, ordered by term and field."""

    first: int
    """The row of document 0."""
    postings: Numbers
    """As in a segment; those of the overlay have the row as document."""
    counts: Numbers
    owners: Numbers
    """Of each posting, `number of its term << 4 | number of its field`."""
    terms: int

    @property
    def rows(self) -> Numbers:
        """The rows, from `first` on."""
        return (self.postings >> 16).astype("i8")

    def distinct(self) -> Numbers:
        """Return for each term how many rows hold it."""
        return np.bincount((self.owners >> 4)[self.postings & REPEATED == 0], minlength=self.terms)


def rank_rows(
    query: Sequence[str],
    totals: Totals,
    overlay: Overlay,
    visible: Visible,
    *,
    limit: int | None = None,
    wanted: Numbers | None = None,
) -> RankedRows:
    """Return the best of the visible rows that have any of the terms, only `wanted` ones if that is given."""
    terms = list(dict.fromkeys(query))
    parts = _find_postings(terms, totals, overlay, visible)
    if not parts:
        return RankedRows(_NOTHING, np.zeros(0))
    matching = np.sum([part.distinct() for part in parts], axis=0).tolist()
    idfs = np.array([inverse_frequency(totals.count, each) if each else 0.0 for each in matching])
    answers = [_best(*_scores(part, idfs, totals.norms), limit, wanted) for part in parts]
    rows, scores = (np.concatenate(each) for each in zip(*answers, strict=True))
    order = np.lexsort((-rows, -scores))[:limit]
    return RankedRows(rows[order], scores[order])


def rows_holding(terms: Sequence[str], totals: Totals, overlay: Overlay, visible: Visible) -> list[Numbers]:
    """Return for each distinct term the visible rows that hold it in any field, each once, in no order."""
    parts = _find_postings(terms, totals, overlay, visible, distinct=True)
    rows = [part.rows + part.first for part in parts]
    owners = [part.owners >> 4 for part in parts]
    ends = [np.searchsorted(each, np.arange(len(terms) + 1)).tolist() for each in owners]
    return [
        np.concatenate([each[at[number] : at[number + 1]] for each, at in zip(rows, ends, strict=True)] or [_NOTHING])
        for number in range(len(terms))
    ]


def _find_postings(
    terms: Sequence[str], totals: Totals, overlay: Overlay, visible: Visible, *, distinct: bool = False
) -> list[_Postings]:
    parts = [
        _in_segment(terms, segment, seen, distinct=distinct)
        for segment, seen in zip(totals.segments, totals.seen, strict=True)
    ]
    parts.append(_in_overlay(terms, overlay, visible, distinct=distinct))
    return [part for part in parts if part is not None and len(part.postings)]


def _in_segment(terms: Sequence[str], segment: Segment, seen: _VisiblePart, *, distinct: bool) -> _Postings | None:
    runs = segment.runs_of(terms)
    if not runs or not seen.count:
        return None
    postings = np.concatenate([segment.postings[run.begin : run.end] for _, run in runs])
    sizes = [run.end - run.begin for _, run in runs]
    owners = np.repeat(np.array([number << 4 | run.field for number, run in runs]), sizes)
    if distinct:
        once = postings & REPEATED == 0
        postings, owners = postings[once], owners[once]
    counts = (postings & MANY).astype("f8")
    if not distinct and (counts == MANY).any():
        _set_many(counts, segment, [run for _, run in runs])
    if seen.documents is not None:
        keep = seen.documents[postings >> 16]
        postings, owners, counts = postings[keep], owners[keep], counts[keep]
    return _Postings(segment.start, postings, counts, owners, len(terms))


def _set_many(counts: Numbers, segment: Segment, runs: Sequence[TermRun]) -> None:
    """Set the counts that are too large for a posting, which the segment keeps apart."""
    offset = 0
    for _, begin, end in runs:
        for place, count in segment.many(begin, end):
            counts[offset + place - begin] = count
        offset += end - begin


def _in_overlay(terms: Sequence[str], overlay: Overlay, visible: Visible, *, distinct: bool) -> _Postings | None:
    found = [overlay.packed(term) for term in terms]
    packed = np.frombuffer(b"".join(found), "u8")
    if not len(packed):
        return None
    owners = np.repeat(np.arange(len(terms)) << 4, [len(each) // 8 for each in found])
    rows = (packed >> np.uint64(ROW_SHIFT)).astype("i8")
    flags = np.frombuffer(bytes(visible.flags) or b"\0", "u1")
    keep = (rows < len(flags)) & (flags[np.minimum(rows, len(flags) - 1)] != 0)
    if distinct:
        keep &= packed & np.uint64(REPEATED_IN_OVERLAY) == 0
    packed, owners, rows = packed[keep], owners[keep], rows[keep]
    repeated = ((packed & np.uint64(REPEATED_IN_OVERLAY)) != 0) * np.int64(REPEATED)
    owners |= (packed >> np.uint64(FIELD_SHIFT) & np.uint64(15)).astype("i8")
    counts = (packed >> np.uint64(COUNT_SHIFT) & np.uint64(0xFFFF)).astype("f8")
    postings = rows << 16 | (packed & np.uint64(255)).astype("i8") << 8 | repeated
    return _Postings(0, postings, counts, owners, len(terms))


def _scores(part: _Postings, idfs: Numbers, norms: Numbers) -> tuple[Numbers, Numbers]:
    """Return rows and their scores, with the exact arithmetic of `bm25.contribution`."""
    fields = part.owners & 15
    worth = part.counts * (K1 + 1)
    worth /= part.counts + norms.take(fields << 8 | (part.postings >> 8 & 255))
    worth *= idfs.take(part.owners >> 4)
    worth *= _BOOSTS.take(fields)
    rows = part.rows
    if part.first == 0 and len(rows) * 4 < int(rows.max()):
        rows, places = np.unique(rows, return_inverse=True)
        return rows, np.bincount(places, worth)
    sums = np.bincount(rows, worth)
    rows = np.flatnonzero(sums)
    return rows + part.first, sums[rows]


def _best(rows: Numbers, scores: Numbers, limit: int | None, wanted: Numbers | None) -> tuple[Numbers, Numbers]:
    if wanted is not None:
        fits = wanted[rows]
        rows, scores = rows[fits], scores[fits]
    if limit is not None and 0 < limit < len(scores):
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        chosen = scores >= least
        rows, scores = rows[chosen], scores[chosen]
    return rows, scores


def wanted_rows(table: Table, wanted: Filter) -> Numbers | None:
    """Return a flag for each row, true if it matches `wanted`, ignoring status; None if all rows do."""
    numbers, flags = fitting_rows(table, wanted), None
    if numbers is not None:
        flags = np.zeros(len(table), bool)
        flags[np.fromiter(numbers, "i8", len(numbers))] = True
    for column, compare, bound in ranges(table, wanted):
        each = compare(np.array(column), bound)
        flags = each if flags is None else flags & each
    rest = predicate(table, wanted, without_ranges=True)
    if rest is not always:
        among = range(len(table)) if flags is None else np.flatnonzero(flags).tolist()
        chosen = [number for number in among if rest(number)]
        flags = np.zeros(len(table), bool)
        flags[chosen] = True
    return flags


def wanted_and_seen(table: Table, wanted: Filter, visible: Visible) -> Numbers:
    """Return a flag for each row, true if it is visible and matches `wanted`, ignoring status."""
    seen = np.frombuffer(bytes(visible.flags), bool)
    flags = wanted_rows(table, wanted)
    return seen if flags is None else flags & seen


def sessions_about(table: Table, held: Sequence[Numbers]) -> dict[str, float]:
    """Score sessions as `chatbot.stores.text.bm25.score_sessions` does, from the rows that hold each of the terms."""
    names = table.sessions
    sessions = np.array(table.session_of, "i8")
    counts = [np.bincount(sessions[rows], minlength=len(names)) for rows in held]
    for each in counts:
        each[0] = 0  # those without a session
    total = int(np.count_nonzero(sum(counts))) if counts else 0
    scores = np.zeros(len(names))
    for each in counts:
        among = np.flatnonzero(each)
        if len(among):
            idf = inverse_frequency(total, len(among))
            scores[among] += idf * (each[among] * (K1 + 1)) / (each[among] + K1)
    found = np.flatnonzero(scores)
    return {names[at] or "": score for at, score in zip(found.tolist(), scores[found].tolist(), strict=True)}
