"""Segments: the postings of up to 8192 neighbouring rows, each one small Whoosh index in a folder of its own.

Document `d` of a segment is row `start + d`. Nothing is stored but postings, field lengths, and the version of each
row's text.

Whoosh keeps pickles, so no byte is used before it is certain that it is what was written: a keyed digest, which the
manifest holds, seals the digests of all chunks of all files, and each chunk is compared with its own when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, compress
from pathlib import Path
from typing import Any

from stores.bm25 import FIELDS, LENGTHS, Document, byte_to_length, frequencies, length_to_byte
from stores.files import make_folder, opened, sync_folder, translated
from stores.observations.sealing import Damaged, bytes_read, read_sealed, seals_of, size_of_seals
from stores.observations.whoosh_files import TERMS_FILE, Terms, index_files

FORMAT = 2
MAX_ROWS = 8192
UNKNOWN = -1
"""The text version of a row whose text the segment does not hold."""

_NAME = re.compile(r"seg-[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{128}")
_ROWS_FILE = "rows.bin"
"""The version of each row's text, 8 bytes each, and then for each field a byte for the length in each row."""
_SEALS_FILE = "seals.bin"
_SEQ_BYTES = 8
_CODES = tuple(256 + code for code in range(256))
"""What a posting of frequency one is in memory, by the byte of its length: shared numbers, so that lists stay small."""

_INVERTED = b"\1" + bytes(255)

Postings = tuple[list[int], list[int]]
"""Ascending rows, and for each `frequency * 256 + byte of the field's length`."""


class DamagedSegment(Exception):
    """A segment does not hold what was written into it."""

    def __init__(self, entry: Entry, error: Exception) -> None:
        super().__init__(str(error))
        self.entry = entry


@dataclass(frozen=True, slots=True)
class Entry:
    """What the manifest says of a segment."""

    name: str
    start: int
    end: int
    seq: int
    known: int
    """How many rows have a text here."""
    totals: tuple[int, ...]
    """The sum of the lengths of each of `FIELDS`."""
    files: Mapping[str, int]
    digest: str

    @classmethod
    def parse(cls, value: Any) -> Entry:
        """The entry in a manifest; raises `ValueError` for anything that could not have been written by us."""
        match value:
            case {"name": str(name), "start": int(start), "end": int(end), "seq": int(seq), "digest": str(digest)}:
                known, totals = value.get("known"), _numbers(value.get("totals"))
                entry = cls(name, start, end, seq, known, totals, _sizes(value.get("files")), digest)
            case _:
                raise ValueError(f"not a segment: {value!r}")
        sealed = _NAME.fullmatch(name) and _DIGEST.fullmatch(digest)
        if not sealed or type(known) is not int or not 0 <= start < end <= start + MAX_ROWS:
            raise ValueError(f"an impossible segment: {value!r}")
        return entry

    def to_json(self) -> dict[str, Any]:
        """The entry as the manifest holds it."""
        return {
            "name": self.name,
            "start": self.start,
            "end": self.end,
            "seq": self.seq,
            "known": self.known,
            "totals": list(self.totals),
            "files": dict(self.files),
            "digest": self.digest,
        }

    def sealed(self, seals: bytes, key: bytes) -> str:
        """The digest over all that is said here and all that is in the files; sizes come first: nothing is shifted."""
        said = [FORMAT, list(FIELDS), *self.to_json().values()][:-1]
        digest = hashlib.blake2b(json.dumps(said).encode() + b"\n", key=hashlib.sha256(key).digest())
        digest.update(seals)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Draft:
    """A segment that is not on the disk yet."""

    entry: Entry
    files: Mapping[str, bytes] = field(repr=False)
    seqs: array[int] = field(repr=False)


