"""Rows whose current text is in no segment, indexed in memory."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from chatbot.stores.text.analysis import VERSION
from chatbot.stores.text.bm25 import FIELDS, LENGTHS, MAX_FREQUENCY, Document, length_to_byte

FORMAT = f"6.{VERSION}"
"""Version of the files of the index and of the analysis: an index of another version is rebuilt."""
FLUSH_ROWS = 512
"""Number of rows in memory that are worth a segment."""
ROW_SHIFT, FIELD_SHIFT, COUNT_SHIFT = 32, 28, 8
"""Bit offsets of row, field and count in a packed posting; the lowest byte encodes the field's length."""
REPEATED_IN_OVERLAY = 1 << 27
"""Flag of a packed posting, as in segments: an earlier field of the row has the term too."""
_NO_COUNTS: Mapping[str, int] = {}


class Text(NamedTuple):
    """Searchable content of a row."""

    version: int
    fields: Mapping[str, Mapping[str, int]]
    """Counts of the terms, by field."""
    codes: Sequence[int]
    """The lengths of `FIELDS`, each encoded as a byte."""

    @classmethod
    def of(cls, version: int, document: Document) -> Text:
        """Return the content of a document."""
        codes = bytes(map(length_to_byte, [len(document.get(name, ())) for name in FIELDS]))
        return cls(version, count_terms(document), codes)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The quantised length of each field."""
        return tuple(map(LENGTHS.__getitem__, self.codes))


def count_terms(document: Document) -> Mapping[str, Mapping[str, int]]:
    """Return how often each term is in each field."""
    return {name: Counter(terms) for name, terms in document.items() if terms}


class Overlay(dict[int, Text]):
    """Texts by row, with postings of each term, packed as numbers; rows are replaced and dropped as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self._postings: dict[str, array[int]] = {}

    def version(self, row: int) -> int | None:
        """Return the version of the row's text; None if it is not here."""
        text = self.get(row)
        return None if text is None else text.version

    def put(self, row: int, text: Text) -> None:
        """Replace the text of the row."""
        if row in self:
            self.drop((row,))
        self[row] = text
        self._add_postings(row, text)

    def drop(self, rows: Collection[int]) -> None:
        """Drop these rows, if they are here."""
        gone = {row: self.pop(row) for row in rows if row in self}
        if 2 * len(self) < len(gone):  # then building the rest anew is faster
            self._postings = {}
            for row, text in self.items():
                self._add_postings(row, text)
            return
        for term in {term for text in gone.values() for counts in text.fields.values() for term in counts}:
            left = array("Q", [each for each in self._postings[term] if each >> ROW_SHIFT not in gone])
            if left:
                self._postings[term] = left
            else:
                del self._postings[term]

    def packed(self, term: str) -> bytes:
        """Return the postings of a term as native 64-bit numbers, ordered by field within a row."""
        found = self._postings.get(term)
        return b"" if found is None else found.tobytes()

    def _add_postings(self, row: int, text: Text) -> None:
        postings = self._postings
        seen: set[str] = set()
        for number, name in enumerate(FIELDS):
            counts = text.fields.get(name, _NO_COUNTS)
            base = row << ROW_SHIFT | number << FIELD_SHIFT | text.codes[number]
            for term, count in counts.items():
                packed = base | min(count, MAX_FREQUENCY) << COUNT_SHIFT | (REPEATED_IN_OVERLAY if term in seen else 0)
                if (held := postings.get(term)) is None:
                    postings[term] = array("Q", (packed,))
                else:
                    held.append(packed)
            seen.update(counts)
