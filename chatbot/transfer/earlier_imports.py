"""Index of the rows of earlier imports, by source and by content.

An imported row keeps the path of each file it came from, with its keys there and a digest of its text. Equal keys in
different files therefore stay apart, a moved or copied file is recognised by its content, and an edit of a file updates
its rows, unless another existing file still contains the old text.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from chatbot.memory.origins import PLACES, Address, Said, said_in
from chatbot.stores.observation import Observation

PENDING: Any = object()
"""Placeholder for a row that is not written yet."""


class EarlierImports:
    """Imported rows of one kind and namespace."""

    def __init__(self, rows: Iterable[Observation]) -> None:
        self._rows: dict[Address, Observation] = {}
        self._by_digest: dict[str, Observation] = {}
        self._counts: Counter[str] = Counter()
        self._earlier: dict[str, frozenset[str]] = {}
        for row in rows:
            for address, digest in said_in(row).items():
                self._rows[address] = row
                self._counts[address[0]] += 1
                if address[0] and (row.status == "active" or digest not in self._by_digest):
                    self._by_digest[digest] = row

    def tie(self, row: Observation, said: Said) -> dict[str, Any]:
        """Record that exactly these places contain the row; return the metadata to store."""
        places: dict[str, dict[str, str]] = {}
        for (place, key), digest in said.items():
            places.setdefault(place, {})[key] = digest
        tied = replace(row, metadata={**row.metadata, PLACES: places})
        for address in self._rows.keys() & said_in(row).keys():
            del self._rows[address]
        for address, digest in said.items():
            self._rows[address] = self._by_digest[digest] = tied
        return {PLACES: places}

    def expect(self, address: Address) -> None:
        """Register a row that is about to be written or changed for this address."""
        self._rows[address] = PENDING

    def at(self, address: Address) -> Observation | None:
        """Return the row from this address."""
        return self._rows.get(address)

    def saying(self, digest: str) -> Observation | None:
        """Return the row with this digest, from any file."""
        return self._by_digest.get(digest)

    def earlier(self, place: str, held: Collection[tuple[str, str]], *, has_ids: bool) -> frozenset[str]:
        """Return the earlier paths of the file at `place`, which holds these keys and digests.

        A path counts if more than half of its rows are in the file, and it no longer exists or its rows have ids (then
        the file is a later export of the same data).
        """
        if place not in self._earlier:
            unknown = () if self._counts[place] else held
            same = Counter(each for key, digest in unknown for each in self._where(key, digest))
            self._earlier[place] = frozenset(
                each for each, count in same.items() if 2 * count > self._counts[each] and (has_ids or is_gone(each))
            )
        return self._earlier[place]

    def _where(self, key: str, digest: str) -> list[str]:
        row = self._by_digest.get(digest)
        return (
            []
            if row is None
            else [place for (place, its), said in said_in(row).items() if (its, said) == (key, digest)]
        )


def without_places(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Drop source paths from metadata: they reveal this machine's folders and mean nothing on another."""
    return {name: value for name, value in metadata.items() if name != PLACES}


def is_gone(place: str) -> bool:
    """Return True if nothing exists at the path."""
    return not os.path.lexists(place)
