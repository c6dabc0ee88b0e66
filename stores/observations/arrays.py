"""Immutable files of named arrays: the format of every cache of the journal, and the list of a shelf's files.

    a header of JSON on one line, padded with spaces | the arrays, each aligned to 8 bytes

A file is written whole, read whole and never changed. The list that names it has its digest, which is checked before
the file is used; nothing is executed. A digest (CRC-32) detects damage, not tampering.
"""

import json
import logging
import re
import secrets
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import nullcontext, suppress
from itertools import accumulate
from typing import Any, Generic, NamedTuple, TypeVar
from zlib import crc32

from msgspec import Struct

from chatbot.stores.errors import MISFITS, StoreBusy, StoreError, StoreFailed
from chatbot.stores.log import Shelf, ShelfWriter
from chatbot.stores.text.analysis import VERSION

logger = logging.getLogger(__name__)

INDEX_FORMAT = f"6.{VERSION}"
"""Version of the files of the text index and of the analysis: an index of another version is rebuilt."""
FLUSH_ROWS = 512
"""Number of rows in memory that are worth a segment of that index."""
_ALIGNED = 8
_ATTEMPTS = 3
_NAME = re.compile(r"[a-z]+-[0-9a-f]{16}")

Buffer = bytes | bytearray | memoryview
Opened = TypeVar("Opened")


class DamagedArrays(ValueError):
    """A file is missing, or its content was changed."""


class Arrays(NamedTuple):
    """A file of arrays."""

    about: Mapping[str, Any]
    parts: Mapping[str, memoryview]

    @classmethod
    def of(cls, shelf: Shelf, name: str, digest: str) -> "Arrays":
        """Read a file by its digest. Raises `DamagedArrays` for another content, `StoreFailed` or `StoreBusy`."""
        try:
            data = shelf.read(name)
        except (StoreFailed, StoreBusy):
            raise
        except (OSError, ValueError) as error:
            raise DamagedArrays(f"{shelf.name}/{name} cannot be read: {error}") from error
        if _digest(data) != digest:
            raise DamagedArrays(f"{shelf.name}/{name} is not what was written")
        return cls.parse(data)

    @classmethod
    def parse(cls, data: bytes) -> "Arrays":
        """Return the arrays of a file that `pack` made."""
        end = data.index(b"\n") + 1
        header, body = json.loads(data[:end]), memoryview(data)
        begins = accumulate(map(_aligned, header["sizes"].values()), initial=end)
        found = zip(header["sizes"].items(), begins, strict=False)
        return cls(header["about"], {name: body[at : at + size] for (name, size), at in found})


def pack(arrays: Mapping[str, Buffer], about: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a file of these arrays, which are little-endian, and its digest; `about` is its header."""
    sizes = {name: memoryview(data).nbytes for name, data in arrays.items()}
    header = json.dumps({"sizes": sizes, "about": about}, ensure_ascii=False, separators=(",", ":")).encode()
    parts: list[Buffer] = [header.ljust(_aligned(len(header) + 1) - 1), b"\n"]
    for name, data in arrays.items():
        parts += [data, bytes(-sizes[name] % _ALIGNED)]
    data = b"".join(parts)
    return data, _digest(data)


class Piece(NamedTuple):
    """Entry of a list: a file, its digest, and its range of rows if that must be known before it is opened."""

    name: str
    digest: str
    start: int = 0
    end: int = 0


class PieceList(Struct, frozen=True):
    """The valid files of a shelf. Each published list has a new generation."""

    generation: int = 0
    pieces: tuple[Piece, ...] = ()


def put(writer: ShelfWriter, kind: str, packed: tuple[bytes, str], *rows: int, durable: bool = False) -> Piece:
    """Put a file that `pack` made on a shelf, to be listed; return its entry."""
    piece = Piece(f"{kind}-{secrets.token_hex(8)}", packed[1], *rows)
    writer.put(piece.name, packed[0], durable=durable)
    return piece


def read_list(shelf: Shelf, layout: str) -> PieceList:
    """Return the list of a shelf; an empty one if there is none, or none of this layout."""
    value = shelf.listed()
    with suppress(*MISFITS):
        if value["format"] == layout:
            pieces = [Piece(str(name), str(digest), int(a), int(b)) for name, digest, a, b in value["pieces"]]
            return PieceList(int(value["generation"]), tuple(each for each in pieces if _NAME.fullmatch(each.name)))
    return PieceList()


class Pieces(Generic[Opened]):
    """The files that a shelf lists, opened. Guarded by its owner's lock, except `publish`, which needs the shelf's."""

    def __init__(self, shelf: Shelf, layout: str, opened: Callable[[Piece, Arrays], Opened]) -> None:
        self.shelf = shelf
        self.layout = layout
        self.list = PieceList()
        self.all: dict[Piece, Opened] = {}
        """The undamaged files of the list, in its order."""
        self._opened = opened
        self._stamp: Hashable | None = None

    def refresh(self, writer: ShelfWriter | None = None) -> bool:
        """Use the list that was published since the last call, and return True; without one, only read the stamp.

        A damaged file is left out and removed. Needs `writer` if the shelf is locked already.
        """
        if self.shelf.stamp() == self._stamp:
            return False
        for _ in range(_ATTEMPTS):
            stamp = self.shelf.stamp()
            self.adopt(read_list(self.shelf, self.layout), stamp)
            if len(self.all) == len(self.list.pieces):
                return True
            if self.shelf.stamp() == stamp:
                break
        logger.warning("a part of %s is damaged and will be rebuilt", self.shelf.name)
        damaged = {*self.list.pieces} - self.all.keys()
        with suppress(StoreError), nullcontext(writer) if writer else self.shelf.alone() as held:
            left = [each for each in read_list(self.shelf, self.layout).pieces if each not in damaged]
            self.adopt(*self.publish(held, left))
        return True

    def adopt(self, found: PieceList, stamp: Hashable | None, made: Mapping[Piece, Opened] | None = None) -> None:
        """Use this list; `made` are files that are open already."""
        known = self.all | dict(made or {})
        opened = ((each, known[each] if each in known else self._open(each)) for each in found.pieces)
        self.all = {piece: each for piece, each in opened if each is not None}
        self.list, self._stamp = found, stamp

    def publish(
        self, writer: ShelfWriter, pieces: Iterable[Piece], *, durable: bool = True
    ) -> tuple[PieceList, Hashable | None]:
        """List exactly these files, in the order of their rows, and remove all others; return list and stamp."""
        after = PieceList(
            read_list(self.shelf, self.layout).generation + 1, tuple(sorted(pieces, key=lambda each: each.start))
        )
        value = {"format": self.layout, "generation": after.generation, "pieces": after.pieces}
        stamp = writer.publish(value, durable=durable)
        writer.remove({*self.shelf.names()} - {each.name for each in after.pieces})
        return after, stamp

    def _open(self, piece: Piece) -> Opened | None:
        """Return the opened file; None if it is damaged. Raises `StoreFailed` or `StoreBusy`."""
        try:
            return self._opened(piece, Arrays.of(self.shelf, piece.name, piece.digest))
        except MISFITS:
            return None


def _aligned(size: int) -> int:
    return size + -size % _ALIGNED


def _digest(data: bytes) -> str:
    return f"{crc32(data):08x}-{len(data)}"
