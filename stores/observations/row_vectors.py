"""The vectors of rows, as arrays in parts on a shelf. Imported on first use, as it loads NumPy.

    numbers   u4 a vector   the number of its row
    digests   i8 a vector   the digest of the row's text; the vector is not used for another text
    values    f4            the vectors, of length 1, without the outer columns that are 0 in all of them: an encoder of
                            several languages leaves most of each vector empty

A writer holds the journal's lock, which a reader does not need.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chatbot.stores.errors import InvalidValue, MissingFolder, OtherEmbedder
from chatbot.stores.log import Shelf, ShelfWriter
from chatbot.stores.observations.arrays import Arrays, DamagedArrays, Piece, Pieces, pack, put
from chatbot.stores.records import Vector

NAME = "meaning"
_LAYOUT = "vectors 3"
_MOST_ROWS = 1 << 12
_MOST_DIMENSIONS = 1 << 16
_LONGEST_NAME = 456

Numbers = NDArray[Any]
Rows = tuple[Numbers, Numbers, Numbers]
"""Numbers, digests, and a table of vectors."""


class VectorPart:
    """Vectors of one model. Raises `DamagedArrays` if the arrays do not fit each other."""

    def __init__(self, piece: Piece, arrays: Arrays) -> None:
        self.piece = piece
        self.model = str(arrays.about["model"])
        self.dimension = int(arrays.about["dimension"])
        self.columns = slice(*arrays.about["columns"])
        self.numbers: Numbers = np.frombuffer(arrays.parts["numbers"], "<u4").astype("i8")
        self.digests: Numbers = np.frombuffer(arrays.parts["digests"], "<i8")
        self.values: Numbers = np.frombuffer(arrays.parts["values"], "<f4")
        """The kept columns of the vectors."""
        width = len(range(self.dimension)[self.columns])
        if len(self) != len(self.digests) or width * len(self) != len(self.values):
            raise DamagedArrays(f"{piece.name} does not hold a vector for each row")
        self.values = self.values.reshape(len(self), width)

    def __len__(self) -> int:
        return len(self.numbers)

    def rows(self, wanted: Numbers) -> Rows:
        """Return the wanted rows, with all columns."""
        values = np.zeros((int(np.count_nonzero(wanted)), self.dimension), "<f4")
        values[:, self.columns] = self.values[wanted]
        return self.numbers[wanted], self.digests[wanted], values


class Vectors:
    """The usable vectors of an identity. Guarded by its owner's lock."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._pieces: Pieces[VectorPart] = Pieces(shelf, _LAYOUT, VectorPart)
        self._known: Sequence[VectorPart] = ()
        self._gather()

    @property
    def model(self) -> str:
        """Name of the model that made the vectors; empty if there are none."""
        return self._known[0].model if self._known else ""

    @property
    def dimension(self) -> int:
        """The length of each; 0 if there are none."""
        return self._known[0].dimension if self._known else 0

    def catch_up(self, writer: ShelfWriter | None = None) -> None:
        """Read what other processes have added or erased. Needs `writer` if the shelf is locked already."""
        if self._pieces.refresh(writer):
            self._gather()

    def check(self, model: str, dimension: int = 0) -> None:
        """Raise `OtherEmbedder` if the stored vectors are of another model or another length."""
        if self.model and (self.model != model or dimension not in {0, self.dimension}):
            asked = f"{model} with {dimension}" if dimension else model
            option, argument = (" --all", "anew=True") if self.model == model else ("", "")  # else none is missing
            raise OtherEmbedder(
                f"the vectors were made by {self.model} with {self.dimension} dimensions, not by {asked}: configure "
                f"that again, or run `chatbot memory reindex --embed{option}` or `memory.embed_memories({argument})`"
            )

    def present(self, digests: array[int]) -> Numbers:
        """Return for each of these texts, by number of its row, whether its vector exists."""
        now = np.array(digests, "i8")
        count = min(len(now), len(self._digests))
        found = np.zeros(len(now), bool)
        found[:count] = (now[:count] == self._digests[:count]) & (now[:count] != 0)
        return found

    def add(self, model: str, dimension: int, given: Iterable[tuple[int, int, Vector]], digests: array[int]) -> None:
        """Add vectors of length 1, each with the number and digest of its row; merging parts drops outdated vectors.

        `digests` are those of all texts, by number of the row. Needs the journal's lock.
        """
        self._shelf.prepare()
        with self._shelf.alone() as writer:
            self.catch_up(writer)
            self.check(model, dimension)
            new = _rows_of(given, dimension)
            flags, places = self._usable_flags(digests, without=new[0]), zip(self._known, self._starts, strict=True)
            used = {part: flags[start : start + len(part)] for part, start in places}
            kept, taken = self._split(len(new[0]), {part: int(np.count_nonzero(flags)) for part, flags in used.items()})
            left = [part.rows(used[part]) for part in taken if used[part].any()]
            self._publish(writer, [*(part.piece for part in kept), _put_part(writer, model, dimension, [*left, new])])

    def erase(self, numbers: Collection[int]) -> None:
        """Remove the vectors of these rows from every file before returning. Needs the journal's lock."""
        gone = np.fromiter(numbers, "i8", len(numbers))
        with suppress(MissingFolder), self._shelf.alone() as writer:
            self.catch_up(writer)
            left = (_put_without(part, gone, writer) for part in self._known)
            self._publish(writer, [piece for piece in left if piece is not None])
        self.catch_up()

    def _publish(self, writer: ShelfWriter, pieces: Sequence[Piece]) -> None:
        """List exactly these parts; no byte of the others is left on return."""
        self._pieces.adopt(*self._pieces.publish(writer, pieces))
        writer.sync()
        self._gather()

    def _split(self, added: int, used: Mapping[VectorPart, int]) -> tuple[list[VectorPart], list[VectorPart]]:
        """Return the parts to keep when this many rows are added, and those to merge with them.

        The last parts are merged while they are no more than twice as large as what they are merged with, so there are
        few parts, and each row is rewritten only a few times. `used` counts the valid rows of each part: a mostly
        unused one is merged.
        """
        count, total = len(self._known), added
        while count and len(self._known[count - 1]) <= 2 * total and total + len(self._known[count - 1]) <= _MOST_ROWS:
            count -= 1
            total += len(self._known[count])
        kept, taken = [], [*self._known[count:]]
        for part in self._known[:count]:
            if 2 * used[part] <= len(part) and total + used[part] <= _MOST_ROWS:
                total += used[part]
                taken.append(part)
            else:
                kept.append(part)
        return kept, taken

    def nearest(self, query: Vector, digests: array[int], wanted: Numbers, limit: int) -> tuple[Numbers, Numbers]:
        """Return numbers and cosines of the closest wanted rows, closest first; of equals, the last row first.

        `wanted` is a flag for each row, and `query` has length 1. A query of another dimension matches nothing.
        """
        if len(query) != self.dimension:
            return np.zeros(0, "i8"), np.zeros(0)
        return self._most_alike(query, self._usable_flags(digests, wanted), limit)

    def later_alike(
        self, numbers: Sequence[int], digests: array[int], wanted: Numbers, limit: int
    ) -> dict[int, tuple[Numbers, Numbers]]:
        """Return for each of these rows with a vector what `nearest` finds for it among the wanted rows after it."""
        used = self._usable_flags(digests, wanted)
        present = self.present(digests)
        return {
            number: self._most_alike(self._vector_of(number), used & self._is_last & (self._numbers > number), limit)
            for number in numbers
            if present[number]
        }

    def densities(self, numbers: Sequence[int], queries: Sequence[Vector]) -> Numbers:
        """Return for each of these rows its mean cosine with the ten of them that are nearest to it.

        Missing ones of the ten count 0: few rows are never dense. Only the columns that every query uses count.
        """
        used = np.all([np.asarray(each) for each in queries], axis=0)
        vectors = np.array([self._vector_of(number) for number in numbers], "f8")
        rows = vectors.compress(used, axis=1)  # `[:, used]` would scatter each row in memory
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _ROUGH)
        alike = np.vecdot(rows[:, None], rows)
        np.fill_diagonal(alike, 0.0)
        found: Numbers = np.sort(alike, axis=1)[:, -_NEIGHBOURS:].sum(axis=1) / _NEIGHBOURS
        return np.round(found, _DECIMALS)

    def _most_alike(self, query: Vector, wanted: Numbers, limit: int) -> tuple[Numbers, Numbers]:
        """Return numbers and cosines as `nearest` does; `wanted` is a flag for each vector. A row's best one counts."""
        roughly = np.full(len(wanted), np.nan, "f4")
        for part, start in zip(self._known, self._starts, strict=True):
            among = np.flatnonzero(wanted[start : start + len(part)])
            if len(among):
                run = slice(int(among[0]), int(among[-1]) + 1)  # the wanted rows are often at one end
                roughly[start:][run] = rough_cosines(query[part.columns], part.values[run])
        best = np.full(len(self._places), -np.inf, "f4")
        np.fmax.at(best, self._numbers[wanted], roughly[wanted])
        chosen = np.zeros(len(best), bool)
        chosen[likely(best, limit)] = True
        places = np.flatnonzero(wanted & chosen[self._numbers] & (roughly >= best[self._numbers] - 2 * _ROUGH))
        exact = np.zeros(len(best))
        np.maximum.at(exact, self._numbers[places], self._cosines(query, places))
        rows = np.flatnonzero(exact)
        order = np.lexsort((-rows, -exact[rows]))[:limit]
        return rows[order], exact[rows[order]]

    def _cosines(self, query: Vector, places: Numbers) -> Numbers:
        """Return the exact cosines of the vectors at these places, which are in order."""
        ends = np.searchsorted(
            places, [start + len(part) for part, start in zip(self._known, self._starts, strict=True)]
        )
        found = [np.zeros(0)]
        for part, start, begin, end in zip(self._known, self._starts, [0, *ends], ends, strict=False):
            found.append(cosines(query[part.columns], part.values[places[begin:end] - start]))
        return np.concatenate(found)

    def _vector_of(self, number: int) -> Vector:
        place = int(self._places[number])
        at = bisect_right(self._starts, place) - 1
        part, whole = self._known[at], np.zeros(self.dimension, "<f4")
        whole[part.columns] = part.values[place - self._starts[at]]
        return array("f", whole.tobytes())

    def remove(self) -> None:
        """Erase all vectors. Needs the journal's lock."""
        self._shelf.clear()
        self.catch_up()

    def _gather(self) -> None:
        """Find the last vectors of each row, in any part."""
        parts = [*self._pieces.all.values()]
        self._known = [part for part in parts if part.model == parts[0].model and len(part)]
        self._starts = list(accumulate((len(part) for part in self._known), initial=0))[: len(self._known)]
        self._numbers: Numbers = np.concatenate([np.zeros(0, "i8"), *(part.numbers for part in self._known)])
        size = int(self._numbers.max()) + 1 if len(self._numbers) else 0
        self._places = np.full(size, -1, "i8")
        self._places[self._numbers] = np.arange(len(self._numbers))
        self._is_last = self._places[self._numbers] == np.arange(len(self._numbers))
        self._digests = np.zeros(size, "i8")
        self._digests[self._numbers] = np.concatenate([np.zeros(0, "i8"), *(part.digests for part in self._known)])
        held = [np.full(len(part), at) for at, part in enumerate(self._known)]
        in_part = np.concatenate([np.zeros(0, "i8"), *held])
        self._is_current = in_part == in_part[self._places[self._numbers]]  # those of a row are added to one part

    def _usable_flags(
        self, digests: array[int], wanted: Numbers | None = None, without: Numbers | None = None
    ) -> Numbers:
        """Return a flag for each vector, by part: True if it is a wanted row's, added last, and of its current text."""
        usable = self.present(digests)
        if wanted is not None:
            usable[len(wanted) :] = False
            usable[: len(wanted)] &= wanted[: len(usable)]
        if without is not None:
            usable[without] = False
        usable = np.r_[usable, np.zeros(max(0, len(self._places) - len(usable)), bool)]
        flags: Numbers = usable[self._numbers] & self._is_current
        return flags


