"""The form in which trained matrices are kept, and the mark of what they were trained from."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def product(matrix: NDArray[Any], rank: int) -> dict[str, Any]:
    """Return the best approximation of a matrix by products of `rank` pairs of vectors, in whole numbers of eight bits.

    `chatbot.models.minilm.low_rank` reads it.
    """
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    down, up = left[:, :rank] * sizes[:rank], right[:rank]
    wide, high = np.abs(down).max(axis=0), np.abs(up).max(axis=1)
    return {
        "scales": [float(f"{each:.6g}") for each in wide * high / 127**2],
        "down": _packed(down / wide),
        "up": _packed(up / high[:, None]),
    }


def _packed(numbers: NDArray[Any]) -> str:
    """Return numbers between -1 and 1 as text: whole numbers of eight bits in base64."""
    return b64encode(np.round(127 * numbers).astype("i1").tobytes()).decode()


def digest(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of all that something was made of."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()
