"""The files of a Whoosh index, one segment each: written by Whoosh, which is imported for that alone, and read here.

What is read is what was asked for and no more: `Read` gives the bytes of a file from one place to another, checked, for
Whoosh keeps pickles.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import md5
from io import BytesIO
from pickle import load, loads
from typing import Any
from zlib import decompress

from stores.bm25 import FIELDS, LENGTHS

Read = Callable[[str, int, int], bytes]
"""From the name of a file, and two places in it, to the bytes between them. They must be what was written."""

_WHOOSH_NAME = "MAIN"
TERMS_FILE = "MAIN_rows.trm"
_POSTINGS_FILE = "MAIN_rows.pst"
_INT = struct.Struct(">i")
_MAGIC_BYTES = 4
_COMPRESSED = 3  # its place in the header of a block
_FIELD = struct.Struct(">H")
_TABLE = struct.Struct(">qi")  # where a hash table stands, and how many slots it has
_TABLES = 256
_SLOT = struct.Struct(">Iq")  # a hash, and where its entry stands; 0 in an empty one
_SLOTS_AT_ONCE = 8
_SIZES = struct.Struct(">ii")  # of key and value
_TERM = struct.Struct(">BfIBBfIIqi")  # the last two say where the postings stand


class Terms:
    """Where in the file of postings those of each term stand: Whoosh's hash file, of which only what is asked is read.

    `size` is that of the file. `fields` tells for each of `FIELDS` whether there is anything in it.
    """

    def __init__(self, read: Read, size: int, fields: Sequence[object]) -> None:
        self._read = read
        used = [number for number, held in enumerate(fields) if held]
        self._keys = {number: _FIELD.pack(place) for place, number in enumerate(used)}
        (tail,) = _INT.unpack(read(TERMS_FILE, size - _INT.size, size))
        end = size - _INT.size - tail
        self._tables = list(_TABLE.iter_unpack(read(TERMS_FILE, end - _TABLES * _TABLE.size, end)))

    def postings(self, field: int, term: bytes) -> Iterable[tuple[Any, Any]]:
        """The numbers (as differences) and weights of each block of a term's postings, in the field of that number."""
        if field not in self._keys or (place := self._find(self._keys[field] + term)) is None:
            return ()
        return _blocks(self._read(_POSTINGS_FILE, *place))

    def _find(self, key: bytes) -> tuple[int, int] | None:
        digest = int.from_bytes(md5(key, usedforsecurity=False).digest()[-4:])
        start, slots = self._tables[digest % _TABLES]
        first = (digest >> 8) % (slots or 1)
        for begin, end in ((first, slots), (0, first)):
            for at in range(begin, end, _SLOTS_AT_ONCE):
                stop = min(at + _SLOTS_AT_ONCE, end)
                found = self._read(TERMS_FILE, start + at * _SLOT.size, start + stop * _SLOT.size)
                for other, entry in _SLOT.iter_unpack(found):
                    if not entry:
                        return None
                    if other == digest and (place := self._entry(entry, key)):
                        return place
        return None

    def _entry(self, at: int, key: bytes) -> tuple[int, int] | None:
        """Where the postings stand, if the entry is that of the key."""
        sizes = _SIZES.pack(len(key), _TERM.size)
        found = self._read(TERMS_FILE, at, at + _SIZES.size + len(key) + _TERM.size)
        if not found.startswith(sizes + key):
            return None
        *_, offset, length = _TERM.unpack_from(found, _SIZES.size + len(key))
        return offset, offset + length


class IndexUnusable(Exception):
    """There can be no text index here: its folder cannot be written, or Whoosh cannot be imported."""


Inverted = Sequence[Mapping[str, Sequence[tuple[int, int]]]]
"""For each of `FIELDS`: from a term to the documents that have it, ascending, and how often."""


def index_files(rows: int, lengths: Sequence[bytes | bytearray], inverted: Inverted) -> dict[str, bytes]:
    """The files of a Whoosh index that any Whoosh can open, made without its analysis, sorting and merging.

    A term's postings are in one block, a long one compressed. Raises `IndexUnusable`.
    """
    try:
        from whoosh.codec.whoosh3 import W3Codec, W3Segment
        from whoosh.fields import FieldType, Schema
        from whoosh.filedb.filestore import RamStorage
        from whoosh.formats import Existence
        from whoosh.index import TOC
    except ImportError as error:
        raise IndexUnusable(f"whoosh cannot be imported: {error}") from error
    codec = W3Codec(blocklimit=max(rows, 1), compression=1)
    segment = W3Segment(codec, _WHOOSH_NAME, segid="rows", doccount=rows)
    storage = RamStorage()
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


def _write_lengths(writer: Any, schema: Any, rows: int, lengths: Sequence[bytes | bytearray]) -> None:
    used = [(name, codes) for name, codes in zip(FIELDS, lengths, strict=True) if any(codes)]
    for number in range(rows):
        writer.start_doc(number)
        for name, codes in used:
            writer.add_field(name, schema[name], None, LENGTHS[codes[number]])
        writer.finish_doc()
    writer.close()


def _blocks(data: bytes) -> Iterable[tuple[Any, Any]]:
    file = BytesIO(data)
    file.seek(_MAGIC_BYTES)
    size = 1
    while size > 0:  # that of the last is negative
        (size,) = _INT.unpack(file.read(_INT.size))
        end = file.tell() + abs(size)
        header = load(file)  # noqa: S301 - ours: its digest was checked
        block = file.read(end - file.tell())
        values = loads(decompress(block) if header[_COMPRESSED] else block)  # noqa: S301 - the same
        yield values[0], values[1]
