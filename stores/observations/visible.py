"""Rows that one caller may see."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from weakref import ref


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
        """Return whether the row may be seen."""
        return row < len(self.flags) and bool(self.flags[row])


class VisibleRows:
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
