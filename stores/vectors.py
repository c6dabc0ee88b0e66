"""Vectors of meaning, and their similarity: an exact scan. NumPy is loaded with the first one.

Vectors are kept at length 1, so that a cosine is a sum of products. Cosines are rounded to six decimals: further digits
depend on the machine.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from sys import byteorder
from typing import TYPE_CHECKING, Any, TypeAlias

from chatbot.stores.errors import InvalidValue, OtherEmbedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

Vector: TypeAlias = "array[float]"
"""Vector of type code `f`: 32-bit floats, which NumPy reads without copying."""

_DECIMALS = 6
_AT_ONCE = 512
"""Rows converted to 64-bit floats at a time."""
_ROUGH = 1e-4
"""Greatest error of a cosine of 32-bit floats."""
_LONGEST = 1.001
"""Greatest cosine with rounding errors; a greater one comes from an invalid row."""


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
    """Return the length of all of them, 0 if there are none. Raises `InvalidValue` if they differ or are empty."""
    lengths = {len(each) for each in vectors}
    if len(lengths) > 1 or 0 in lengths:
        raise InvalidValue(f"vectors of one model have one length, not {sorted(lengths)}")
    return lengths.pop() if lengths else 0


def check_model(kept: tuple[str, int], model: str, dimension: int = 0) -> None:
    """Raise `OtherEmbedder` if the stored vectors are of another model, or of another dimension if one is given."""
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


def rough_cosines(query: Vector, rows: NDArray[Any]) -> NDArray[Any]:
    """Return the cosines as sums of 32-bit floats, with errors up to `_ROUGH`; undefined for invalid rows.

    `query` and rows are of length 1.
    """
    import numpy as np

    asked, rows = _used_columns(query, rows)
    with np.errstate(all="ignore"):
        # No matrix product: its threads wait by spinning, which costs more than they save.
        found: NDArray[Any] = np.einsum("ij,j->i", rows, asked)
    return found


def likely(roughly: NDArray[Any], limit: int) -> NDArray[Any]:
    """Return the places, in order, of rows that may be among the `limit` most similar, by rough cosines."""
    import numpy as np

    places = np.flatnonzero((roughly > -_ROUGH) & (roughly < _LONGEST + _ROUGH))
    if len(places) <= limit:
        return places
    least = np.partition(roughly[places], -limit)[-limit] if limit else np.inf
    return places[roughly[places] >= least - 2 * _ROUGH]


def cosines(query: Vector, rows: NDArray[Any]) -> NDArray[Any]:
    """Return the exact cosines of a few rows, from 0 to 1; 0 for dissimilar and for invalid ones."""
    import numpy as np

    asked, rows = _used_columns(query, rows)
    asked = asked.astype("f8")
    found = np.zeros(len(rows))  # sums of 32-bit floats depend on the order in which they are made
    with np.errstate(all="ignore"):
        for at in range(0, len(rows), _AT_ONCE):
            found[at : at + _AT_ONCE] = np.einsum("ij,j->i", rows[at : at + _AT_ONCE].astype("f8"), asked)
        found = np.round(found, _DECIMALS)
        return np.where((found > 0) & (found < _LONGEST), np.minimum(found, 1.0), 0.0)


def _used_columns(query: Vector, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the query and the rows without the outer columns that are 0 in the query."""
    import numpy as np

    asked = np.array(query, "f4")
    used = np.flatnonzero(asked)
    part = slice(used[0], used[-1] + 1) if len(used) else slice(0, 0)
    return asked[part], rows[:, part]
