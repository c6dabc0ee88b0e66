"""BM25 over fields, as Whoosh's BM25F has it, and the slow reference that every faster engine must equal bit for bit.

Each field of a document is scored by itself: `boost * idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / average))`
with `idf = log(N / (df + 1)) + 1`. Where Whoosh counts the documents that have the term in the field, df counts those
that have it in any, as in "The Probabilistic Relevance Framework: BM25 and Beyond" (Robertson and Zaragoza, 2009): a
word that many exchanges hold is not made rare by standing in one summary.

The parts of a document's score are summed in a fixed order, that of the query's distinct terms and then that of
`FIELDS`, so that equal inputs give equal floats. Lengths are quantised to one byte.

N, df and the average lengths are taken over the documents that are given, which must be the visible ones: a score then
tells nothing about a document that the caller may not see.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import log

Document = Mapping[str, Sequence[str]]
"""From the name of a field to its analysed terms, in order and with repetitions."""

FIELDS: tuple[str, ...] = ("title", "narrative", "facts", "tags", "people", "user", "assistant", "dates")
BOOSTS: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.4, 0.5)
K1 = 0.9
"""How soon a term that is repeated stops to count for more; the default of Anserini, as 1.2 is that of Whoosh."""
BS: tuple[float, ...] = (0.75, 0.75, 0.75, 0.75, 0.75, 0.4, 0.75, 0.75)
"""How much the length of each field counts: less for what people say themselves than for what a bot replies."""
MAX_FREQUENCY = 65_535
"""A term that is repeated more often counts as often as this."""

LENGTHS: tuple[int, ...] = tuple(round((1.033**code - 1) * 27) for code in range(256))
"""The length that each byte stands for: exact up to ten, then in steps of about 3 %."""

byte_to_length: Callable[[int], int] = LENGTHS.__getitem__


def length_to_byte(length: int) -> int:
    """The byte for a field of `length` terms; what it stands for is never shorter, up to the longest there is."""
    return min(bisect_left(LENGTHS, length), 255)


def inverse_frequency(visible: int, matching: int) -> float:
    """The weight of a term that `matching` of `visible` documents have in a field."""
    return log(visible / (matching + 1)) + 1


def contribution(field: int, idf: float, frequency: int, length: int, average: float) -> float:
    """What one term adds to the score of a document, in the field of that number in `FIELDS`."""
    b = BS[field]
    return BOOSTS[field] * (idf * ((frequency * (K1 + 1)) / (frequency + K1 * ((1 - b) + b * length / average))))


def frequencies(terms: Sequence[str]) -> dict[str, int]:
    """How often each term occurs, at most `MAX_FREQUENCY`."""
    counts = Counter(terms)
    if len(terms) > MAX_FREQUENCY:
        return {term: min(count, MAX_FREQUENCY) for term, count in counts.items()}
    return counts


def about(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """How much each session is about the terms of a query, as if it were one document.

    `counts` tells for each distinct term, in order, how many rows of each session hold it. BM25 without lengths; N is
    the number of sessions that hold any of the terms.
    """
    sessions = len({session for each in counts for session in each})
    scores: dict[str, float] = {}
    for each in filter(None, counts):
        idf = inverse_frequency(sessions, len(each))
        for session, frequency in each.items():
            part = idf * (frequency * (K1 + 1)) / (frequency + K1)
            scores[session] = scores.get(session, 0.0) + part
    return scores


def rank(documents: Mapping[int, Document], query: Sequence[str]) -> dict[int, float]:
    """The scores of those of the (visible) documents that have any of the terms, in no particular order.

    By brute force: the reference that tests compare a faster engine with.
    """
    lengths = {
        field: {row: LENGTHS[length_to_byte(len(document.get(field, ())))] for row, document in documents.items()}
        for field in FIELDS
    }
    scores: dict[int, float] = {}
    for term in dict.fromkeys(query):
        holders = sum(any(term in terms for terms in document.values()) for document in documents.values())
        idf = inverse_frequency(len(documents), holders) if holders else 0.0
        for number, field in enumerate(FIELDS):
            average = sum(lengths[field].values()) / len(documents) if documents else 0.0
            for row, document in documents.items():
                if frequency := frequencies(document.get(field, ())).get(term, 0):
                    part = contribution(number, idf, frequency, lengths[field][row], average)
                    scores[row] = scores.get(row, 0.0) + part
    return scores
