"""The table as one file in the cache, so that opening a long journal costs its last lines only.

A snapshot is numbers and texts, never code. It is sealed with the key of the cache, so what is in it is what was
written; each part of it is taken out when it is first asked for. It says how far it had read which journal. One that
does not fit the journal at hand, or that is damaged, is thrown away and the journal read from its start.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from stores.access import Guard
from stores.observation import Triple, parse_triple
from stores.observations.ids import Ids
from stores.observations.labels import Labels, Written
from stores.observations.sealing import Damaged, sealed, unsealed
from stores.observations.table import NEVER, Place, Table

NAME = "table"
_MAGIC = f"chatbot table 6 {sys.byteorder}\n".encode()
_COLUMNS = {
    "class_of": "H",
    "starts": "Q",
    "lengths": "I",
    "texts": "q",
    "created": "q",
    "updated": "q",
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


class BadSnapshot(Exception):
    """The snapshot cannot be used."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far which journal was read."""

    inode: int
    size: int
    digest: str


def dump(table: Table, position: Position, key: bytes) -> bytes:
    """The table and its position in the journal, as bytes."""
    labels = table.labels.written()
    parts = {
        **{name: getattr(table, name).tobytes() for name in _COLUMNS},
        "ids": table.ids.text().encode(),
        "gone": array("I", sorted(table.ids.gone)).tobytes(),
        "order": array("I", table.ids.order()).tobytes(),
        "twin_keys": bytes(table.twin_keys),
        "expiring": _json(table.expiring),
        "labels": labels.texts.encode(),
        "label_ends": labels.text_ends.tobytes(),
        "holders": labels.rows,
        "holder_ends": labels.row_ends.tobytes(),
        "later": _json([[number, places] for number, places in table.later.items()]),
        "after": _json(table.after),
        "sessions": _json(table.sessions),
        "triples": _json([fact.as_json() for fact in table.triples.values()]),
    }
    head = {
        "rows": len(table),
        "position": [position.inode, position.size, position.digest],
        "classes": [[status, *guard] for status, guard in table.classes],
        "lines": [table.lines, table.use_lines],
        "parts": {name: len(data) for name, data in parts.items()},
    }
    header = _json(head)
    body = b"".join([len(header).to_bytes(8, "little"), header, *parts.values()])
    return sealed(_MAGIC, body, key)


def load(data: bytes, key: bytes) -> tuple[Table, Position]:
    """What `dump` was given. Raises `BadSnapshot`."""
    try:
        return _load(unsealed(_MAGIC, data, key))
    except Damaged as error:
        raise BadSnapshot(str(error)) from error
    except (KeyError, TypeError, ValueError) as error:  # from a release that has the version, and not the parts
        raise BadSnapshot(f"{type(error).__name__}: {error}") from error


def _load(body: memoryview) -> tuple[Table, Position]:
    begin = 8 + int.from_bytes(body[:8], "little")
    head: dict[str, Any] = json.loads(bytes(body[8:begin]))
    places = pairwise(accumulate(head["parts"].values(), initial=begin))
    parts = {name: body[start:end] for name, (start, end) in zip(head["parts"], places, strict=True)}
    table = Table()
    table.ids = Ids(parts["ids"], _numbers("I", parts["gone"]), _numbers("I", parts["order"]))
    table.classes = [(status, Guard(*guard)) for status, *guard in head["classes"]]
    table.lines, table.use_lines = head["lines"]
    _leave_all(table, head["rows"], parts)
    return table, Position(*head["position"])


def _leave_all(table: Table, rows: int, parts: Mapping[str, memoryview]) -> None:
    for name, code in _COLUMNS.items():
        table.leave(name, partial(_numbers, code, parts[name]))
    for name in ("after", "sessions"):
        table.leave(name, partial(_value, parts[name]))
    table.leave("twin_keys", partial(bytearray, parts["twin_keys"]))
    table.leave("expiring", partial(_expiring, parts["expiring"]))
    table.leave("expires", partial(_expires, rows, parts["expiring"]))
    table.leave("labels", partial(_labels, parts))
    table.leave("later", partial(_later, parts["later"]))
    table.leave("triples", partial(_triples, parts["triples"]))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _value(part: memoryview) -> Any:
    return json.loads(bytes(part))


def _numbers(code: str, part: memoryview) -> array[Any]:
    found = array(code)
    found.frombytes(part)
    return found


def _expiring(part: memoryview) -> list[tuple[int, int]]:
    return [(at, number) for at, number in _value(part)]


def _expires(rows: int, part: memoryview) -> array[int]:
    column = array("q", [NEVER]) * rows
    for at, number in _expiring(part):
        column[number] = at
    return column


def _labels(parts: Mapping[str, memoryview]) -> Labels:
    ends, row_ends = _numbers("I", parts["label_ends"]), _numbers("I", parts["holder_ends"])
    return Labels(Written(str(parts["labels"], "utf-8"), ends, parts["holders"], row_ends))


def _later(part: memoryview) -> dict[int, list[Place]]:
    return {number: [(start, size) for start, size in places] for number, places in _value(part)}


def _triples(part: memoryview) -> dict[str, Triple]:
    return {fact.id: fact for fact in map(parse_triple, _value(part))}
