"""Segments: the postings of up to 16,384 neighbouring rows in one file of flat arrays, which never changes.

Rows whose current text is in no segment are indexed in memory, in the `Overlay`.

Document `d` of a segment is row `start + d`. Terms are in the order of their bytes; each has one entry for every field
that holds it, and each entry one run of postings:

    keys       8 bytes a term  its first bytes; read as numbers, so that one binary search finds it
    rests      u4 a term + 1   where its other bytes begin in `rest`
    firsts     u4 a term + 1   its first entry
    fields     u1 an entry     the number of the field in `chatbot.stores.text.bm25.FIELDS`
    runs       u4 an entry + 1 its first posting
    postings   u4 a posting    document << 16 | byte of the field's length << 8 | how often it has the term, up to 127,
                               and `REPEATED`; ascending within a run
    many       u8              the postings that have it 127 times or more: place << 16 | how often
    codes      u1 a document   one array a field, `codes0` and so on: the byte of the field's length
    versions   i8 a document   the version of the text that was indexed, or `UNKNOWN`
"""

from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chatbot.stores.log import ShelfWriter
from chatbot.stores.observations.arrays import Arrays, DamagedArrays, Piece, pack, put
from chatbot.stores.text.bm25 import FIELDS, LENGTHS, MAX_FREQUENCY, Document, length_to_byte

MAX_ROWS = 1 << 14
"""Maximum rows: rewriting a segment blocks the interpreter."""
UNKNOWN = -1
"""The text version of a row whose text the segment does not hold."""
KEY_BYTES = 8
REPEATED = 128
"""Set if an earlier field of the row has the term too: then the posting is not counted as another row."""
MANY = 127
_KEPT_TERMS = 4_096
ROW_SHIFT, FIELD_SHIFT, COUNT_SHIFT = 32, 28, 8
"""Bit offsets of row, field and count in a posting of the overlay; the lowest byte encodes the field's length."""
REPEATED_IN_OVERLAY = 1 << 27
"""`REPEATED` of a posting of the overlay."""

Numbers = NDArray[Any]
LENGTH_OF = np.array(LENGTHS, "f8")


@dataclass(frozen=True, slots=True)
class SegmentDraft:
    """A segment that is not on the disk yet."""

    start: int
    end: int
    arrays: Mapping[str, Numbers] = field(repr=False)

    @property
    def totals(self) -> tuple[int, ...]:
        """The sum of the lengths of each of `FIELDS`."""
        codes = [self.arrays.get(f"codes{number}") for number in range(len(FIELDS))]
        return tuple(0 if each is None else int(LENGTH_OF[each].sum()) for each in codes)

    def save(self, writer: ShelfWriter) -> "Segment":
        """Put the segment on the shelf, not durably: a damaged one is built again."""
        known = int(np.count_nonzero(self.arrays["versions"] != UNKNOWN))
        about = {"start": self.start, "end": self.end, "fields": FIELDS, "known": known, "totals": self.totals}
        made = pack({name: array.tobytes() for name, array in self.arrays.items()}, about)
        return Segment(put(writer, "seg", made, self.start, self.end), Arrays.parse(made[0]))


class TermRun(NamedTuple):
    """The postings of a term in a field, by their places."""

    field: int
    begin: int
    end: int


