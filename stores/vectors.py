"""Vectors of meaning, and how alike they are: an exact scan. NumPy is loaded with the first one.

Vectors are kept at length 1, so that a cosine is a sum of products. Cosines are rounded to six decimals, for what is
behind those depends on who computed them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from sys import byteorder
from typing import TYPE_CHECKING, Any, TypeAlias

from chatbot.stores.errors import InvalidValue, OtherEmbedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

Vector: TypeAlias = "array[float]"
"""Vector of type code `f`: 32-bit floats, which NumPy reads without copying."""

_DECIMALS = 6
_AT_ONCE = 512
"""Rows that are looked at as 64-bit floats at the same time."""
_ROUGH = 1e-4
"""What a cosine of 32-bit floats may differ from the exact one."""
_LONGEST = 1.001
"""Greatest cosine that rounding can give; a greater one comes from a row whose length is not 1."""


def vector(values: Sequence[float]) -> Vector:
    """The numbers as 32-bit floats."""
    return array("f", values)


def unit(values: Sequence[float]) -> Vector:
    """The vector at length 1; zeros stay zeros, and so does what is not finite."""
    length = math.hypot(*values)
    if not length or not math.isfinite(length):
        return array("f", bytes(4 * len(values)))
    return array("f", [value / length for value in values])


def one_dimension(vectors: Iterable[Sequence[float]]) -> int:
    """The length of all of them, 0 where there are none. Raises `InvalidValue` where they differ or are empty."""
    lengths = {len(each) for each in vectors}
    if len(lengths) > 1 or 0 in lengths:
        raise InvalidValue(f"vectors of one model have one length, not {sorted(lengths)}")
    return lengths.pop() if lengths else 0


def check_model(kept: tuple[str, int], model: str, dimension: int = 0) -> None:
    """Raise `OtherEmbedder` where what is kept is of another model, or of another dimension where one is given."""
    if kept[0] and (kept[0] != model or dimension not in {0, kept[1]}):
        asked = f"{model} with {dimension}" if dimension else model
        raise OtherEmbedder(
            f"the vectors were made by {kept[0]} with {kept[1]} dimensions, not by {asked}: "
            "configure that model again, or make them anew with `chatbot memory reindex --embed`"
        )


def packed(vector: Vector) -> bytes:
    """The vector as little-endian bytes."""
    if byteorder == "big":
        vector = vector[:]
        vector.byteswap()
    return vector.tobytes()


def alike(query: Vector, rows: memoryview) -> Iterator[tuple[float, int]]:
    """Cosine and place of each packed row that is alike at all, the most alike first, of equals the last one first.

    `query` and rows are of length 1.
    """
    if not len(rows):
        return iter(())
    import numpy as np

    table = np.frombuffer(rows, "<f4").reshape(-1, len(query))
    places, found = cosines(query, table, len(table))
    order = np.lexsort((-places, -found))
    return zip(found[order].tolist(), places[order].tolist(), strict=True)


def rough_cosines(queries: Sequence[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """For each of the queries the cosines of all rows, as sums of 32-bit floats."""
    import numpy as np

    with np.errstate(all="ignore"):  # one thread: those of a matrix product wait by spinning
        found: NDArray[Any] = np.einsum("ij,kj->ki", rows, np.array(queries, "f4").reshape(len(queries), -1))
    return found


def cosines(
    query: Vector,
    rows: NDArray[Any],
    limit: int,
    wanted: NDArray[Any] | None = None,
    roughly: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the places of the `limit` wanted rows that are most alike, and of their equals, with their cosines.

    `wanted` is a flag for each row, `roughly` what `rough_cosines` returns for the query. Places are in order, all
    cosines above 0. `query` and rows are of length 1.
    """
    import numpy as np

    asked = np.array(query, "f4")
    used = np.flatnonzero(asked)
    part = slice(used[0], used[-1] + 1) if len(used) else slice(0, 0)
    asked, rows = asked[part], rows[:, part]
    with np.errstate(all="ignore"):  # an invalid row may contain anything; it is left out below
        roughly = rough_cosines([asked], rows)[0] if roughly is None else roughly
        places = _likely(roughly if wanted is None else np.where(wanted, roughly, np.nan), limit)
        found = np.zeros(len(places))  # sums of 32-bit floats depend on the order in which they are made
        for at in range(0, len(places), _AT_ONCE):
            found[at : at + _AT_ONCE] = rows[places[at : at + _AT_ONCE]].astype("f8") @ asked.astype("f8")
        found = np.round(found, _DECIMALS)
        alike = (found > 0) & (found < _LONGEST)
    return places[alike], np.minimum(found[alike], 1.0)


def _likely(roughly: NDArray[Any], limit: int) -> NDArray[Any]:
    """The places of the rows that may be among the `limit` most alike, by cosines that are good to `_ROUGH`."""
    import numpy as np

    places = np.flatnonzero((roughly > -_ROUGH) & (roughly < _LONGEST + _ROUGH))
    if len(places) <= limit:
        return places
    least = np.partition(roughly[places], -limit)[-limit] if limit else np.inf
    return places[roughly[places] >= least - 2 * _ROUGH]
