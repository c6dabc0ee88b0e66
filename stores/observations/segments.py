"""Segments: the postings of up to 8192 neighbouring rows, each one small Whoosh index in a folder of its own.

The only module that knows Whoosh, which is imported when postings are first read or written. Document `d` of a segment
is row `start + d`. Nothing is stored but postings, field lengths, and the version of each row's text.

Whoosh keeps pickles, so a file is never given to it before a keyed digest over the whole segment has been checked; what
was checked is held in memory, and that is what is opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import struct
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from itertools import accumulate, compress
from operator import lt
from pathlib import Path
from pickle import load, loads
from typing import Any
from zlib import decompress

from stores.bm25 import FIELDS, LENGTHS, Document, byte_to_length, frequencies, length_to_byte
from stores.files import make_folder, opened, sync_folder, translated

FORMAT = 1
MAX_ROWS = 8192
UNKNOWN = -1
"""The text version of a row whose text the segment does not hold."""

_NAME = re.compile(r"seg-[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{128}")
_WHOOSH_NAME = "MAIN"
_ROWS_FILE = "rows.bin"
_INT = struct.Struct(">i")
_MAGIC_BYTES = 4
_COMPRESSED = 3  # its place in the header of a block
_CODES = tuple(256 + code for code in range(256))
"""What a posting of frequency one is in memory, by the byte of its length: shared numbers, so that lists stay small."""

Postings = tuple[list[int], list[int]]
"""Ascending rows, and for each `frequency * 256 + byte of the field's length`."""


class IndexUnusable(Exception):
    """There can be no text index here: its folder cannot be written, or Whoosh cannot be imported."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the manifest says of a segment."""

    name: str
    start: int
    end: int
    seq: int
    files: Mapping[str, int]
    digest: str

    @classmethod
    def parse(cls, value: Any) -> Entry:
        """The entry in a manifest; raises `ValueError` for anything that could not have been written by us."""
        match value:
            case {"name": str(name), "start": int(start), "end": int(end), "seq": int(seq), "digest": str(digest)}:
                entry = cls(name, start, end, seq, _sizes(value.get("files")), digest)
            case _:
                raise ValueError(f"not a segment: {value!r}")
        sealed = _NAME.fullmatch(name) and _DIGEST.fullmatch(digest)
        if not sealed or not 0 <= start < end <= start + MAX_ROWS:
            raise ValueError(f"an impossible segment: {value!r}")
        return entry

    def to_json(self) -> dict[str, Any]:
        """The entry as the manifest holds it."""
        return {
            "name": self.name,
            "start": self.start,
            "end": self.end,
            "seq": self.seq,
            "files": dict(self.files),
            "digest": self.digest,
        }


@dataclass(eq=False)
class Segment:
    """An open segment: verified bytes, and what is needed of each row. Never changes."""

    entry: Entry
    files: Mapping[str, bytes] = field(repr=False)
    seqs: array[int] = field(repr=False)
    """For each row, the version of the text that was indexed, or `UNKNOWN`."""
    lengths: tuple[bytes, ...] = field(repr=False)
    """For each of `FIELDS` the length byte of each row."""

    @property
    def start(self) -> int:
        """The first row."""
        return self.entry.start

    @property
    def end(self) -> int:
        """The row after the last."""
        return self.entry.end

    @cached_property
    def known(self) -> int:
        """How many rows have a text here."""
        return len(self.seqs) - self.seqs.count(UNKNOWN)

    @cached_property
    def totals(self) -> tuple[int, ...]:
        """The sum of the lengths of each field."""
        return tuple(_total(lengths) for lengths in self.lengths)

    def covers(self, row: int) -> bool:
        """Whether the segment holds a text of `row`, if perhaps an old one."""
        return self.start <= row < self.end and self.seqs[row - self.start] != UNKNOWN

    def visible_totals(self, flags: bytearray) -> tuple[int, tuple[int, ...]]:
        """How many rows may be seen, and the sums of their lengths."""
        mask = bytes(map(lt, (UNKNOWN,) * len(self.seqs), self.seqs))
        visible = bytes(map(int.__and__, mask, flags[self.start : self.end]))
        return sum(visible), tuple(_total(bytes(compress(lengths, visible))) for lengths in self.lengths)

    def row_lengths(self, row: int) -> tuple[int, ...]:
        """The lengths of the fields of a row."""
        return tuple(LENGTHS[lengths[row - self.start]] for lengths in self.lengths)

    def postings(self, number: int, term: str) -> Postings | None:
        """Which rows have the term in the field of that number in `FIELDS`; None where there are none."""
        if not self.totals[number] or (place := self._terms.find(FIELDS[number], term.encode())) is None:
            return None
        codes = self._codes(number)
        rows: list[int] = []
        found: list[int] = []
        for deltas, weights in _blocks(self.files[self._terms.posting_file], *place):
            documents = list(accumulate(deltas))
            found.extend(_coded(documents, weights, codes, self.lengths[number]))
            rows.extend(map(self.start.__add__, documents) if self.start else documents)
        return rows, found

    def _codes(self, number: int) -> list[int]:
        if number not in self._known_codes:
            self._known_codes[number] = list(map(_CODES.__getitem__, self.lengths[number]))
        return self._known_codes[number]

    @cached_property
    def _known_codes(self) -> dict[int, list[int]]:
        return {}

    @cached_property
    def _terms(self) -> _Terms:
        return _Terms(self.files)


