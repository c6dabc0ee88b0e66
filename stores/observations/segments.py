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
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from chatbot.stores.errors import StoreError
from chatbot.stores.log import Hands, Shelf
from chatbot.stores.observations.arrays import Arrays, DamagedArrays, DamagedSegment, packed
from chatbot.stores.text.analysis import VERSION
from chatbot.stores.text.bm25 import FIELDS, LENGTHS

FORMAT = f"4.{VERSION}"
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

    def packed(self) -> tuple[bytes, str]:
        """The segment as a file, and its digest."""
        about = {"start": self.start, "end": self.end, "fields": FIELDS, "totals": self.totals}
        return packed({name: array.tobytes() for name, array in self.arrays.items()}, about)

    def save(self, shelf: Shelf, hands: Hands) -> Segment:
        """Put the segment on the shelf, not durably: a damaged one is built again."""
        texts = self.arrays["texts"]
        known = int(np.count_nonzero(texts != UNKNOWN))
        data, digest = self.packed()
        entry = SegmentEntry(f"seg-{secrets.token_hex(8)}", self.start, self.end, known, self.totals, digest)
        hands.put(entry.name, data)
        segment = Segment.opened(shelf, entry)
        segment.texts = texts
        return segment


class TermRun(NamedTuple):
    """The postings of a term in a field, by their places."""

    field: int
    begin: int
    end: int


class Segment:
    """A segment on the disk, which never changes, and of which only the needed parts are read.

    Reading may raise `DamagedSegment`: then the rows of the segment have to be indexed again.
    """

    def __init__(self, arrays: Arrays, entry: SegmentEntry) -> None:
        """Open the segment in these arrays. Raises `DamagedArrays` if they are not those of the entry."""
        self.entry = entry
        self.start, self.end = entry.start, entry.end
        self._arrays = arrays
        about = self._arrays.about
        if (about["start"], about["end"], about["fields"]) != (entry.start, entry.end, list(FIELDS)):
            raise DamagedArrays(f"{entry.name} holds other rows than the manifest says")
        self.postings = self._view("postings", "<u4")
        self._known: dict[str, Sequence[TermRun]] = {}

    @classmethod
    def opened(cls, shelf: Shelf, entry: SegmentEntry) -> Segment:
        """Open the segment on a shelf. Raises `DamagedArrays` if it is not the one of the entry."""
        source, name = partial(shelf.opened, entry.name), f"{shelf.name}/{entry.name}"
        return cls(Arrays(source, name, entry.digest, whole=shelf.is_remote), entry)

    def __len__(self) -> int:
        return self.end - self.start

    @cached_property
    def texts(self) -> Ints:
        """For each row, the version of the text that was indexed, or `UNKNOWN`."""
        return self.whole("texts", "<i8")

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
        self.find(terms)
        return [(number, run) for number, term in enumerate(terms) for run in self._known[term]]

    def find(self, terms: Sequence[str]) -> None:
        """Look up the terms that are new, and read their postings."""
        new = [term for term in terms if term not in self._known]
        if not new:
            return
        if len(self._known) + len(new) > _KEPT_TERMS:
            self._known.clear()
            new = list(terms)
        found = self._found([term.encode() for term in new])
        spans = [(runs[0].begin, runs[-1].end) for runs in found if runs]
        with _naming(self.entry):
            self._arrays.load_parts([("postings", 4 * begin, 4 * end) for begin, end in spans])
        self._known.update(zip(new, found, strict=True))

    def many(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the postings from `begin` to `end` with over 126 occurrences: their places, and how many."""
        packed_ = self.whole("many", "<u8")
        first, last = np.searchsorted(packed_ >> np.uint64(16), [begin, end]).tolist()
        for each in packed_[first:last].tolist():
            yield each >> 16, each & 0xFFFF

    def terms(self) -> list[bytes]:
        """Return all terms, in order."""
        rest, rests = bytes(self._arrays.whole("rest")), self.whole("rests", "<u4").tolist()
        keys = self.whole("keys", ">u8").tobytes()
        return [
            _text(keys[KEY_BYTES * at : KEY_BYTES * (at + 1)], rest[rests[at] : rests[at + 1]])
            for at in range(len(rests) - 1)
        ]

    def check(self) -> None:
        """Read everything. Raises `DamagedSegment`."""
        with _naming(self.entry):
            self._arrays.load_all()

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
        with _naming(self.entry):
            return bytes(self._arrays.whole("rest"))

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
        """Return a whole array, checked."""
        with _naming(self.entry):
            self._arrays.load(name)
        return self._view(name, kind)

    def _view(self, name: str, kind: str) -> Ints:
        return np.frombuffer(self._arrays.buffer(name), kind)


@contextmanager
def _naming(entry: SegmentEntry) -> Iterator[None]:
    try:
        yield
    except DamagedArrays as error:
        raise DamagedSegment(entry, error) from error


def _totals(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != len(FIELDS) or not all(type(each) is int for each in value):
        raise ValueError(f"not a number for each field: {value!r}")
    return tuple(value)


def _total(codes: Ints | None) -> int:
    return 0 if codes is None else int(LENGTH_OF[codes].sum())


def _text(key: bytes, rest: bytes) -> bytes:
    return key + rest if rest else key.rstrip(b"\0")


class Manifest(Struct, frozen=True):
    """The segments in the order of their rows; `erasures` counts how often texts were purged."""

    generation: int = 0
    erasures: int = 0
    entries: tuple[SegmentEntry, ...] = ()

    def replaced(self, entries: Iterable[SegmentEntry], *, erased: bool = False) -> Manifest:
        """Return the next manifest, with these entries."""
        ordered = tuple(sorted(entries, key=lambda entry: entry.start))
        return Manifest(self.generation + 1, self.erasures + erased, ordered)


def read_manifest(shelf: Shelf) -> Manifest:
    """Return the manifest; an empty one if there is none, or none of this format."""
    value = shelf.listed()
    try:
        entries = tuple(map(SegmentEntry.parse, value["segments"]))
        ordered = all(a.end <= b.start for a, b in pairwise(entries))
        if value["format"] == FORMAT and ordered:
            return Manifest(int(value["generation"]), int(value["erasures"]), entries)
    except (ValueError, TypeError, KeyError):
        pass
    return Manifest()


def write_manifest(hands: Hands, manifest: Manifest) -> Hashable:
    """Publish the manifest; returns the stamp of the shelf now."""
    return hands.publish(
        {
            "format": FORMAT,
            "generation": manifest.generation,
            "erasures": manifest.erasures,
            "segments": [entry.to_json() for entry in manifest.entries],
        }
    )


def sweep(shelf: Shelf, hands: Hands, manifest: Manifest) -> None:
    """Remove whatever the manifest does not list."""
    hands.remove(_unlisted(shelf, manifest))


def try_sweep(shelf: Shelf, known: Manifest) -> None:
    """Remove unlisted pieces, if any are not `known`, unless another process is writing."""
    try:
        if _unlisted(shelf, known) and (right := shelf.making(wait=False)):
            with right, shelf.alone() as hands:
                sweep(shelf, hands, read_manifest(shelf))
    except StoreError:
        return


def _unlisted(shelf: Shelf, manifest: Manifest) -> Collection[str]:
    listed = {entry.name for entry in manifest.entries}
    return [name for name in shelf.names() if name not in listed]