def _rows_of(rows: Iterable[tuple[int, int, Vector]], dimension: int) -> Rows:
    numbers, digests, vectors = zip(*rows, strict=True)
    values = np.frombuffer(b"".join(each.tobytes() for each in vectors), "f4").reshape(-1, dimension)
    return np.array(numbers, "i8"), np.array(digests, "i8"), values


def _put_part(writer: ShelfWriter, model: str, dimension: int, rows: Sequence[Rows]) -> Piece:
    if not 0 < len(model.encode()) <= _LONGEST_NAME or not 0 < dimension <= _MOST_DIMENSIONS:
        raise InvalidValue(f"no vectors of {dimension} dimensions by {model!r} can be kept")
    numbers, digests, values = (np.concatenate(each) for each in zip(*rows, strict=True))
    used = np.flatnonzero(values.any(axis=0))
    begin, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    values = np.ascontiguousarray(values[:, begin:end], "<f4")
    arrays = {"numbers": numbers.astype("<u4"), "digests": digests.astype("<i8"), "values": values}
    about = {"model": model, "dimension": dimension, "columns": [begin, end]}
    made = pack({name: each.tobytes() for name, each in arrays.items()}, about)
    return put(writer, "part", made, durable=True)


def _put_without(part: VectorPart, numbers: Numbers, writer: ShelfWriter) -> Piece | None:
    left = ~np.isin(part.numbers, numbers)
    if left.all():
        return part.piece
    return _put_part(writer, part.model, part.dimension, [part.rows(left)]) if left.any() else None