class _Terms:
    """The term index of a segment, read by Whoosh."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        segment, codec = _whoosh_segment()
        from whoosh.reading import TermNotFound

        self._missing = TermNotFound
        self._reader = codec.terms_reader(_storage(files), segment)
        self._fields = frozenset(self._reader.indexed_field_names())
        self.posting_file: str = segment.make_filename(codec.POSTS_EXT)

    def find(self, name: str, term: bytes) -> tuple[int, int] | None:
        """Where in the file of postings those of a term are, and how long they are."""
        if name not in self._fields:
            return None
        try:
            offset, (length,) = self._reader.term_info(name, term).extent()  # a tuple, for want of an index in Whoosh
        except self._missing:
            return None
        return offset, length


def build(start: int, end: int, documents: Iterable[tuple[int, int, Document]], key: bytes) -> Segment:
    """Index the documents, given as row, version and terms, in memory. Rows outside of the range are left out."""
    seqs = array("q", [UNKNOWN]) * (end - start)
    lengths = [bytearray(end - start) for _ in FIELDS]
    inverted: list[dict[str, list[tuple[int, int]]]] = [{} for _ in FIELDS]
    for row, seq, document in documents:
        if not start <= row < end or seqs[row - start] != UNKNOWN:
            continue
        seqs[row - start] = seq
        _invert(row - start, document, lengths, inverted)
    files = _whoosh_files(end - start, lengths, inverted)
    files[_ROWS_FILE] = b"".join((*lengths, _little(seqs).tobytes()))
    name, seq = f"seg-{secrets.token_hex(8)}", max(seqs)
    sizes = {name: len(data) for name, data in sorted(files.items())}
    entry = Entry(name, start, end, seq, sizes, "")
    entry = Entry(name, start, end, seq, sizes, _digest(entry, files, key))
    return Segment(entry, files, seqs, tuple(map(bytes, lengths)))


def save(segment: Segment, folder: Path) -> None:
    """Put the segment's folder beside the manifest, durably; it is whole or not there. Needs the folder's lock."""
    draft = folder / f"tmp-{secrets.token_hex(8)}"
    make_folder(draft)
    with opened(draft) as place:
        for name, data in segment.files.items():
            place.create(name, data)
        place.sync()
    with translated(folder):
        draft.rename(folder / segment.entry.name)
        sync_folder(folder)


def open_segment(folder: Path, entry: Entry, key: bytes) -> Segment | None:
    """The segment if it is exactly what was written, else None; nothing in it is looked at before that is certain."""
    try:
        files = _read(folder / entry.name, entry)
    except OSError:
        return None
    if files is None or not secrets.compare_digest(_digest(entry, files, key), entry.digest):
        return None
    count, data = entry.end - entry.start, files[_ROWS_FILE]
    lengths = tuple(data[number * count : (number + 1) * count] for number in range(len(FIELDS)))
    seqs = array("q")
    seqs.frombytes(data[len(FIELDS) * count :])
    return Segment(entry, files, _little(seqs), lengths)


def remove(folder: Path, names: Collection[str]) -> None:
    """Delete what has one of these names, whatever it is, without looking into it."""
    from shutil import rmtree

    for name in names:
        path = folder / name
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            rmtree(path)


def is_ours(path: Path) -> bool:
    """Whether this is a real file or folder of the user that we run as."""
    status = path.lstat()
    return status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode)


def _sizes(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not all(type(size) is int for size in value.values()) or _ROWS_FILE not in value:
        raise ValueError(f"not a table of files: {value!r}")
    return value


def _read(path: Path, entry: Entry) -> dict[str, bytes] | None:
    with opened(path) as place:
        if not is_ours(path) or place.names() != sorted(entry.files):
            return None
        files = {}
        for name, size in entry.files.items():
            seen = place.stamp(name)
            if seen is None or seen.size != size or not is_ours(path / name):
                return None
            files[name] = place.read(name, 0, size)
        return files


def _digest(entry: Entry, files: Mapping[str, bytes], key: bytes) -> str:
    """Over all that is said of the segment and all that is in it; sizes come first, so nothing can be shifted."""
    said = [FORMAT, list(FIELDS), entry.name, entry.start, entry.end, entry.seq, sorted(entry.files.items())]
    digest = hashlib.blake2b(json.dumps(said).encode() + b"\n", key=hashlib.sha256(key).digest())
    for name in sorted(files):
        digest.update(files[name])
    return digest.hexdigest()


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


def _coded(documents: list[int], weights: Any, codes: list[int], lengths: bytes) -> Iterable[int]:
    if weights is None:
        return map(codes.__getitem__, documents)
    if isinstance(weights, float):
        return [int(weights) << 8 | lengths[document] for document in documents]
    found = list(map(codes.__getitem__, documents))
    for place in [place for place, weight in enumerate(weights) if weight != 1.0]:  # few of them
        found[place] = int(weights[place]) << 8 | lengths[documents[place]]
    return found


def _blocks(data: bytes, offset: int, length: int) -> Iterable[tuple[Any, Any]]:
    """The numbers (as differences) and weights of each block of Whoosh's; the last has a negative size."""
    file = BytesIO(data[offset : offset + length])
    file.seek(_MAGIC_BYTES)
    size = 1
    while size > 0:
        (size,) = _INT.unpack(file.read(_INT.size))
        end = file.tell() + abs(size)
        header = load(file)  # noqa: S301 - ours: its digest was checked
        block = file.read(end - file.tell())
        values = loads(decompress(block) if header[_COMPRESSED] else block)  # noqa: S301 - the same
        yield values[0], values[1]