class Segment:
    """A segment on the disk, of which only what is asked for is read; it never changes.

    A file of which half was read bit by bit is read whole and kept, which costs as much: who asks so often will go on.
    What reads may raise `DamagedSegment`, which is the end of the segment: its rows have to be indexed again.
    """

    def __init__(self, folder: Path, entry: Entry, seals: bytes) -> None:
        self.entry = entry
        self._path = os.fspath(folder / entry.name)
        self._seals: dict[str, bytes] = {}
        for name, size in _sealed_files(entry):
            self._seals[name], seals = seals[: size_of_seals(size)], seals[size_of_seals(size) :]
        self._lengths: dict[int, bytes] = {}
        self._spent: Counter[str] = Counter()
        self._kept: dict[str, bytes] = {}
        self._codes: dict[int, list[int]] = {}
        self._coded: Counter[int] = Counter()

    @property
    def start(self) -> int:
        """The first row."""
        return self.entry.start

    @property
    def end(self) -> int:
        """The row after the last."""
        return self.entry.end

    @cached_property
    def seqs(self) -> array[int]:
        """For each row, the version of the text that was indexed, or `UNKNOWN`."""
        seqs = array("q")
        seqs.frombytes(self._read(_ROWS_FILE, 0, (self.end - self.start) * _SEQ_BYTES))
        return _little(seqs)

    def covers(self, row: int) -> bool:
        """Whether the segment holds a text of `row`, if perhaps an old one."""
        return self.start <= row < self.end and self.seqs[row - self.start] != UNKNOWN

    def visible_totals(self, flags: bytearray) -> tuple[int, tuple[int, ...]]:
        """How many rows may be seen, and the sums of their lengths."""
        seen = flags[self.start : self.end].ljust(self.end - self.start, b"\0")
        hidden = [row for row in compress(range(len(seen)), seen.translate(_INVERTED)) if self.seqs[row] != UNKNOWN]
        totals = list(self.entry.totals)
        for number in compress(range(len(totals)), totals if hidden else ()):
            totals[number] -= _total(bytes(map(self.lengths(number).__getitem__, hidden)))
        return self.entry.known - len(hidden), tuple(totals)

    def row_lengths(self, row: int) -> tuple[int, ...]:
        """The lengths of the fields of a row."""
        place = row - self.start
        return tuple(
            LENGTHS[self.lengths(number)[place]] if total else 0 for number, total in enumerate(self.entry.totals)
        )

    def lengths(self, number: int) -> bytes:
        """The length byte of each row, of the field of that number in `FIELDS`."""
        if number not in self._lengths:
            count = self.end - self.start
            begin = count * (_SEQ_BYTES + number)
            self._lengths[number] = self._read(_ROWS_FILE, begin, begin + count)
        return self._lengths[number]

    def postings(self, number: int, term: str) -> Postings | None:
        """Which rows have the term in the field of that number in `FIELDS`; None where there are none."""
        rows: list[int] = []
        found: list[int] = []
        if self.entry.totals[number]:
            for deltas, weights in self._terms.postings(number, term.encode()):
                documents = list(accumulate(deltas))
                found.extend(_coded(documents, weights, self._single(number, documents), self.lengths(number)))
                rows.extend(map(self.start.__add__, documents) if self.start else documents)
        return (rows, found) if rows else None

    def _single(self, number: int, documents: list[int]) -> Iterable[int]:
        """What postings of frequency one are: from a list, once so many were asked for that it is worth to have one."""
        lengths = self.lengths(number)
        if self._coded[number] < len(lengths):
            self._coded[number] += len(documents)
            return map(_CODES.__getitem__, map(lengths.__getitem__, documents))
        if number not in self._codes:
            self._codes[number] = list(map(_CODES.__getitem__, lengths))
        return map(self._codes[number].__getitem__, documents)

    @cached_property
    def _terms(self) -> Terms:
        return Terms(self._read, self.entry.files[TERMS_FILE], self.entry.totals)

    def _read(self, name: str, start: int, end: int) -> bytes:
        kept = self._kept.get(name)
        if kept is None and 2 * self._spent[name] < (size := self.entry.files[name]):
            self._spent[name] += bytes_read(start, end)
            return self._checked(name, start, end)
        if kept is None:
            kept = self._kept[name] = self._checked(name, 0, size)
        return kept[start:end]

    def _checked(self, name: str, start: int, end: int) -> bytes:
        try:
            return read_sealed(f"{self._path}/{name}", self._seals[name], start, end)
        except Damaged as error:
            raise DamagedSegment(self.entry, error) from error


