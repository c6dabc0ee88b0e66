"""Snapshot of the table: one file of arrays, so that opening a long journal only reads its last lines.

It records which journal it was made of, and up to where.
"""

from __future__ import annotations

import json
import secrets
from array import array

from chatbot.stores.access import Guard
from chatbot.stores.errors import StoreError
from chatbot.stores.log import Mark, Shelf
from chatbot.stores.observations.arrays import Arrays, DamagedArrays, packed
from chatbot.stores.observations.columns import COLUMNS, column_names, numbers
from chatbot.stores.observations.lookups import Ids, Labels, LabelTexts
from chatbot.stores.observations.table import Table

NAME = "table"
_LAYOUT = "table 2"
_ATTEMPTS = 3


class BadSnapshot(Exception):
    """The snapshot cannot be used."""


class Snapshots:
    """The one snapshot of a log, on a shelf. Not safe between threads, except where its user locks."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.is_shared = shelf.is_shared
        """True if other machines read it too, so that it is worth writing while this one runs."""

    def load(self) -> tuple[Table, Mark] | None:
        """Return the snapshot; None if there is none. Raises `BadSnapshot`."""
        for _ in range(_ATTEMPTS):
            listed = self._shelf.listed()
            if listed is None:
                return None
            try:
                return self._opened(listed)
            except (BadSnapshot, DamagedArrays, StoreError) as error:
                if self._shelf.listed() == listed:  # else another one was written meanwhile
                    raise BadSnapshot(str(error)) from error
        return None

    def write(self, data: bytes, digest: str) -> None:
        """Replace the snapshot by one that was `dumped`. Needs the log's lock."""
        self._shelf.prepare()
        name = f"table-{secrets.token_hex(8)}"
        with self._shelf.alone() as hands:
            hands.put(name, data)
            hands.publish({"format": _LAYOUT, "piece": name, "digest": digest}, durable=False)
            hands.remove({*self._shelf.names()} - {name})

    def remove(self) -> None:
        """Erase the snapshot, which contains parts of memories. Raises a `StoreError`."""
        self._shelf.clear()

    def _opened(self, listed: object) -> tuple[Table, Mark]:
        match listed:
            case {"format": layout, "piece": str(piece), "digest": str(digest)} if layout == _LAYOUT:
                arrays = Arrays.of(self._shelf, piece, digest)
            case _:
                raise BadSnapshot("it has another format")
        try:
            return _table_of(arrays), Mark(*arrays.about["position"])
        except (KeyError, TypeError, ValueError) as error:  # from a release with other parts in this format
            raise BadSnapshot(f"{type(error).__name__}: {error}") from error


def dumped(table: Table, mark: Mark) -> tuple[bytes, str]:
    """Return the table and its position in the journal as a file, and its digest."""
    about = {
        "columns": column_names(),
        "classes": [[status, *guard] for status, guard in table.classes],
        "lines": [table.lines, table.use_lines],
        "position": [mark.inode, mark.size, mark.digest],
    }
    labels = table.labels.written()
    parts = {
        **{name: getattr(table, name).tobytes() for name in COLUMNS},
        "ids": "".join(table.ids).encode(),
        "gone": array("I", sorted(table.ids.gone)).tobytes(),
        "twin_keys": bytes(table.twin_keys),
        "expiring": array("I", [number for _, number in table.expiring]).tobytes(),
        "labels": labels.texts.encode(),
        "label_ends": labels.text_ends.tobytes(),
        "holders": bytes(labels.rows),
        "holder_ends": labels.row_ends.tobytes(),
        "later": _json([[number, places] for number, places in table.later.items()]),
        "after": _json(table.after),
        "sessions": _json(table.sessions),
        "triples": _json([fact.as_json() for fact in table.triples.values()]),
        "retracted": _json(sorted(table.retracted)),
    }
    return packed(parts, about)


def _table_of(arrays: Arrays) -> Table:
    about, parts = arrays
    if about["columns"] != column_names():
        raise ValueError("it has other columns")
    table = Table(parts)
    table.ids = Ids(str(parts["ids"], "ascii"), numbers("I", parts["gone"]))
    table.classes = [(status, Guard(*guard)) for status, *guard in about["classes"]]
    table.lines, table.use_lines = about["lines"]
    table.retracted = set(json.loads(bytes(parts["retracted"])))
    ends, row_ends = numbers("I", parts["label_ends"]), numbers("I", parts["holder_ends"])
    table.labels = Labels(LabelTexts(str(parts["labels"], "utf-8"), ends, parts["holders"], row_ends).all())
    return table


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
