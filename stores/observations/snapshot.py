"""The table as one file of arrays, so that opening a long journal only reads its last lines.

It records which journal it was made of, and up to where. One that does not match the journal, or that is damaged, is
removed, and the journal is read from its start.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import NamedTuple

from chatbot.stores.errors import StoreError
from chatbot.stores.log import Mark
from chatbot.stores.observations.arrays import Arrays, DamagedArrays, packed
from chatbot.stores.observations.table import Table
from chatbot.stores.shelf import Shelf

NAME = "table"
_LAYOUT = "table 1"
_ATTEMPTS = 3


class BadSnapshot(Exception):
    """The snapshot cannot be used."""


class Dump(NamedTuple):
    """A table and its position in the journal, as a file, with its digest."""

    data: bytes
    digest: str


def dump(table: Table, mark: Mark) -> Dump:
    """Return the table and its position in the journal, as a file."""
    at = [mark.inode, mark.size, mark.digest]
    return Dump(*packed(table.parts(), table.about() | {"position": at}))


def parse(arrays: Arrays) -> tuple[Table, Mark]:
    """Return the table and the mark that `dump` was given. Raises `BadSnapshot`."""
    try:
        arrays.load_all()
        return Table.of(arrays.about, arrays.all()), Mark(*arrays.about["position"])
    except DamagedArrays as error:
        raise BadSnapshot(str(error)) from error
    except (KeyError, TypeError, ValueError) as error:  # from a release that has the format, and not the parts
        raise BadSnapshot(f"{type(error).__name__}: {error}") from error


class Snapshots:
    """The one snapshot of a log, on a shelf. Not safe between threads, except where its user locks."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.is_shared = shelf.is_remote
        """True if other machines read it too, so that it is worth writing while this one runs."""

    def load(self) -> tuple[Table, Mark] | None:
        """Return the snapshot; None if there is none. Raises `BadSnapshot`."""
        for _ in range(_ATTEMPTS):
            listed = self._shelf.listed()
            if listed is None:
                return None
            try:
                return parse(self._opened(listed))
            except (BadSnapshot, DamagedArrays, StoreError) as error:
                if self._shelf.listed() == listed:  # else another one was written meanwhile
                    raise BadSnapshot(str(error)) from error
        return None

    def write(self, made: Dump) -> None:
        """Replace the snapshot. Needs the log's lock."""
        self._shelf.prepare()
        name = f"table-{secrets.token_hex(8)}"
        with self._shelf.alone() as hands:
            hands.put(name, made.data)
            hands.publish({"format": _LAYOUT, "piece": name, "digest": made.digest}, durable=False)
            hands.remove({*self._shelf.names()} - {name})

    def remove(self) -> None:
        """Erase the snapshot, which contains parts of memories. Raises a `StoreError`."""
        self._shelf.clear()

    def _opened(self, listed: object) -> Arrays:
        match listed:
            case {"format": layout, "piece": str(piece), "digest": str(digest)} if layout == _LAYOUT:
                return Arrays(partial(self._shelf.opened, piece), f"{self._shelf.name}/{piece}", digest, whole=True)
        raise BadSnapshot("it has another format")
