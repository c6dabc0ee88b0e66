"""Vectors of meaning, kept at length 1, so that a cosine is a sum of products."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from chatbot.stores.errors import InvalidValue, OtherEmbedder

Vector: TypeAlias = "array[float]"
"""Vector of type code `f`: 32-bit floats, which NumPy reads without copying."""


def vector(values: Sequence[float]) -> Vector:
    """Return the numbers as 32-bit floats."""
    return array("f", values)


def unit(values: Sequence[float], *, length: float = 1.0) -> Vector:
    """Return the vector scaled to that length; a zero or infinite one becomes zeros."""
    long = math.hypot(*values)
    if not long or not math.isfinite(long):
        return array("f", bytes(4 * len(values)))
    return array("f", [value / long * length for value in values])


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