def build(start: int, end: int, documents: Iterable[tuple[int, int, Document]], key: bytes) -> Draft:
    """Index the documents, given as row, version and terms, in memory. Rows outside of the range are left out."""
    seqs = array("q", [UNKNOWN]) * (end - start)
    lengths = [bytearray(end - start) for _ in FIELDS]
    inverted: list[dict[str, list[tuple[int, int]]]] = [{} for _ in FIELDS]
    for row, seq, document in documents:
        if not start <= row < end or seqs[row - start] != UNKNOWN:
            continue
        seqs[row - start] = seq
        _invert(row - start, document, lengths, inverted)
    known, seq, totals = len(seqs) - seqs.count(UNKNOWN), max(seqs), tuple(_total(bytes(each)) for each in lengths)
    files = index_files(end - start, lengths, inverted)
    files[_ROWS_FILE] = b"".join((_little(seqs[:]).tobytes(), *lengths))
    files[_SEALS_FILE] = b"".join(seals_of(data) for _, data in sorted(files.items()))
    sizes = {name: len(data) for name, data in sorted(files.items())}
    entry = Entry(f"seg-{secrets.token_hex(8)}", start, end, seq, known, totals, sizes, "")
    return Draft(replace(entry, digest=entry.sealed(files[_SEALS_FILE], key)), files, seqs)


def save(draft: Draft, folder: Path) -> Segment:
    """Put the segment's folder beside the manifest, durably; it is whole or not there. Needs the folder's lock."""
    path = folder / f"tmp-{secrets.token_hex(8)}"
    make_folder(path)
    with opened(path) as place:
        for name, data in draft.files.items():
            place.create(name, data)
        place.sync()
    with translated(folder):
        path.rename(folder / draft.entry.name)
        sync_folder(folder)
    segment = Segment(folder, draft.entry, draft.files[_SEALS_FILE])
    segment.seqs = draft.seqs
    return segment


def open_segment(folder: Path, entry: Entry, key: bytes) -> Segment | None:
    """The segment, if what is read of it now is what was written; the rest is checked when it is read."""
    try:
        seals = _read_seals(folder / entry.name, entry)
    except OSError:
        return None
    if seals is None or not secrets.compare_digest(entry.sealed(seals, key), entry.digest):
        return None
    segment = Segment(folder, entry, seals)
    try:
        return segment if segment.seqs else None
    except DamagedSegment:
        return None


def remove(folder: Path, names: Collection[str]) -> None:
    """Delete what has one of these names, whatever it is, without looking into it."""
    from shutil import rmtree

    for name in names:
        path = folder / name
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            rmtree(path)


def is_ours(path: Path, size: int | None = None) -> bool:
    """Whether this is a real file or folder of the user that we run as, and of that size where one is given."""
    status = path.lstat()
    is_real = status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode)
    return is_real and size in {None, status.st_size}


def _numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != len(FIELDS) or not all(type(each) is int for each in value):
        raise ValueError(f"not a number for each field: {value!r}")
    return tuple(value)


def _sizes(value: Any) -> dict[str, int]:
    known = {_ROWS_FILE, _SEALS_FILE, TERMS_FILE}
    if not isinstance(value, dict) or not all(type(size) is int for size in value.values()) or not known <= {*value}:
        raise ValueError(f"not a table of files: {value!r}")
    return value


def _sealed_files(entry: Entry) -> list[tuple[str, int]]:
    return sorted((name, size) for name, size in entry.files.items() if name != _SEALS_FILE)


def _read_seals(path: Path, entry: Entry) -> bytes | None:
    with opened(path) as place:
        if not is_ours(path) or place.names() != sorted(entry.files):
            return None
        is_whole = all(is_ours(path / name, size) for name, size in entry.files.items())
        return place.read(_SEALS_FILE) if is_whole else None


def _total(lengths: bytes) -> int:
    return sum(byte_to_length(code) * count for code, count in Counter(lengths).items())


def _little(numbers: array[int]) -> array[int]:
    from sys import byteorder

    if byteorder == "big":
        numbers.byteswap()
    return numbers


def _invert(
    number: int, document: Document, lengths: list[bytearray], inverted: list[dict[str, list[tuple[int, int]]]]
) -> None:
    for place, name in enumerate(FIELDS):
        if terms := document.get(name):
            lengths[place][number] = length_to_byte(len(terms))
            index = inverted[place]
            for posting in frequencies(terms).items():
                term, count = posting
                if term in index:
                    index[term].append((number, count))
                else:
                    index[term] = [(number, count)]


def _coded(documents: list[int], weights: Any, single: Iterable[int], lengths: bytes) -> Iterable[int]:
    if weights is None:
        return single
    if isinstance(weights, float):
        return [int(weights) << 8 | lengths[document] for document in documents]
    found = list(single)
    for place in [place for place, weight in enumerate(weights) if weight != 1.0]:  # few of them
        found[place] = int(weights[place]) << 8 | lengths[documents[place]]
    return found
