"""Vectors of meaning, and how alike they are: an exact scan, with NumPy where it is installed and without it otherwise.

Vectors are kept at length 1, so that a cosine is a sum of products. Cosines are rounded to six decimals, for what is
behind those depends on who computed them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from operator import mul
from struct import Struct
from sys import byteorder
from types import ModuleType
from typing import TypeAlias

from chatbot.stores.errors import InvalidValue, OtherEmbedder

Vector: TypeAlias = "array[float]"
"""Of type code `f`: 32-bit floats, which NumPy can look at without copying."""

_DECIMALS = 6
_AT_ONCE = 512
"""Rows that are looked at as 64-bit floats at the same time."""
_LONGEST = 1.001
"""What a cosine may come to by rounding; anything above comes from a row that is not of length 1."""


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


def alike(query: Vector, rows: memoryview, *, margin: int = 0) -> Iterator[tuple[float, int]]:
    """Cosine and place of each packed row that is alike at all, the most alike first, of equals the last one first.

    `query` and rows are of length 1. Each row is preceded by `margin` bytes of something else.
    """
    if not len(rows) or not any(query):
        return iter(())
    numpy = _numpy()
    return _scan(query, rows, margin) if numpy is None else _scan_fast(numpy, query, rows, margin)


def _scan(query: Vector, rows: memoryview, margin: int) -> Iterator[tuple[float, int]]:
    row = Struct(f"<{margin}x{len(query)}f")
    cosines = ((round(sum(map(mul, query, values)), _DECIMALS), at) for at, values in enumerate(row.iter_unpack(rows)))
    found = sorted((each for each in cosines if 0 < each[0] < _LONGEST), reverse=True)
    return ((min(cosine, 1.0), at) for cosine, at in found)


def _scan_fast(numpy: ModuleType, query: Vector, rows: memoryview, margin: int) -> Iterator[tuple[float, int]]:
    table = numpy.frombuffer(rows, "u1").reshape(-1, margin + 4 * len(query))[:, margin:].view("<f4")
    asked = numpy.array(query, "f8")  # sums of 32-bit floats would depend on the order in which they are made
    with numpy.errstate(all="ignore"):  # a damaged row may hold anything; it is left out below
        products = [table[at : at + _AT_ONCE].astype("f8") @ asked for at in range(0, len(table), _AT_ONCE)]
        cosines = numpy.round(numpy.concatenate(products), _DECIMALS)
        places = numpy.flatnonzero((cosines > 0) & (cosines < _LONGEST))
    found = numpy.minimum(cosines[places], 1.0)
    order = numpy.lexsort((-places, -found))
    return zip(found[order].tolist(), places[order].tolist(), strict=True)


@cache
def _numpy() -> ModuleType | None:
    try:
        import numpy as np
    except ImportError:
        return None
    return np
