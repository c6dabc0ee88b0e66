"""Heads: judgements of a text from its vector, learned from labelled lines, in any language that the encoder knows.

A head is a logistic regression over the multilingual encoder's vector: a score is `weights · vector + bias`, the
logarithm of the odds, and the head says yes from its threshold on. `training/train.py` makes all of them from the lines
in `training/`. They are kept with the name of the encoder and the digest of the lines; a test trains them again.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from chatbot.embedding import Judgement
from chatbot.stores.vectors import Vector, unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENCODER = "use-multilingual-3"
PATH = Path(__file__).parent / "data" / "heads.json"
FACET = "facet:"
"""Prefix of the names of facets' heads."""


@dataclass(frozen=True, slots=True)
class Heads:
    """All heads: a row of weights and a bias each, and the thresholds, the lowest first."""

    names: tuple[str, ...]
    weights: NDArray[np.float32]
    biases: NDArray[np.float32]
    thresholds: dict[str, tuple[float, ...]]

    def scores(self, part: Vector) -> dict[str, float]:
        """Return the score of each head for a vector of the encoder."""
        return dict(zip(self.names, (self.weights @ part + self.biases).tolist(), strict=True))

    def level(self, name: str, score: float) -> int:
        """Return how many thresholds of a head a score has reached."""
        return sum(score >= each for each in self.thresholds[name])


@cache
def heads() -> Heads:
    """Load the heads, with the first text that is judged."""
    import numpy as np

    kept = json.loads(PATH.read_text(encoding="utf-8"))["heads"]
    weights = [np.frombuffer(b64decode(each["weights"]), "<f2") for each in kept.values()]
    biases = [each["bias"] for each in kept.values()]
    thresholds = {name: tuple(each["thresholds"]) for name, each in kept.items()}
    return Heads(tuple(kept), np.stack(weights).astype("f4"), np.array(biases, "f4"), thresholds)


def judge(part: Vector) -> Judgement:
    """Return what a text is, from its vector by the encoder."""
    known = heads()
    scores = known.scores(part)
    reached = {name: known.level(name, score) for name, score in scores.items()}
    facets = sorted(
        (name for name in scores if name.startswith(FACET) and reached[name]), key=lambda name: -scores[name]
    )
    return Judgement(
        needs_memory=reached["needs_memory"] > 0,
        asks_the_bot=reached["asks_the_bot"] > 0,
        states_something=reached["states_something"] > 0,
        orders_a_model=reached["orders_a_model"],
        facets=tuple(name.removeprefix(FACET) for name in facets),
        scores={name: round(score, 2) for name, score in scores.items()},
    )


def facet_directions() -> dict[str, Vector]:
    """Return the direction in which the texts about each facet lie, of length 1."""
    known = heads()
    rows = zip(known.names, known.weights, strict=True)
    return {name.removeprefix(FACET): unit(row.tolist()) for name, row in rows if name.startswith(FACET)}
