"""Append-only files with one JSON object a line: journal, receipts and bills. Blocking.

Unreadable lines stay; readers skip and log them. Each line ends with a checksum of the rest, `,"sum":"0a1b2c3d"}`.
Reading does not check it, so a line that its owner edited stays valid; `chatbot doctor --verify` calls `damage_of`.
"""

import json
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from chatbot.stores.errors import DamagedFile, InvalidValue
from chatbot.stores.files import LONGEST_ENTRY, Folder
from chatbot.stores.records import well_formed

logger = logging.getLogger(__name__)

_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_CHUNK_BYTES = 16 * 1024
_SUM = re.compile(rb',"sum":"([0-9a-f]{8})"\}\s*\Z')
_END_BYTES = 64
SKIPPED = "%s holds a line that is not %s; it is skipped, see `chatbot doctor`: %s: %r"


def encode(record: Mapping[str, Any]) -> bytes:
    """Return the record as one line with a checksum."""
    body = _as_json(record).encode(errors="backslashreplace")  # half a character, as JSON escapes it
    return b'%s,"sum":"%08x"}\n' % (body[:-1], zlib.crc32(body)) if record else body + b"\n"


def damage_of(line: bytes) -> str:
    """Describe a missing or wrong checksum; empty if the checksum matches."""
    if (found := _SUM.search(line, max(0, len(line) - _END_BYTES))) is None:
        return "it has no checksum"
    is_intact = zlib.crc32(line[: found.start()] + b"}") == int(found[1], 16)
    return "" if is_intact else "it was changed after it was written"


def record_of(line: bytes) -> dict[str, Any]:
    """Return the record in a line, without its checksum. Raises `InvalidValue`."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise InvalidValue("not a JSON object")
    record.pop("sum", None)
    return record


def is_blank(line: bytes) -> bool:
    """Return True for a line with nothing but spaces, carriage returns and zero bytes."""
    return not line.strip(b" \r\0")


def read_backwards(folder: Folder, name: str) -> Iterator[dict[str, Any]]:
    """Yield every record in the file, newest first; reads no more of it than needed."""
    yield from readable(lines_backwards(folder, name), folder.path / name)


def lines_backwards(folder: Folder, name: str) -> Iterator[bytes]:
    """Yield every line of the file, last first; reads no more of it than needed. Yields nothing if there is no file.

    Raises `DamagedFile` for a line of more than 64 MiB, the longest transcript entry that a receipt may quote.
    """
    begun: list[bytes] = []  # pieces of a line whose start is not read yet, last first
    for chunk in folder.chunks_backwards(name, _CHUNK_BYTES):
        first, *lines = chunk.split(b"\n")
        if lines:
            yield lines.pop() + b"".join(reversed(begun))
            yield from reversed(lines)
            begun.clear()
        begun.append(first)
        if len(begun) * _CHUNK_BYTES > LONGEST_ENTRY:
            raise DamagedFile(f"{folder.path / name} has a line of more than {LONGEST_ENTRY >> 20} MiB")
    if begun:
        yield b"".join(reversed(begun))


def readable(lines: Iterable[bytes], where: object) -> Iterator[dict[str, Any]]:
    """Yield the records in the lines; one that cannot be read is skipped and logged."""
    for line in lines:
        if is_blank(line):
            continue
        try:
            record = record_of(line)  # half a character in it is replaced: no answer and no export could hold it
            yield json.loads(well_formed(_as_json(record))) if rb"\ud" in line.lower() else record
        except InvalidValue as error:
            _warn(str(where), str(error), line[:80])


@lru_cache(maxsize=256)
def _warn(where: str, why: str, line: bytes) -> None:
    """Log that a line is skipped; once, as a file is read again and again."""
    logger.warning(SKIPPED, where, "a record", why, line)
