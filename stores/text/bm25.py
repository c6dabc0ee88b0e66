"""BM25 over fields, like Whoosh's BM25F: its formula, and a slow reference that every engine must match bit for bit.

Each field of a document is scored alone: `boost * idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / average))`
with `idf = log(N / (df + 1)) + 1`. Whoosh's df counts the documents with the term in that field; here it counts those
with the term in any field, as in "The Probabilistic Relevance Framework: BM25 and Beyond" (Robertson and Zaragoza,
2009): a common word of exchanges does not become rare because it is in one summary.

The parts of a score are summed in a fixed order, by the distinct terms of the query and then by `FIELDS`, so that equal
inputs give equal floats. Lengths are quantised to one byte. N, df and average lengths cover the given documents, which
must be the visible ones: a score then reveals nothing about a hidden document.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import log

Document = Mapping[str, Sequence[str]]
"""Analysed terms by field name, in order and with repetitions."""

FIELDS: tuple[str, ...] = ("title", "narrative", "facts", "tags", "people", "user", "assistant", "dates")
BOOSTS: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.4, 0.5)
K1 = 0.9
"""Saturation of term frequency: Anserini's default; Whoosh's is 1.2."""
BS: tuple[float, ...] = (0.75, 0.75, 0.75, 0.75, 0.75, 0.4, 0.75, 0.75)
"""Length normalisation by field: weaker for messages of people than for replies of a bot."""
MAX_FREQUENCY = 65_535
"""Maximum occurrences of a term that count."""

LENGTHS: tuple[int, ...] = tuple(round((1.033**code - 1) * 27) for code in range(256))
"""Length for each byte: exact up to ten; the steps of long ones are about 3 %."""


def length_to_byte(length: int) -> int:
    """Return the byte for a field of `length` terms, rounded up to the next of `LENGTHS`."""
    return min(bisect_left(LENGTHS, length), 255)


def inverse_frequency(visible: int, matching: int) -> float:
    """Return the weight of a term that `matching` of `visible` documents have."""
    return log(visible / (matching + 1)) + 1


def contribution(field: int, idf: float, frequency: int, length: int, average: float) -> float:
    """Return the contribution of one term in the field with that number in `FIELDS`."""
    b = BS[field]
    return BOOSTS[field] * (idf * ((frequency * (K1 + 1)) / (frequency + K1 * ((1 - b) + b * length / average))))


def score_sessions(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Score each session for the terms of a query, as if it were one document.

    `counts` has, for each distinct term in order, the number of rows of each session with it. BM25 without lengths; N
    is the number of sessions with any of the terms.
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
    """Score the documents that have any of the terms, unordered, by brute force: tests compare engines with it."""
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
                if frequency := min(document.get(field, ()).count(term), MAX_FREQUENCY):
                    part = contribution(number, idf, frequency, lengths[field][row], average)
                    scores[row] = scores.get(row, 0.0) + part
    return scores
