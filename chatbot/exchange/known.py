"""What came from elsewhere before: by where it came from, and by what it said there.

A row that came from files knows each of their paths, with its keys there and a digest of what it said. So files that
call something alike stay apart, a file that was moved or copied is known by what it says, and one that was edited
changes what came from it, unless another file that is still there says it, too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from stores.observation import Observation

FROM, KEY, DIGEST, PLACES = "imported_from", "imported_key", "imported_digest", "imported_places"
PENDING: Any = object()
"""Stands for a row that is not written yet."""

Address = tuple[str, str]
"""A file, and what it calls a row; what has an id that is its own everywhere comes from the file ""."""
Said = Mapping[Address, str]
"""What was said at each address, as a digest."""


class Known:
    """The rows of one kind and namespace."""

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
        """Know from now on that the row was said there, and nowhere else; the metadata that says so."""
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
        """A row is about to be written, or changed, that says what is said there."""
        self._rows[address] = PENDING

    def at(self, address: Address) -> Observation | None:
        """What came from there."""
        return self._rows.get(address)

    def saying(self, digest: str) -> Observation | None:
        """What said just that, in whatever file."""
        return self._by_digest.get(digest)

    def earlier(self, place: str, held: Collection[tuple[str, str]], *, has_ids: bool) -> frozenset[str]:
        """The paths at which the file at `place` was before, which holds these keys and digests.

        Most of what came from there stands in it still. It has gone from there; or its rows have ids, and it is a later
        export of the same.
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


def said_in(row: Observation) -> Said:
    """Where a row came from."""
    places = row.metadata.get(PLACES)
    if not isinstance(places, Mapping):
        return {("", str(row.metadata.get(KEY))): str(row.metadata.get(DIGEST))}
    return {
        (place, key): str(digest)
        for place, keys in places.items()
        if isinstance(keys, Mapping)
        for key, digest in keys.items()
    }


def without_places(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says elsewhere: where our folders are is nobody's business there, and theirs mean nothing here."""
    return {name: value for name, value in metadata.items() if name != PLACES}


def is_gone(place: str) -> bool:
    """Whether nothing is at that path any more."""
    return not os.path.lexists(place)
