"""Rows by their words without an index on the disk: for when there can be none. Every search looks at every row."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence

from stores.bm25 import Document, rank
from stores.observations.visible import Visible


class Scan:
    """Keeps the terms of every row in memory; asked and told like a `TextIndex`."""

    def __init__(self) -> None:
        self._documents: dict[int, Document] = {}
        self._versions: dict[int, int] = {}

    def uncovered(self, versions: array[int]) -> list[int]:
        """The rows whose text of that version is not here."""
        return [row for row, version in enumerate(versions) if self._versions.get(row) != version]

    def put(self, row: int, version: int, document: Document) -> None:
        """From now on the row is found by this text and by no other."""
        self._documents[row] = document
        self._versions[row] = version

    def match(self, terms: Sequence[str], visible: Visible) -> dict[int, float]:
        """The scores of the visible rows that have any of the terms."""
        flags = visible.flags
        return rank({row: document for row, document in self._documents.items() if flags[row]}, terms)

    def holders(self, term: str, visible: Visible) -> Collection[int]:
        """The visible rows that hold the term, in whatever field."""
        flags = visible.flags
        return [
            row
            for row, document in self._documents.items()
            if flags[row] and any(term in words for words in document.values())
        ]

    def erase(self, rows: Collection[int]) -> None:
        """Forget the texts of these rows."""
        for row in rows:
            self._documents.pop(row, None)
            self._versions.pop(row, None)
