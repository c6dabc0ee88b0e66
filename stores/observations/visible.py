"""Rows that one caller may see."""

from __future__ import annotations

from array import array
from collections.abc import Sequence


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
