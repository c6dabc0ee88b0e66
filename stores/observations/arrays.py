"""Immutable files of named arrays: the one format of every cache of the journal.

    the arrays, each aligned to 8 bytes | a CRC-32 for each chunk of 8 KiB | a JSON header | a footer of fixed size

A file is written whole and never changed. Opening one reads its header only. A chunk is read and checked when first
needed, and used from memory afterwards: nothing is parsed or executed, no descriptor stays open, and a file that is
changed later cannot mislead or crash a reader. A checksum finds damage; an attacker could at worst make searches find
too little.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

from chatbot.stores.errors import StoreBusy, StoreFailed
from chatbot.stores.log import Piece

if TYPE_CHECKING:
    from chatbot.stores.observations.segments import SegmentEntry

CHUNK_BYTES = 1 << 13
_MAGIC = b"chatbot arrays 1"
_FOOTER = Struct("<QQ16s16s")
"""Bytes of the checksums, bytes of the header, digest of both, magic."""
_SUM = Struct("<I")
_TAIL_BYTES = 1 << 14
_ALIGNED = 8
_NOT_ITS_FAULT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}

Buffer = bytes | bytearray | memoryview
Source = Callable[[], AbstractContextManager[Piece]]
"""Opens the file; raises `OSError`."""


class DamagedArrays(Exception):
    """The content of a file was changed."""


class DamagedSegment(DamagedArrays):
    """The content of a segment was changed."""

    def __init__(self, entry: SegmentEntry, error: Exception) -> None:
        super().__init__(str(error))
        self.entry = entry


def packed(arrays: Mapping[str, Buffer], about: Mapping[str, Any]) -> tuple[bytes, str]:
    """A file of these arrays, which are little-endian, and its digest; `about` is kept in its header as JSON."""
    parts: list[Buffer] = []
    places: dict[str, list[int]] = {}
    position = 0
    for name, data in arrays.items():
        size = len(data) if isinstance(data, bytes | bytearray) else data.nbytes
        places[name] = [position, size]
        parts += [data, bytes(-size % _ALIGNED)]
        position += size + -size % _ALIGNED
    body = b"".join(parts)
    view = memoryview(body)
    sums = b"".join(crc32(view[at : at + CHUNK_BYTES]).to_bytes(4, "little") for at in range(0, position, CHUNK_BYTES))
    header = json.dumps({"arrays": places, "about": about}, ensure_ascii=False, separators=(",", ":")).encode()
    digest = _digest(sums, header, position)
    return b"".join([body, sums, header, _FOOTER.pack(len(sums), len(header), digest, _MAGIC)]), digest.hex()


class Arrays:
    """A file of arrays. Methods raise `DamagedArrays` if it is not what was written, `StoreFailed` if the system fails.

    Threads may read at once; at worst a chunk is read twice.
    """

    def __init__(self, source: Source, name: str, digest: str | None = None, *, whole: bool = False) -> None:
        """Open the file, called `name` in messages; with a digest, refuse any other file.

        `whole` reads everything at once, for files whose opening takes long.
        """
        self._source = source
        self._name = name
        try:
            with source() as piece:
                self._read_header(piece, digest)
                if whole and self._have:
                    self._read_run(piece, 0, len(self._have))
                    self._is_whole = True
        except OSError as error:
            raise self._translated(error) from error

    def buffer(self, name: str) -> memoryview:
        """Return the array, of which only the loaded parts are in memory."""
        start, size = self._places.get(name, (0, 0))
        return memoryview(self._body)[start : start + size]

    def load(self, name: str) -> None:
        """Read the array, and check it."""
        self.load_parts([(name, 0, None)])

    def load_parts(self, parts: Iterable[tuple[str, int, int | None]]) -> None:
        """Read these parts of arrays and check them, with one opening of the file."""
        if not self._is_whole:
            missing = [run for part in parts for run in self._missing(*self._chunks(*part))]
            self._read(missing)

    def whole(self, name: str) -> memoryview:
        """The whole array, read and checked."""
        self.load(name)
        return self.buffer(name)

    def all(self) -> dict[str, memoryview]:
        """Return all arrays, of which only the loaded ones are in memory."""
        return {name: self.buffer(name) for name in self._places}

    def load_all(self) -> None:
        """Read and check everything."""
        self._read(list(self._missing(0, len(self._have))))

    def _chunks(self, name: str, begin: int, end: int | None) -> tuple[int, int]:
        start, size = self._places.get(name, (0, 0))
        return (start + begin) // CHUNK_BYTES, -(-(start + (size if end is None else end)) // CHUNK_BYTES)

    def _missing(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """The runs of chunks that were not read."""
        while (first := self._have.find(0, first, stop)) >= 0:
            end = self._have.find(1, first, stop)
            yield first, (end := stop if end < 0 else end)
            first = end

    def _read(self, runs: Sequence[tuple[int, int]]) -> None:
        if not runs:
            return
        try:
            with self._source() as piece:
                for run in runs:
                    self._read_run(piece, *run)
        except OSError as error:
            raise self._translated(error) from error
        self._is_whole = 0 not in self._have

    def _read_run(self, piece: Piece, first: int, stop: int) -> None:
        begin, end = first * CHUNK_BYTES, min(stop * CHUNK_BYTES, len(self._body))
        data = memoryview(piece.read(begin, end))
        sums = self._sums[first:stop]
        if [crc32(data[at : at + CHUNK_BYTES]) for at in range(0, end - begin, CHUNK_BYTES)] != sums:
            raise DamagedArrays(f"{self._name} is not what was written")
        self._body[begin:end] = data
        self._have[first:stop] = b"\1" * (stop - first)

    def _read_header(self, piece: Piece, digest: str | None) -> None:
        size = piece.size
        tail = piece.read(max(0, size - _TAIL_BYTES), size)
        if len(tail) < _FOOTER.size:
            raise DamagedArrays(f"{self._name} is too short")
        sums, header, found, magic = _FOOTER.unpack(tail[-_FOOTER.size :])
        end = size - _FOOTER.size
        body = end - sums - header
        if magic != _MAGIC or body < 0 or 4 * -(-body // CHUNK_BYTES) != sums:
            raise DamagedArrays(f"{self._name} has another format")
        if sums + header + _FOOTER.size > len(tail):
            tail = piece.read(body, size)
        checksums = tail[-_FOOTER.size - header - sums : -_FOOTER.size - header]
        written = tail[-_FOOTER.size - header : -_FOOTER.size]
        if _digest(checksums, written, body) != found or digest not in {None, found.hex()}:
            raise DamagedArrays(f"{self._name} is not what was written")
        parsed = json.loads(written)
        self.about: Mapping[str, Any] = parsed["about"]
        self._places: dict[str, list[int]] = parsed["arrays"]
        self._sums = [each for (each,) in _SUM.iter_unpack(checksums)]
        self._body = bytearray(body)
        self._have = bytearray(-(-body // CHUNK_BYTES))
        self._is_whole = not self._have

    def _translated(self, error: OSError) -> Exception:
        if isinstance(error, StoreFailed | StoreBusy):
            return error
        if error.errno in _NOT_ITS_FAULT:
            return StoreFailed(f"{self._name}: {error.strerror}")
        return DamagedArrays(f"{self._name} cannot be read: {error}")


def joined(texts: Iterable[bytes]) -> tuple[bytes, list[int]]:
    """Return the texts joined, and where each begins, followed by the end of the last one."""
    listed = list(texts)
    return b"".join(listed), list(accumulate(map(len, listed), initial=0))


def _digest(sums: bytes, header: bytes, body: int) -> bytes:
    return blake2b(b"%d %d\n" % (body, len(sums)) + sums + header, digest_size=16).digest()
