"""Segments: the postings of up to 16,384 neighbouring rows in one file of flat arrays, which never changes.

A manifest lists the valid segments in the order of their rows; others are removed.

Document `d` of a segment is row `start + d`. Terms are in the order of their bytes; each has one entry for every field
that holds it, and each entry one run of postings:

    keys       8 bytes a term  its first bytes; read as numbers, so that one binary search finds it
    rests      u4 a term + 1   where its other bytes begin in `rest`
    firsts     u4 a term + 1   its first entry
    fields     u1 an entry     the number of the field in `chatbot.stores.text.bm25.FIELDS`
    runs       u4 an entry + 1 its first posting
    postings   u4 a posting    document << 16 | byte of the field's length << 8 | how often it has the term, up to 127,
                               and `REPEATED`; ascending within a run
    many       u8              the postings that have it more often: place << 16 | how often
    codes      u1 a document   one array a field, `codes0` and so on: the byte of the field's length
    texts      i8 a document   the version of the text that was indexed, or `UNKNOWN`
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from chatbot.stores.log import Hands, Shelf
from chatbot.stores.observations.arrays import Arrays, DamagedArrays, packed
from chatbot.stores.text.analysis import VERSION
from chatbot.stores.text.bm25 import FIELDS, LENGTHS

FORMAT = f"5.{VERSION}"
"""Version of the files and of the analysis: an index of another version is rebuilt."""
MAX_ROWS = 1 << 14
"""More would fit, but a segment is rewritten whole, which would block the interpreter for longer."""
UNKNOWN = -1
"""The text version of a row whose text the segment does not hold."""
KEY_BYTES = 8
REPEATED = 128
"""Set if an earlier field of the row has the term too: then the posting is not counted as another row."""
MANY = 127
_KEPT_TERMS = 4_096
_NAME = re.compile(r"seg-[0-9a-f]{16}")

Ints = NDArray[Any]
LENGTH_OF = np.array(LENGTHS, "f8")


class SegmentEntry(Struct, frozen=True):
    """Entry of a segment in the manifest."""

    name: str
    start: int
    end: int
    known: int
    """Number of rows with a text here."""
    totals: tuple[int, ...]
    """The sum of the lengths of each of `FIELDS`."""
    digest: str

    @classmethod
    def parse(cls, value: Any) -> SegmentEntry:
        """Return the entry in a manifest. Raises `ValueError` for an invalid one."""
        match value:
            case {"name": str(name), "start": int(start), "end": int(end), "known": int(known), "digest": str(digest)}:
                entry = cls(name, start, end, known, _totals(value.get("totals")), digest)
            case _:
                raise ValueError(f"not a segment: {value!r}")
        if not _NAME.fullmatch(name) or not 0 <= start < end <= start + (1 << 16):
            raise ValueError(f"an invalid segment: {value!r}")
        return entry

    def to_json(self) -> dict[str, Any]:
        """The entry as the manifest holds it."""
        said = {"name": self.name, "start": self.start, "end": self.end, "known": self.known}
        return said | {"totals": list(self.totals), "digest": self.digest}


@dataclass(frozen=True, slots=True)
class SegmentDraft:
    """A segment that is not on the disk yet."""

    start: int
    end: int
    arrays: Mapping[str, Ints] = field(repr=False)

    @property
    def totals(self) -> tuple[int, ...]:
        """The sum of the lengths of each of `FIELDS`."""
        return tuple(_total(self.arrays.get(f"codes{number}")) for number in range(len(FIELDS)))

    def save(self, hands: Hands) -> Segment:
        """Put the segment on the shelf, not durably: a damaged one is built again."""
        about = {"start": self.start, "end": self.end, "fields": FIELDS}
        data, digest = packed({name: array.tobytes() for name, array in self.arrays.items()}, about)
        known = int(np.count_nonzero(self.arrays["texts"] != UNKNOWN))
        entry = SegmentEntry(f"seg-{secrets.token_hex(8)}", self.start, self.end, known, self.totals, digest)
        hands.put(entry.name, data)
        return Segment(Arrays.parse(data), entry)


class TermRun(NamedTuple):
    """The postings of a term in a field, by their places."""

    field: int
    begin: int
    end: int


class Segment:
    """A segment that was read from the shelf; it never changes."""

    def __init__(self, arrays: Arrays, entry: SegmentEntry) -> None:
        """Use the segment in these arrays. Raises `DamagedArrays` if they are not those of the entry."""
        self.entry = entry
        self.start, self.end = entry.start, entry.end
        self._parts = arrays.parts
        about = arrays.about
        if (about["start"], about["end"], about["fields"]) != (entry.start, entry.end, list(FIELDS)):
            raise DamagedArrays(f"{entry.name} holds other rows than the manifest says")
        self.postings = self.whole("postings", "<u4")
        self.texts = self.whole("texts", "<i8")
        """For each row, the version of the text that was indexed, or `UNKNOWN`."""
        if len(self.texts) != len(self):
            raise DamagedArrays(f"{entry.name} does not have a text for each row")
        self._known: dict[str, Sequence[TermRun]] = {}

    @classmethod
    def opened(cls, shelf: Shelf, entry: SegmentEntry) -> Segment:
        """Read the segment from a shelf. Raises `DamagedArrays` if it is not the one of the entry."""
        return cls(Arrays.of(shelf, entry.name, entry.digest), entry)

    def __len__(self) -> int:
        return self.end - self.start

    @cached_property
    def codes(self) -> Ints:
        """For each field and row, the byte of its length."""
        found = np.zeros((len(FIELDS), len(self)), "u1")
        for number, total in enumerate(self.entry.totals):
            if total:
                found[number] = self.whole(f"codes{number}", "u1")
        return found

    def covers(self, row: int) -> bool:
        """Return whether the segment holds a text of `row`, possibly an old one."""
        return self.start <= row < self.end and bool(self.texts[row - self.start] != UNKNOWN)

    def lengths(self, documents: Ints) -> list[int]:
        """The sum of the lengths of each field over these documents."""
        return [
            int(LENGTH_OF[self.codes[number, documents]].sum()) if total else 0
            for number, total in enumerate(self.entry.totals)
        ]

    def runs_of(self, terms: Sequence[str]) -> list[tuple[int, TermRun]]:
        """The runs of several terms, in their order, each with the number of its term."""
        new = [term for term in terms if term not in self._known]
        if len(self._known) + len(new) > _KEPT_TERMS:
            self._known.clear()
            new = list(terms)
        if new:
            self._known.update(zip(new, self._found([term.encode() for term in new]), strict=True))
        return [(number, run) for number, term in enumerate(terms) for run in self._known[term]]

    def many(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the postings from `begin` to `end` with over 126 occurrences: their places, and how many."""
        packed_ = self.whole("many", "<u8")
        first, last = np.searchsorted(packed_ >> np.uint64(16), [begin, end]).tolist()
        for each in packed_[first:last].tolist():
            yield each >> 16, each & 0xFFFF

    def terms(self) -> list[bytes]:
        """Return all terms, in order."""
        rest, rests = self._rest_bytes, self._rests.tolist()
        keys = self.whole("keys", ">u8").tobytes()
        return [
            _text(keys[KEY_BYTES * at : KEY_BYTES * (at + 1)], rest[rests[at] : rests[at + 1]])
            for at in range(len(rests) - 1)
        ]

    def _found(self, terms: Sequence[bytes]) -> list[Sequence[TermRun]]:
        keys = np.frombuffer(b"".join(term[:KEY_BYTES].ljust(KEY_BYTES, b"\0") for term in terms), ">u8").astype("u8")
        begins, ends = np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, "right")
        return [
            next((self._runs(at) for at in range(begin, end) if self._rest(at) == term[KEY_BYTES:]), ())
            for term, begin, end in zip(terms, begins.tolist(), ends.tolist(), strict=True)
        ]

    def _rest(self, at: int) -> bytes:
        begin, end = self._rests[at : at + 2].tolist()
        return self._rest_bytes[begin:end]

    def _runs(self, at: int) -> Sequence[TermRun]:
        first, last = self._firsts[at : at + 2].tolist()
        ends = self._offsets[first : last + 1].tolist()
        fields = self._fields[first:last].tolist()
        return [TermRun(*each) for each in zip(fields, ends, ends[1:], strict=False)]

    @cached_property
    def _rest_bytes(self) -> bytes:
        return bytes(self._parts.get("rest", b""))

    @cached_property
    def _keys(self) -> Ints:
        return self.whole("keys", ">u8").astype("u8")

    @cached_property
    def _rests(self) -> Ints:
        return self.whole("rests", "<u4")

    @cached_property
    def _firsts(self) -> Ints:
        return self.whole("firsts", "<u4")

    @cached_property
    def _fields(self) -> Ints:
        return self.whole("fields", "u1")

    @cached_property
    def _offsets(self) -> Ints:
        return self.whole("runs", "<u4")

    def whole(self, name: str, kind: str) -> Ints:
        """Return an array; an empty one if the segment has none of that name."""
        return np.frombuffer(self._parts.get(name, b""), kind)