def _whoosh_segment(rows: int = 0) -> tuple[Any, Any]:
    """The one segment of the Whoosh index, and the codec: a term's postings in one block, the long ones compressed."""
    try:
        from whoosh.codec.whoosh3 import W3Codec, W3Segment
    except ImportError as error:
        raise IndexUnusable(f"whoosh cannot be imported: {error}") from error
    codec = W3Codec(blocklimit=MAX_ROWS, compression=1)
    segment = W3Segment(codec, _WHOOSH_NAME, segid="rows", doccount=rows)
    return segment, codec


def _storage(files: Mapping[str, bytes]) -> Any:
    from whoosh.filedb.filestore import RamStorage

    storage = RamStorage()
    storage.files.update(files)
    return storage


def _whoosh_files(
    rows: int, lengths: list[bytearray], inverted: list[dict[str, list[tuple[int, int]]]]
) -> dict[str, bytes]:
    """The files of a Whoosh index that any Whoosh can open, made without its analysis, sorting and merging."""
    segment, codec = _whoosh_segment(rows)
    from whoosh.fields import FieldType, Schema
    from whoosh.formats import Existence
    from whoosh.index import TOC

    storage = _storage({})
    schema = Schema(**{name: _existing(FieldType, Existence) for name in FIELDS})
    _write_lengths(codec.per_document_writer(storage, segment), schema, rows, lengths)
    writer = codec.field_writer(storage, segment)
    for name, code_of, index in zip(FIELDS, lengths, inverted, strict=True):
        if index:
            writer.start_field(name, schema[name])
            for term in sorted(index, key=str.encode):
                writer.start_term(term.encode())
                for number, count in index[term]:
                    writer.add(number, float(count), b"", LENGTHS[code_of[number]])
                writer.finish_term()
            writer.finish_field()
    writer.close()
    TOC(schema, [segment], 1).write(storage, _WHOOSH_NAME)
    return dict(storage.files)


def _existing(field_type: Any, existence: Any) -> Any:
    """A field of terms without positions; how often each occurs is its weight."""
    made = field_type(existence(), None, scorable=True)
    made.indexed = True
    return made


def _write_lengths(writer: Any, schema: Any, rows: int, lengths: list[bytearray]) -> None:
    used = [(name, codes) for name, codes in zip(FIELDS, lengths, strict=True) if any(codes)]
    for number in range(rows):
        writer.start_doc(number)
        for name, codes in used:
            writer.add_field(name, schema[name], None, LENGTHS[codes[number]])
        writer.finish_doc()
    writer.close()
