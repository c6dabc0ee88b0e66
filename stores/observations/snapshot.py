"""The table as one file in the cache, so that opening a long journal costs its last lines only.

A snapshot is numbers and texts, never code. It says how far it had read which journal; one that does not fit the
journal at hand, or that is damaged, is thrown away and the journal read from its start.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sized
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from operator import add
from typing import Any

from stores.access import Guard
from stores.errors import StoreError
from stores.observation import TYPES, parse_triple
from stores.observations.table import Table, micros

NAME = "table"
VERSION = 4
_MAGIC = b"chatbot table 4\n"
_COLUMNS = {
    "class_of": "H",
    "starts": "Q",
    "lengths": "I",
    "texts": "q",
    "created": "q",
    "updated": "q",
    "expires": "q",
    "used": "q",
    "quiet": "q",
    "uses": "I",
    "mentions": "I",
    "confirms": "I",
    "importance": "d",
    "strength": "d",
    "consolidated": "q",
    "consolidated_touches": "I",
    "types": "B",
    "session_of": "I",
}
_ID_LENGTH = 36
_MISFITS = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError)
_FIRST, _LAST = (micros(at.replace(tzinfo=UTC)) for at in (datetime.min, datetime.max))  # noqa: DTZ901 - given one


class BadSnapshot(Exception):
    """The snapshot cannot be used."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far which journal was read."""

    inode: int
    size: int
    digest: str


def dump(table: Table, position: Position) -> bytes:
    """The table and its position in the journal, as bytes."""
    labels, holders = list(table.labels), array("I")
    counts = []
    for rows in table.labels.values():
        counts.append(len(rows))
        holders.extend(rows)
    head = {
        "rows": len(table),
        "inode": position.inode,
        "size": position.size,
        "digest": position.digest,
        "classes": [[status, *guard] for status, guard in table.classes],
        "later": {str(number): places for number, places in table.later.items()},
        "labels": labels,
        "counts": counts,
        "after": table.after,
        "sessions": table.sessions,
        "triples": [fact.as_json() for fact in table.triples.values()],
        "lines": [table.lines, table.use_lines],
    }
    header = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    parts = [getattr(table, name).tobytes() for name in _COLUMNS]
    body = b"".join(
        [len(header).to_bytes(8, "little"), header, "".join(table.ids).encode(), *parts, table.twin_keys, holders]
    )
    return _MAGIC + blake2b(body, digest_size=16).digest() + body


def load(data: bytes) -> tuple[Table, Position]:
    """What `dump` was given. Raises `BadSnapshot`."""
    body = memoryview(data)[len(_MAGIC) + 16 :]
    if not data.startswith(_MAGIC) or blake2b(body, digest_size=16).digest() != data[len(_MAGIC) :][:16]:
        raise BadSnapshot("it is not what was written")
    try:
        return _load(body)
    except (*_MISFITS, StoreError) as error:
        raise BadSnapshot(f"{type(error).__name__}: {error}") from error


def _load(body: memoryview) -> tuple[Table, Position]:
    length = int.from_bytes(body[:8], "little")
    head: dict[str, Any] = json.loads(bytes(body[8 : 8 + length]))
    rest = body[8 + length :]
    table, rows = Table(), head["rows"]
    ids = bytes(rest[: rows * _ID_LENGTH]).decode("ascii")
    table.ids = [ids[at : at + _ID_LENGTH] for at in range(0, len(ids), _ID_LENGTH)]
    rest = rest[rows * _ID_LENGTH :]
    for name, code in _COLUMNS.items():
        column = array(code)
        column.frombytes(rest[: rows * column.itemsize])
        rest = rest[rows * column.itemsize :]
        setattr(table, name, column)
    table.twin_keys = bytearray(rest[: rows * 16])
    holders = array("I")
    holders.frombytes(rest[rows * 16 :])
    begin = 0
    for label, count in zip(head["labels"], head["counts"], strict=True):
        table.labels[label] = holders[begin : begin + count]
        begin += count
    table.classes = [(status, Guard(*guard)) for status, *guard in head["classes"]]
    table.later = {int(number): [(start, size) for start, size in each] for number, each in head["later"].items()}
    table.after = head["after"]
    table.sessions = head["sessions"]
    for written in head["triples"]:
        fact = parse_triple(written)
        table.triples[fact.id] = fact
    table.lines, table.use_lines = head["lines"]
    position = Position(head["inode"], head["size"], head["digest"])
    _check(table, rows, position.size)
    table.restore_caches()
    return table, position


def _check(table: Table, rows: int, size: int) -> None:
    """Raise `ValueError` for what would lead astray, or out of a column, later."""
    columns: list[Sized] = [getattr(table, name) for name in _COLUMNS]
    places = [place for each in table.later.values() for place in each]
    texts = [*table.after, *table.after.values(), *(each for each in table.sessions if each is not None)]
    moments = [getattr(table, name) for name in ("created", "updated", "used", "quiet", "consolidated")]
    sound = (
        len(table.ids) == rows
        and all(len(column) == rows for column in columns)
        and len(table.twin_keys) == rows * 16
        and max(table.class_of, default=-1) < len(table.classes)
        and max(table.session_of, default=-1) < len(table.sessions)
        and max(table.types, default=-1) < len(TYPES)
        and all(0 <= number < rows for number in table.later)
        and all(0 <= start <= start + length <= size for start, length in places)
        and max(map(add, table.starts, table.lengths), default=0) <= size
        and all(max(numbers, default=-1) < rows for numbers in table.labels.values())
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(word, str) for status, guard in table.classes for word in (status, *guard))
        and all(isinstance(number, int) for number in (table.lines, table.use_lines))
        and all(min(times, default=0) >= _FIRST and max(times, default=0) <= _LAST for times in moments)
    )
    if not sound:
        raise ValueError("its numbers contradict each other")
