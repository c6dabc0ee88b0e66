"""Immutable files of named arrays: the one format of every cache of the journal.

    a header of JSON on one line, padded with spaces | the arrays, each aligned to 8 bytes

A file is written whole, read whole and never changed. The list that names it has its digest, which is compared before
anything of it is used; nothing is executed. A digest finds damage; an attacker could at worst make searches find too
little.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple
from zlib import crc32

from chatbot.stores.errors import StoreBusy, StoreFailed
from chatbot.stores.log import Shelf

_ALIGNED = 8

Buffer = bytes | bytearray | memoryview


class DamagedArrays(Exception):
    """A file is missing, or its content was changed."""


class Arrays(NamedTuple):
    """A file of arrays."""

    about: Mapping[str, Any]
    parts: Mapping[str, memoryview]

    @classmethod
    def of(cls, shelf: Shelf, name: str, digest: str) -> Arrays:
        """Read the file with that digest from the shelf.

        Raises `DamagedArrays` if it is not what was written, `StoreFailed` or `StoreBusy` if the system fails.
        """
        try:
            data = shelf.read(name)
        except (StoreFailed, StoreBusy):
            raise
        except OSError as error:
            raise DamagedArrays(f"{shelf.name}/{name} cannot be read: {error}") from error
        if _digest(data) != digest:
            raise DamagedArrays(f"{shelf.name}/{name} is not what was written")
        return cls.parse(data)

    @classmethod
    def parse(cls, data: bytes) -> Arrays:
        """Return the arrays of a file as it was `packed`."""
        end = data.index(b"\n") + 1
        header, body = json.loads(data[:end]), memoryview(data)
        begins = accumulate(map(_aligned, header["sizes"].values()), initial=end)
        found = zip(header["sizes"].items(), begins, strict=False)
        return cls(header["about"], {name: body[at : at + size] for (name, size), at in found})


def packed(arrays: Mapping[str, Buffer], about: Mapping[str, Any]) -> tuple[bytes, str]:
    """A file of these arrays, which are little-endian, and its digest; `about` is kept in its header as JSON."""
    sizes = {name: memoryview(data).nbytes for name, data in arrays.items()}
    header = json.dumps({"sizes": sizes, "about": about}, ensure_ascii=False, separators=(",", ":")).encode()
    parts: list[Buffer] = [header.ljust(_aligned(len(header) + 1) - 1), b"\n"]
    for name, data in arrays.items():
        parts += [data, bytes(-sizes[name] % _ALIGNED)]
    data = b"".join(parts)
    return data, _digest(data)


def joined(texts: Iterable[bytes]) -> tuple[bytes, list[int]]:
    """Return the texts joined, and where each begins, followed by the end of the last one."""
    listed = list(texts)
    return b"".join(listed), list(accumulate(map(len, listed), initial=0))


def _aligned(size: int) -> int:
    return size + -size % _ALIGNED


def _digest(data: bytes) -> str:
    return f"{crc32(data):08x}-{len(data)}"
