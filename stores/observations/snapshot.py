"""The table as one file of arrays in the cache, so that opening a long journal costs its last lines only.

It says how far it had read which journal. One that does not fit the journal at hand, or that is damaged, is thrown
away and the journal read from its start.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from chatbot.stores.log import Mark
from chatbot.stores.observations.arrays import Arrays, Damaged, packed
from chatbot.stores.observations.folder_shelf import file_piece
from chatbot.stores.observations.table import Table

NAME = "table"


class BadSnapshot(Exception):
    """The snapshot cannot be used."""


def dump(table: Table, mark: Mark) -> bytes:
    """The table and its position in the journal, as a file."""
    at = [mark.inode, mark.size, mark.digest]
    data, _ = packed(table.parts(), table.about() | {"position": at})
    return data


def load(path: Path) -> tuple[Table, Mark]:
    """Return the table and the mark that `dump` wrote. Raises `BadSnapshot`."""
    try:
        arrays = Arrays(partial(file_piece, path), str(path))
        arrays.load_all()
        return Table.of(arrays.about, arrays.all()), Mark(*arrays.about["position"])
    except Damaged as error:
        raise BadSnapshot(str(error)) from error
    except (KeyError, TypeError, ValueError) as error:  # from a release that has the format, and not the parts
        raise BadSnapshot(f"{type(error).__name__}: {error}") from error
