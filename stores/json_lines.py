"""Files with one JSON object a line, only ever added to. Blocking.

A line that cannot be read never hides the others: it is left where it is, skipped, and reported.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from stores.errors import InvalidValue
from stores.files import Folder

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 16 * 1024


def encode(record: Mapping[str, Any]) -> bytes:
    """The record as one line."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def record_of(line: bytes) -> dict[str, Any]:
    """The record in a line. Raises `InvalidValue`."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"it is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise InvalidValue("it is no JSON object")
    return record


def is_blank(line: bytes) -> bool:
    """Whether a line holds nothing, or only what a crash leaves."""
    return not line.strip(b" \r\0")


def read(folder: Folder, name: str) -> list[dict[str, Any]]:
    """Every record in the file, oldest first; none where there is no file."""
    try:
        data = folder.read(name)
    except FileNotFoundError:
        return []
    return [record for line in data.split(b"\n") if (record := _decode(line, folder, name)) is not None]


def read_since(folder: Folder, name: str, start: int, end: int) -> tuple[list[dict[str, Any]], int]:
    """The records whose lines begin at `start` or later and end before `end`, and where the next line begins."""
    whole, _, _ = folder.read(name, start, end).rpartition(b"\n")
    if not whole:
        return [], start
    records = [record for line in whole.split(b"\n") if (record := _decode(line, folder, name)) is not None]
    return records, start + len(whole) + 1


def read_backwards(folder: Folder, name: str) -> Iterator[dict[str, Any]]:
    """Every record in the file, newest first, reading no more of it than is asked for."""
    for line in lines_backwards(folder, name):
        if (record := _decode(line, folder, name)) is not None:
            yield record


def lines_backwards(folder: Folder, name: str) -> Iterator[bytes]:
    """Every line of the file, last first, reading no more of it than is asked for; none where there is no file."""
    stamp = folder.stamp(name)
    end = stamp.size if stamp else 0
    rest = b""
    while end:
        start = max(0, end - _CHUNK_BYTES)
        lines = (folder.read(name, start, end) + rest).split(b"\n")
        rest = lines.pop(0) if start else b""
        yield from reversed(lines)
        end = start


def _decode(line: bytes, folder: Folder, name: str) -> dict[str, Any] | None:
    if is_blank(line):
        return None
    try:
        return record_of(line)
    except InvalidValue as error:
        logger.warning(
            "%s holds a line that is no record, and was skipped: %s: %r", folder.path / name, error, line[:80]
        )
        return None