class Segment:
    """A segment that was read from the shelf; it never changes."""

    def __init__(self, piece: Piece, arrays: Arrays) -> None:
        """Use the segment in these arrays. Raises `DamagedArrays` if they are not of the rows in the list."""
        self.piece = piece
        self.start, self.end = piece.start, piece.end
        self._parts = arrays.parts
        about = arrays.about
        if (about["start"], about["end"], about["fields"]) != (self.start, self.end, list(FIELDS)):
            raise DamagedArrays(f"{piece.name} holds other rows than the list says")
        self.known: int = about["known"]
        """Number of rows with a text here."""
        self.totals: Sequence[int] = about["totals"]
        """The sum of the lengths of each of `FIELDS`."""
        self.postings = self.array("postings", "<u4")
        self.versions = self.array("versions", "<i8")
        """For each row, the version of the text that was indexed, or `UNKNOWN`."""
        if len(self.versions) != len(self):
            raise DamagedArrays(f"{piece.name} does not have a version for each row")
        self._runs_by_term: dict[str, Sequence[TermRun]] = {}

    def __len__(self) -> int:
        return self.end - self.start

    @cached_property
    def codes(self) -> Numbers:
        """For each field and row, the byte of its length."""
        found = np.zeros((len(FIELDS), len(self)), "u1")
        for number, total in enumerate(self.totals):
            if total:
                found[number] = self.array(f"codes{number}", "u1")
        return found

    def has_text(self, row: int) -> bool:
        """Return whether the segment holds a text of `row`, possibly an old one."""
        return self.start <= row < self.end and bool(self.versions[row - self.start] != UNKNOWN)

    def lengths(self, documents: Numbers) -> list[int]:
        """Return the sum of the lengths of each field over these documents."""
        return [
            int(LENGTH_OF[self.codes[number, documents]].sum()) if total else 0
            for number, total in enumerate(self.totals)
        ]

    def runs_of(self, terms: Sequence[str]) -> list[tuple[int, TermRun]]:
        """Return the runs of several terms, in their order, each with the number of its term."""
        new = [term for term in terms if term not in self._runs_by_term]
        if len(self._runs_by_term) + len(new) > _KEPT_TERMS:
            self._runs_by_term.clear()
            new = list(terms)
        if new:
            self._runs_by_term.update(zip(new, self._find_runs([term.encode() for term in new]), strict=True))
        return [(number, run) for number, term in enumerate(terms) for run in self._runs_by_term[term]]

    def many(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the postings from `begin` to `end` with 127 occurrences or more: their places, and how many."""
        packed = self.array("many", "<u8")
        first, last = np.searchsorted(packed >> np.uint64(16), [begin, end]).tolist()
        for each in packed[first:last].tolist():
            yield each >> 16, each & 0xFFFF

    def terms(self) -> list[bytes]:
        """Return all terms, in order."""
        rest, rests = self._rest_bytes, self.array("rests", "<u4").tolist()
        keys = self.array("keys", ">u8").tobytes()
        return [
            _text(keys[KEY_BYTES * at : KEY_BYTES * (at + 1)], rest[rests[at] : rests[at + 1]])
            for at in range(len(rests) - 1)
        ]

    def _find_runs(self, terms: Sequence[bytes]) -> list[Sequence[TermRun]]:
        keys = np.frombuffer(b"".join(term[:KEY_BYTES].ljust(KEY_BYTES, b"\0") for term in terms), ">u8").astype("u8")
        begins, ends = np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, "right")
        return [
            next((self._runs(at) for at in range(begin, end) if self._rest(at) == term[KEY_BYTES:]), ())
            for term, begin, end in zip(terms, begins.tolist(), ends.tolist(), strict=True)
        ]

    def _rest(self, at: int) -> bytes:
        begin, end = self.array("rests", "<u4")[at : at + 2].tolist()
        return self._rest_bytes[begin:end]

    def _runs(self, at: int) -> Sequence[TermRun]:
        first, last = self.array("firsts", "<u4")[at : at + 2].tolist()
        ends = self.array("runs", "<u4")[first : last + 1].tolist()
        fields = self.array("fields", "u1")[first:last].tolist()
        return [TermRun(*each) for each in zip(fields, ends, ends[1:], strict=False)]

    @cached_property
    def _rest_bytes(self) -> bytes:
        return bytes(self._parts.get("rest", b""))

    @cached_property
    def _keys(self) -> Numbers:
        return self.array("keys", ">u8").astype("u8")

    def array(self, name: str, kind: str) -> Numbers:
        """Return an array; an empty one if the segment has none of that name."""
        return np.frombuffer(self._parts.get(name, b""), kind)


def _text(key: bytes, rest: bytes) -> bytes:
    return key + rest if rest else key.rstrip(b"\0")


class Text(NamedTuple):
    """Searchable content of a row."""

    version: int
    fields: Mapping[str, Mapping[str, int]]
    """Counts of the terms, by field."""
    codes: Sequence[int]
    """The lengths of `FIELDS`, each encoded as a byte."""

    @classmethod
    def of(cls, version: int, document: Document) -> "Text":
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
    """Texts of rows in memory, with packed postings of each term; rows are replaced and dropped as a whole."""

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
            counts = text.fields.get(name, {})
            base = row << ROW_SHIFT | number << FIELD_SHIFT | text.codes[number]
            for term, count in counts.items():
                packed = base | min(count, MAX_FREQUENCY) << COUNT_SHIFT | (REPEATED_IN_OVERLAY if term in seen else 0)
                if (held := postings.get(term)) is None:
                    postings[term] = array("Q", (packed,))
                else:
                    held.append(packed)
            seen.update(counts)
