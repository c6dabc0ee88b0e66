"""What one caller may see of the rows, and the sums over it that scores need."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from weakref import ref

from stores.bm25 import FIELDS
from stores.observations.overlay import Overlay
from stores.observations.segments import Segment


class Visible:
    """One flag a row: 1 if it may be seen. A row without a flag may not.

    `version` must change whenever the flag of an existing row does; rows are appended without changing it. What is
    computed for one of these is kept for as long as the object lives, so keep it and let it grow.
    """

    __slots__ = ("__weakref__", "flags", "version")

    def __init__(self, flags: bytearray, version: int = 0) -> None:
        self.flags = flags
        self.version = version

    def sees(self, row: int) -> bool:
        """Whether the row may be seen."""
        return row < len(self.flags) and bool(self.flags[row])


class Lines:
    """The visible rows of each session that was asked about, in order: a place in one is found without passing others.

    What is kept is gone over again only after a row has become visible, or has ceased to be; new rows are appended.
    """

    def __init__(self, visible: Visible) -> None:
        self._flags = visible.flags
        self._visible = ref(visible)
        self._version = visible.version
        self._lines: dict[str, tuple[array[int], int, int]] = {}

    def of(self, session: str, rows: Sequence[int]) -> array[int]:
        """The visible ones of `rows`, which are all of that session, in order."""
        visible = self._visible()
        if visible is not None and visible.version != self._version:
            self._version = visible.version
            self._lines.clear()
        line, known, last = self._lines.get(session, (array("I"), 0, -1))
        if known > len(rows) or (known and rows[known - 1] != last):
            line, known = array("I"), 0
        if known < len(rows):
            line.extend(row for row in rows[known:] if self._flags[row])
            self._lines[session] = (line, len(rows), rows[-1])
        return line


class Totals:
    """How many visible rows the index holds, and the sum of the lengths of each field over them; kept up to date.

    A row counts once: as it is in the overlay, or else as it is in its segment.
    """

    def __init__(self, visible: Visible, segments: Sequence[Segment], overlay: Overlay, changes: int) -> None:
        self.version = visible.version
        self.segments = segments
        self.changes = changes
        self.count = 0
        self.lengths = [0] * len(FIELDS)
        self._horizon = len(visible.flags)
        self._counted: dict[int, tuple[int, ...]] = {}
        self._hidden = visible.flags.count(0)
        for segment in segments:
            self._add_segment(segment, visible)
        for row in overlay:
            self._count(row, visible, overlay, segments)

    def sees_all(self, end: int) -> bool:
        """Whether every row before `end` may be seen."""
        return not self._hidden and end <= self._horizon

    def is_for(self, visible: Visible, segments: Sequence[Segment]) -> bool:
        """Whether this can be brought up to date; else it must be made anew."""
        end = segments[-1].end if segments else 0
        return (
            self.version == visible.version
            and self.segments is segments
            and (len(visible.flags) == self._horizon or self._horizon >= end)
        )

    def update(self, visible: Visible, overlay: Overlay, log: Sequence[int]) -> None:
        """Take in the rows that were put, or appended to the flags, since the last time."""
        rows = {*log[self.changes :]}
        self.changes = len(log)
        if len(visible.flags) != self._horizon:
            rows.update(row for row in range(self._horizon, len(visible.flags)) if row in overlay)
            self._hidden += visible.flags.count(0, self._horizon)
            self._horizon = len(visible.flags)
        for row in rows:
            self._count(row, visible, overlay, self.segments)

    def _add_segment(self, segment: Segment, visible: Visible) -> None:
        if self.sees_all(segment.end):
            self._add(segment.entry.known, segment.entry.totals)
        else:
            self._add(*segment.visible_totals(visible.flags))

    def _count(self, row: int, visible: Visible, overlay: Overlay, segments: Sequence[Segment]) -> None:
        if row in self._counted:
            self._add(-1, tuple(-length for length in self._counted.pop(row)))
        elif visible.sees(row) and (segment := covering(segments, row)):
            self._add(-1, tuple(-length for length in segment.row_lengths(row)))
        if visible.sees(row):
            self._counted[row] = overlay.lengths(row)
            self._add(1, self._counted[row])

    def _add(self, count: int, lengths: Sequence[int]) -> None:
        self.count += count
        self.lengths = [a + b for a, b in zip(self.lengths, lengths, strict=True)]


def covering(segments: Sequence[Segment], row: int) -> Segment | None:
    """The segment that holds a text of the row, if perhaps an old one."""
    return next((segment for segment in segments if segment.covers(row)), None)
