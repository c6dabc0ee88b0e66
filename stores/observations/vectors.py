"""The vectors of rows, as one file in the cache: a header that names the model, then one record a row.

A record is a checksum, the row's number, the digest of the text that was embedded, and the vector at length 1, all
little-endian. Each record is sound by itself: one that is torn or damaged is left out, and its row embedded again. One
whose digest is not that of the row's text is not used. Records are appended and, when a row is erased, overwritten in
place, which whoever has the file mapped sees at once.

Writers hold the journal's lock; readers need none.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from struct import Struct
from zlib import crc32

from chatbot.stores.cache import Cache
from chatbot.stores.errors import InvalidValue
from chatbot.stores.files import Stamp, opened, stamp, translated
from chatbot.stores.vectors import Vector, alike, check_model, packed

logger = logging.getLogger(__name__)

NAME = "vectors"
_MAGIC = b"chatbot vecs 1\n\0"
_HEADER = Struct("<16s16s16sII456s")
"""Magic, checksum of the rest, what tells this file from others, dimension, length of the model's name, the name."""
_HEAD = Struct("<IIQ")
"""Of a record: checksum of the rest, the row's number, digest of its text."""
_MOST_DIMENSIONS = 1 << 16
_LONGEST_NAME = 456
_COMPACTED_FROM = 1024
"""Records that are of no use any more, from which on compaction is thought of."""


