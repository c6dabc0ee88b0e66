"""Immutable files of named arrays: the one format of every cache of the journal; and parts made of them.

    the arrays, each aligned to 8 bytes | a CRC-32 for each chunk of 8 KiB | a JSON header | a footer of fixed size

A file is written whole and never changed. Opening one reads its header only. A chunk is read when something in it is
first asked for, is compared with its checksum then, and is used from memory afterwards: nothing is parsed, nothing is
executed, no descriptor stays open, and a file that changes or shrinks later can neither mislead nor crash a reader.
A checksum finds damage; it does not stop an attacker, who could at worst make searches find too little.

Vectors and the terms of sessions are `Parts`: of a row in several parts, the last one counts. Little is written at a
time, so new rows take in the last parts while these are no more than twice as large: there are few parts, and each row
is written again a few times only. A damaged part is left out, and its content is made again.
"""

from __future__ import annotations

import errno
import json
import logging
import secrets
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar
from zlib import crc32

from chatbot.stores.errors import MissingFolder, StoreBusy, StoreFailed
from chatbot.stores.shelf import Hands, Piece, Shelf

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
    """A file does not hold what was written into it."""


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

    Threads may read at once: the worst that comes of it is that a chunk is read twice.
    """

    def __init__(self, source: Source, name: str, digest: str | None = None, *, whole: bool = False) -> None:
        """Open the file that messages call `name`; with a digest, only the very file that `packed` gave it for.

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
        """The array, of which only what `load` was asked for is there yet."""
        start, size = self._places.get(name, (0, 0))
        return memoryview(self._body)[start : start + size]

    def load(self, name: str, begin: int = 0, end: int | None = None) -> None:
        """Read the bytes from `begin` to `end` of the array, and check them."""
        self.load_parts([(name, begin, end)])

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
    """Texts one behind the other, and where each begins, the end of the last one included."""
    listed = list(texts)
    return b"".join(listed), list(accumulate(map(len, listed), initial=0))


def _digest(sums: bytes, header: bytes, body: int) -> bytes:
    return blake2b(b"%d %d\n" % (body, len(sums)) + sums + header, digest_size=16).digest()


logger = logging.getLogger(__name__)

_ATTEMPTS = 3


class Part:
    """One of the parts, of which only what is asked for is read. Subclasses check it when they are made."""

    def __init__(self, name: str, digest: str, arrays: Arrays) -> None:
        self.name = name
        self.digest = digest
        self.arrays = arrays

    def __len__(self) -> int:
        """Number of rows."""
        raise NotImplementedError


class PackedPart(NamedTuple):
    """A part that is not on the shelf yet: what `packed` returned."""

    data: bytes
    digest: str


P = TypeVar("P", bound=Part)


class Parts(Generic[P]):
    """The parts that count, as they were when `refresh` was last called. Guarded by its owner's lock."""

    def __init__(self, shelf: Shelf, layout: str, make: Callable[[str, str, Arrays], P], most: int) -> None:
        """Parts of at most so many rows, about: a part is written again as a whole when one of them is erased."""
        self._shelf = shelf
        self._layout = layout
        self._make = make
        self._most = most
        self._stamp: Hashable | None = None
        self.all: Sequence[P] = ()

    def refresh(self) -> bool:
        """Take over what was published; returns whether anything was. One call to the system if not."""
        if self._shelf.stamp() == self._stamp:
            return False
        for _ in range(_ATTEMPTS):
            stamp, listed = self._shelf.stamp(), self._listed()
            self._adopt(stamp, listed)
            if len(self.all) == len(listed) or self._shelf.stamp() == stamp:
                break
        return True

    def is_all_there_is(self) -> bool:
        """False where the shelf holds something else: a damaged part, or one that a killed process left."""
        try:
            return {*self._shelf.names()} == {part.name for part in self.all}
        except MissingFolder:
            return not self.all

    def drop(self, part: P, why: Exception) -> None:
        """Do without a part that turned out to be damaged, unless another list was published meanwhile."""
        if not self.refresh():
            logger.warning("a part of %s is made again: %s", self._shelf.name, why)
            self.all = [each for each in self.all if each is not part]

    @contextmanager
    def changing(self, *, make: bool = True) -> Iterator[Hands]:
        """Lock the parts for changes, with `all` up to date. Raises `MissingFolder` if not to `make` a shelf."""
        if make:
            self._shelf.prepare()
        with self._shelf.alone() as hands:
            self.refresh()
            yield hands

    def split(self, added: int, used: Mapping[P, int]) -> tuple[list[P], list[P]]:
        """The parts to leave as they are when so many rows are added, and those to take along.

        `used` says how many rows of each part still count: one that is of little use goes.
        """
        count, total = len(self.all), added
        while count and len(self.all[count - 1]) <= 2 * total and total + len(self.all[count - 1]) <= self._most:
            count -= 1
            total += len(self.all[count])
        kept, taken = [], [*self.all[count:]]
        for part in self.all[:count]:
            if 2 * used[part] <= len(part) and total + used[part] <= self._most:
                total += used[part]
                taken.append(part)
            else:
                kept.append(part)
        return kept, taken

    def publish(self, hands: Hands, parts: Sequence[P | PackedPart], *, durable: bool = True) -> None:
        """Publish exactly these parts, in this order.

        Where it is `durable`, no byte of the others is left on return, and none comes back after a power cut.
        """
        if [*parts] == [*self.all] and self.is_all_there_is():
            return
        listed = []
        for part in parts:
            name = f"part-{secrets.token_hex(8)}" if isinstance(part, PackedPart) else part.name
            if isinstance(part, PackedPart):
                hands.put(name, part.data, durable=durable)
            listed.append((name, part.digest))
        stamp = hands.publish({"format": self._layout, "parts": listed}, durable=durable)
        hands.remove({*self._shelf.names()} - {name for name, _ in listed})
        if durable:
            hands.sync()
        self._adopt(stamp, listed)

    def _listed(self) -> list[tuple[str, str]]:
        value = self._shelf.listed()
        try:
            if value["format"] == self._layout:
                return [(str(name), str(digest)) for name, digest in value["parts"]]
        except (TypeError, KeyError, ValueError):
            pass
        return []

    def _adopt(self, stamp: Hashable | None, listed: Sequence[tuple[str, str]]) -> None:
        known = {(part.name, part.digest): part for part in self.all}
        found = (known.get(each) or self._opened(*each) for each in listed)
        self.all = [part for part in found if part is not None]
        self._stamp = stamp

    def _opened(self, name: str, digest: str) -> P | None:
        try:
            arrays = Arrays(partial(self._shelf.opened, name), name, digest, whole=self._shelf.is_remote)
            return self._make(name, digest, arrays)
        except (DamagedArrays, ValueError, KeyError, TypeError) as error:
            logger.warning("a part of %s is made again: %s", self._shelf.name, error)
            return None
