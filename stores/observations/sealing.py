"""Files of which no byte is used before it is certain that it is what was written.

Small ones are sealed as a whole, with a key. Large ones are checked as they are read: each chunk has a digest of its
own, so what is not wanted is not read. Whoever keeps the digests of a file has to seal them in turn: they are no better
guarded than what holds them.
"""

from __future__ import annotations

import errno
import os
from hashlib import blake2b
from secrets import compare_digest

from stores.errors import StoreFailed
from stores.files import read_between

_CHUNK_BYTES = 4096
"""Part of every format that is sealed."""
_DIGEST_BYTES = 16
_SEAL_BYTES = 32
_OURS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class Damaged(Exception):
    """A file does not hold what was written into it."""


def sealed(magic: bytes, body: bytes, key: bytes) -> bytes:
    """A file that `unsealed` takes with the same magic and key, and no other."""
    return magic + _seal(body, key) + body


def unsealed(magic: bytes, data: bytes, key: bytes) -> memoryview:
    """The body of a file that `sealed` made. Raises `Damaged`."""
    if not data.startswith(magic):
        raise Damaged("another release may have written it")
    begin = len(magic) + _SEAL_BYTES
    body = memoryview(data)[begin:]
    if not compare_digest(_seal(body, key), data[len(magic) : begin]):
        raise Damaged("it is not what was written")
    return body


def seals_of(data: bytes) -> bytes:
    """The digests of the chunks of a file, one behind the other."""
    chunks = (data[at : at + _CHUNK_BYTES] for at in range(0, len(data), _CHUNK_BYTES))
    return b"".join([blake2b(chunk, digest_size=_DIGEST_BYTES).digest() for chunk in chunks])


def size_of_seals(size: int) -> int:
    """How many bytes the digests of a file of that size take."""
    return -(-size // _CHUNK_BYTES) * _DIGEST_BYTES


def read_sealed(path: str, seals: bytes, start: int, end: int) -> bytes:
    """The bytes of the file from `start` to `end`. Raises `Damaged` where they are not those that were sealed.

    Raises `StoreFailed` where it is not the file's fault.
    """
    first, stop = start // _CHUNK_BYTES, -(-end // _CHUNK_BYTES)
    try:
        data = _read(path, first * _CHUNK_BYTES, stop * _CHUNK_BYTES)
    except OSError as error:
        if error.errno in _OURS:
            raise StoreFailed(f"{path}: {error.strerror}") from error
        raise Damaged(f"{path} cannot be read: {error}") from error
    if seals_of(data) != seals[first * _DIGEST_BYTES : stop * _DIGEST_BYTES]:
        raise Damaged(f"{path} is not what was written")
    return data[start - first * _CHUNK_BYTES : end - first * _CHUNK_BYTES]


def bytes_read(start: int, end: int) -> int:
    """How many bytes are read for those from `start` to `end`."""
    return (-(-end // _CHUNK_BYTES) - start // _CHUNK_BYTES) * _CHUNK_BYTES


def _seal(body: bytes | memoryview, key: bytes) -> bytes:
    return blake2b(body, key=key, digest_size=_SEAL_BYTES).digest()


def _read(path: str, start: int, end: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return read_between(file, start, end)
    finally:
        os.close(file)