class Vectors:
    """Guarded by its owner's lock. Empty where there is no file, or none that can be used."""

    model: str
    """What the vectors were made with; empty where there are none."""
    dimension: int

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.close()

    def catch_up(self) -> None:
        """Read what was added to the file, or all of it if it is another one."""
        now = stamp(self._cache.folder / NAME)
        if now is None:
            self.close()
        elif now != self._stamp:
            self._read(now)

    def check(self, model: str, dimension: int = 0) -> None:
        """Raise `OtherEmbedder` where what is kept was made by another model, or is of another length."""
        check_model((self.model, self.dimension), model, dimension)

    def has(self, number: int, digest: int) -> bool:
        """Whether the row's vector is there, for this very text."""
        at = self._latest.get(number)
        return at is not None and self._head(at)[2] == digest

    def add(self, model: str, dimension: int, rows: Iterable[tuple[int, int, Vector]]) -> None:
        """Append vectors of length 1 with the numbers and digests of their rows. Needs the journal's lock."""
        self.catch_up()
        self.check(model, dimension)
        if not self.model:
            self._cache.write(NAME, _header(model, dimension))
            self.catch_up()
        data = b"".join(_record(number, digest, vector) for number, digest, vector in rows)
        folder_path = self._cache.folder
        with translated(folder_path), opened(folder_path) as folder:
            now = folder.stamp(NAME)
            if now is None or self._stamp is None or now.inode != self._stamp.inode:
                return  # it was deleted this very moment: what is missing is embedded again
            if torn := (now.size - _HEADER.size) % self._size:
                folder.cut(NAME, now.size - torn)
            with folder.appending(NAME, mend=lambda _: (0, b"")) as file:
                file.write(data)
        self.catch_up()

    def erase(self, numbers: Collection[int]) -> None:
        """When this returns, no vector of these rows is in the file. Needs the journal's lock."""
        self.catch_up()
        heads = ((at, self._head(at)) for at in range(self._count))
        places = [at for at, head in heads if head[1] in numbers or not self._is_sound(at, head)]
        if places:
            with self._cache.changing(NAME) as file:
                for at in places:
                    os.pwrite(file, bytes(self._size), _HEADER.size + at * self._size)
                os.fsync(file)
        for number in numbers:
            self._latest.pop(number, None)

    def compact(self, digests: Sequence[int]) -> None:
        """Leave out the records whose texts are not these any more, if they are many. Needs the journal's lock."""
        used = [at for at in self._latest.values() if self._number(at, digests) is not None]
        if self._count - len(used) > max(_COMPACTED_FROM, len(used)):
            rows = self._rows()
            records = [rows[at * self._size : (at + 1) * self._size] for at in sorted(used)]
            self._cache.write(NAME, b"".join([_header(self.model, self.dimension), *records]))
            self.catch_up()

    def nearest(self, query: Vector, digests: Sequence[int], flags: bytearray) -> Iterator[tuple[float, int]]:
        """Cosine and number of the visible rows that are alike, the most alike first. `query` is of length 1."""
        if len(query) != self.dimension:
            return
        found = alike(query, self._rows(), margin=_HEAD.size)
        for cosine, equals in groupby(found, key=itemgetter(0)):
            numbers = [number for _, at in equals if (number := self._number(at, digests)) is not None]
            for number in sorted(numbers, reverse=True):
                if flags[number]:
                    yield cosine, number

    def remove(self) -> None:
        """Delete the file. Needs the journal's lock."""
        self.close()
        self._cache.remove(NAME)

    def close(self) -> None:
        """Let go of the file."""
        self.model = ""
        self.dimension = 0
        self._nonce = b""
        self._stamp: Stamp | None = None
        self._map: mmap.mmap | None = None
        self._count = 0
        self._latest: dict[int, int] = {}

    @property
    def _size(self) -> int:
        return _HEAD.size + 4 * self.dimension

    def _read(self, now: Stamp) -> None:
        """Map the file and check the records that were not there before."""
        mapped = self._mapped(now)
        header = None if mapped is None else _parse_header(mapped)
        if header is None or mapped is None:
            self.close()
            self._stamp = now  # not to be looked at again before it changes
            return
        count = (len(mapped) - _HEADER.size) // (_HEAD.size + 4 * header.dimension)
        if header.nonce != self._nonce or count < self._count:
            self.close()
        self.model, self.dimension, self._nonce = header.model, header.dimension, header.nonce
        known, self._count, self._map, self._stamp = self._count, count, mapped, now
        damaged = 0
        for at in range(known, count):
            head = self._head(at)
            if self._is_sound(at, head):
                self._latest[head[1]] = at
            else:
                damaged += any(head)
        if damaged:
            logger.warning("%d damaged vectors in %s are made again", damaged, self._cache.folder / NAME)

    def _mapped(self, now: Stamp) -> mmap.mmap | None:
        with self._cache.reading(NAME) as file:
            if file is None or now.size < _HEADER.size:
                return None
            return mmap.mmap(file, os.fstat(file).st_size, access=mmap.ACCESS_READ)

    def _rows(self) -> memoryview:
        if self._map is None:
            return memoryview(b"")
        return memoryview(self._map)[_HEADER.size : _HEADER.size + self._count * self._size]

    def _head(self, at: int) -> tuple[int, int, int]:
        checksum, number, digest = _HEAD.unpack_from(self._map or b"", _HEADER.size + at * self._size)
        return checksum, number, digest

    def _is_sound(self, at: int, head: tuple[int, int, int]) -> bool:
        rows = self._rows()
        return head[0] == crc32(rows[at * self._size + 4 : (at + 1) * self._size])

    def _number(self, at: int, digests: Sequence[int]) -> int | None:
        """The number of the row that the record is of, if it is the row's last and of the text that it has now."""
        _, number, digest = self._head(at)
        is_used = self._latest.get(number) == at and number < len(digests) and digests[number] == digest
        return number if is_used else None


@dataclass(frozen=True, slots=True)
class _Header:
    nonce: bytes
    model: str
    dimension: int


def _header(model: str, dimension: int) -> bytes:
    name = model.encode()
    if not 0 < len(name) <= _LONGEST_NAME or not 0 < dimension <= _MOST_DIMENSIONS:
        raise InvalidValue(f"no vectors of {dimension} dimensions by {model!r} can be kept")
    rest = _HEADER.pack(b"", b"", secrets.token_bytes(16), dimension, len(name), name)[32:]
    return _MAGIC + blake2b(rest, digest_size=16).digest() + rest


def _parse_header(mapped: mmap.mmap) -> _Header | None:
    magic, checksum, nonce, dimension, length, name = _HEADER.unpack_from(mapped)
    is_ours = magic == _MAGIC and checksum == blake2b(mapped[32 : _HEADER.size], digest_size=16).digest()
    if not is_ours or not 0 < dimension <= _MOST_DIMENSIONS or length > _LONGEST_NAME:
        return None
    return _Header(nonce, name[:length].decode(errors="replace"), dimension)


def _record(number: int, digest: int, vector: Vector) -> bytes:
    rest = _HEAD.pack(0, number, digest)[4:] + packed(vector)
    return crc32(rest).to_bytes(4, "little") + rest