_DECIMALS = 6
"""Digits of a cosine: further ones depend on the machine."""
_NEIGHBOURS = 10
"""Number of rows around a row whose cosines make its density."""
_AT_ONCE = 512
"""Rows converted to 64-bit floats at a time."""
_ROUGH = 1e-4
"""Greatest error of a cosine of 32-bit floats."""
_LONGEST = 1.001
"""Greatest cosine with rounding errors; a greater one comes from an invalid row."""


def rough_cosines(query: Vector, rows: Numbers) -> Numbers:
    """Return the cosines, within `_ROUGH`, of a `query` and rows of length 1; undefined for invalid rows."""
    asked, rows = _used_columns(query, rows)
    with np.errstate(all="ignore"):
        # No matrix product: its threads wait by spinning, which costs more than they save.
        found: Numbers = np.vecdot(rows, asked)
    return found


def likely(roughly: Numbers, limit: int) -> Numbers:
    """Return the places, in order, of rows that may be among the `limit` most similar, by rough cosines."""
    places = np.flatnonzero((roughly > -_ROUGH) & (roughly < _LONGEST + _ROUGH))
    if len(places) <= limit:
        return places
    least = np.partition(roughly[places], -limit)[-limit] if limit else np.inf
    return places[roughly[places] >= least - 2 * _ROUGH]


def cosines(query: Vector, rows: Numbers) -> Numbers:
    """Return the exact cosines of a few rows, from 0 to 1; 0 for dissimilar and for invalid ones."""
    asked, rows = _used_columns(query, rows)
    asked = asked.astype("f8")
    found = np.zeros(len(rows))  # sums of 32-bit floats depend on the order in which they are made
    with np.errstate(all="ignore"):
        for at in range(0, len(rows), _AT_ONCE):
            found[at : at + _AT_ONCE] = np.einsum("ij,j->i", rows[at : at + _AT_ONCE].astype("f8"), asked)
        found = np.round(found, _DECIMALS)
        return np.where((found > 0) & (found < _LONGEST), np.minimum(found, 1.0), 0.0)


def _used_columns(query: Vector, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Return the query and the rows without the outer columns that are 0 in the query."""
    asked = np.array(query, "f4")
    used = np.flatnonzero(asked)
    part = slice(used[0], used[-1] + 1) if len(used) else slice(0, 0)
    return asked[part], rows[:, part]