def _totals(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != len(FIELDS) or not all(type(each) is int for each in value):
        raise ValueError(f"not a number for each field: {value!r}")
    return tuple(value)


def _total(codes: Ints | None) -> int:
    return 0 if codes is None else int(LENGTH_OF[codes].sum())


def _text(key: bytes, rest: bytes) -> bytes:
    return key + rest if rest else key.rstrip(b"\0")


class Manifest(Struct, frozen=True):
    """The segments in the order of their rows."""

    generation: int = 0
    entries: tuple[SegmentEntry, ...] = ()

    def replaced(self, entries: Iterable[SegmentEntry]) -> Manifest:
        """Return the next manifest, with these entries."""
        return Manifest(self.generation + 1, tuple(sorted(entries, key=lambda entry: entry.start)))


def read_manifest(shelf: Shelf) -> Manifest:
    """Return the manifest; an empty one if there is none, or none of this format."""
    value = shelf.listed()
    try:
        entries = tuple(map(SegmentEntry.parse, value["segments"]))
        ordered = all(a.end <= b.start for a, b in pairwise(entries))
        if value["format"] == FORMAT and ordered:
            return Manifest(int(value["generation"]), entries)
    except (ValueError, TypeError, KeyError):
        pass
    return Manifest()


def publish(shelf: Shelf, hands: Hands, manifest: Manifest) -> Hashable:
    """Publish the manifest, and remove whatever it does not list; returns the stamp of the shelf now."""
    stamp = hands.publish(
        {
            "format": FORMAT,
            "generation": manifest.generation,
            "segments": [entry.to_json() for entry in manifest.entries],
        }
    )
    sweep(shelf, hands, manifest)
    return stamp


def sweep(shelf: Shelf, hands: Hands, manifest: Manifest) -> None:
    """Remove whatever the manifest does not list."""
    listed = {entry.name for entry in manifest.entries}
    hands.remove([name for name in shelf.names() if name not in listed])
