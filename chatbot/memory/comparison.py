"""Comparison of two sessions: their common beginning, and where they part. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from chatbot.stores.records import TranscriptEntry


@dataclass(frozen=True, slots=True)
class Comparison:
    """`common` entries at the beginning say the same; `left` and `right` are what follows them in each."""

    common: int
    left: tuple[TranscriptEntry, ...]
    right: tuple[TranscriptEntry, ...]


def compare(left: Sequence[TranscriptEntry], right: Sequence[TranscriptEntry]) -> Comparison:
    """The common beginning goes by who said what, not by when."""
    same = takewhile(lambda pair: is_same(*pair), zip(left, right, strict=False))
    common = sum(1 for _ in same)
    return Comparison(common, tuple(left[common:]), tuple(right[common:]))


def is_same(left: TranscriptEntry, right: TranscriptEntry) -> bool:
    """Return whether both entries have the same role and text, at any time."""
    return (left.role, left.content) == (right.role, right.content)
