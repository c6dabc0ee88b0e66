"""Which rows a caller may see, in the form in which it is looked up a million times a second."""

from __future__ import annotations


class Visible:
    """One byte a row, 1 where the row may be seen. `version` changes when the byte of a row that was there changes."""

    __slots__ = ("__weakref__", "flags", "version")

    def __init__(self, flags: bytearray) -> None:
        self.flags = flags
        self.version = 0
