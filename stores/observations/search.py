"""Rows by their words, by looking at every one of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence

from stores.bm25 import rank
from stores.documents import Document, document_of
from stores.observation import Observation
from stores.observations.visible import Visible
from stores.query import Progress

RowOf = Callable[[int], Observation | None]
"""From a row's number to the row whose text is to be found, or None for one that was erased."""


class Search:
    """Keeps the terms of every row in memory."""

    def __init__(self) -> None:
        self._documents: dict[int, Document] = {}
        self._stale: set[int] = set()

    def note(self, number: int) -> None:
        """The row is new, or its text changed."""
        self._stale.add(number)

    def match(self, terms: Sequence[str], visible: Visible, texts: array[int], row_of: RowOf) -> dict[int, float]:
        """The scores of all visible rows that hold any of the terms."""
        for number in range(len(texts)):
            if number in self._stale or number not in self._documents:
                row = row_of(number)
                self._documents[number] = document_of(row) if row else {}
        self._stale.clear()
        return rank({number: found for number, found in self._documents.items() if visible.flags[number]}, terms)

    def erase(self, numbers: Collection[int]) -> None:
        """Forget the words of these rows."""
        for number in numbers:
            self._documents.pop(number, None)

    def rebuild(self, texts: array[int], row_of: RowOf, progress: Progress | None) -> None:
        """Forget everything, and read it again."""
        self.close()
        for number in range(len(texts)):
            row = row_of(number)
            self._documents[number] = document_of(row) if row else {}
            if progress is not None:
                progress(number + 1, len(texts))

    def close(self) -> None:
        """Let go of everything."""
        self._documents.clear()
        self._stale.clear()
