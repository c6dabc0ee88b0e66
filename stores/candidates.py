"""Question to a store of memories, and the candidates for its answer."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from chatbot.stores.query import Match
from chatbot.stores.vectors import Vector


class Question(Struct, frozen=True, kw_only=True):
    """A question: its analysed terms, those of the texts before it, and vectors of its meaning."""

    terms: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    """Terms of the dates that the text names."""
    earlier: tuple[str, ...] = ()
    """Terms of earlier texts, each of which counts `earlier_weight`."""
    earlier_weight: float = 0.4
    vectors: tuple[Vector, ...] = ()
    """Vectors of the meaning; the length of each, at most 1, is its weight."""
    model: str = ""
    """Name of the model that made the vectors."""
    most_terms: int = 32
    """Most terms to search for; the rarest are chosen."""
    limit: int = 300
    """Number of hits of each kind that are considered."""
    spilling: int = 100
    """Number of best hits, and of most similar ones, whose neighbours are added."""
    most_beside: int = 100
    """Most neighbours to add."""
    apart: frozenset[str] = frozenset()
    """Types that never count as neighbours."""
    without: str = ""
    """Row to leave out, such as the one of the question itself."""


class Candidates(Struct):
    """Rows that may answer, by id, with the data for ranking."""

    rows: dict[str, Match] = field(default_factory=dict)
    neighbours: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Neighbours of a row in its session and their distance, candidates or not."""
    sessions: Mapping[str, float] = field(default_factory=dict)
    """How much each session is about the terms."""
    similar: Mapping[str, float] = field(default_factory=dict)
    """Cosines of the most similar rows."""
    dated: Mapping[str, float] = field(default_factory=dict)
    """Share of the asked dates that a row names."""
    weight: float = 0.0
    """Sum of the inverse frequencies of the terms; those of earlier texts count their share."""
    average_length: float = 0.0
    """Mean length in terms of the rows that the caller sees; 0 if the store does not know it."""
