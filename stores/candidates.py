"""Candidates for the answer to a question: matches by words or meaning, and the rows next to those.

Written once for all engines, over the operations of a store. A store whose operations never wait gathers them in one
hop into a thread: see `without_waiting`.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field

from chatbot.stores.access import View
from chatbot.stores.query import Corpus, Filter, Match
from chatbot.stores.text.bm25 import BOOSTS, FIELDS, inverse_frequency
from chatbot.stores.vectors import Vector

if TYPE_CHECKING:
    from chatbot.stores.base import ObservationStore

T = TypeVar("T")


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


async def gathered(store: ObservationStore, view: View, question: Question, wanted: Filter) -> Candidates:
    """Gather the rows that may answer."""
    corpus = await store.corpus(view)
    last, earlier, dates = [
        await _weighed(store, view, words, corpus, question.most_terms)
        for words in (question.terms, question.earlier, question.dates)
    ]
    found = Candidates({each.id: each for each in await _matches(store, view, list(last), wanted, question)})
    for match in await _matches(store, view, list(earlier), wanted, question):
        before = found.rows.get(match.id)
        score = (before.score if before else 0.0) + question.earlier_weight * match.score
        found.rows[match.id] = match._replace(score=score)
    found.weight = sum(last.values()) + question.earlier_weight * sum(earlier.values())
    found.average_length = corpus.average_length
    _add_dated(found, await _matches(store, view, list(dates), wanted, question), dates)
    similar = await similar_to(store, view, question.vectors, wanted, model=question.model, limit=question.limit)
    _add_unscored(found, similar.values())
    found.similar = {each: match.score for each, match in similar.items() if each != question.without}
    found.rows.pop(question.without, None)
    await _add_beside(store, view, wanted, question, found)
    if any(each.session_id for each in found.rows.values()):
        found.sessions = await store.sessions_about(view, list(last or earlier))
    return found


def without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    work.close()
    raise RuntimeError("the work waits for something")


async def _matches(
    store: ObservationStore, view: View, terms: Sequence[str], wanted: Filter, question: Question
) -> list[Match]:
    return await store.match(view, terms, wanted, limit=question.limit) if terms else []


async def similar_to(
    store: ObservationStore, view: View, vectors: Sequence[Vector], wanted: Filter, *, model: str, limit: int
) -> dict[str, Match]:
    """Return the rows most similar to any of the vectors, most similar first, each with its best cosine.

    The length of a vector is the weight of its cosines.
    """
    best: dict[str, Match] = {}
    for vector in vectors:
        weight = min(1.0, math.hypot(*vector))
        for match in await store.nearest(view, vector, wanted, model=model, limit=limit):
            score = weight * match.score
            if match.id not in best or best[match.id].score < score:
                best[match.id] = match._replace(score=score)
    return {each.id: each for each in sorted(best.values(), key=lambda each: -each.score)[:limit]}


async def _weighed(
    store: ObservationStore, view: View, words: Sequence[str], corpus: Corpus, most: int
) -> dict[str, float]:
    """Return the distinct words with their inverse frequencies: at most the rarest `most` that some row holds."""
    held = await store.frequencies(view, words) if words else {}
    weighed = {word: inverse_frequency(max(corpus.rows, 1), held.get(word, 0)) for word in words}
    if len(weighed) <= most:
        return weighed
    rarest = {*sorted(held, key=held.__getitem__)[:most]}
    return {word: weight for word, weight in weighed.items() if word in rarest}


def _add_dated(found: Candidates, matches: Sequence[Match], dates: Mapping[str, float]) -> None:
    """Add rows that name the dates of the question, or were written on them."""
    whole = BOOSTS[FIELDS.index("dates")] * sum(dates.values()) or 1.0
    found.dated = {match.id: min(1.0, match.score / whole) for match in matches}
    _add_unscored(found, matches)


def _add_unscored(found: Candidates, matches: Iterable[Match]) -> None:
    """Add rows that hold none of the words, unless they were found already."""
    for match in matches:
        if match.id not in found.rows:
            found.rows[match.id] = match._replace(score=0.0)


async def _add_beside(
    store: ObservationStore, view: View, wanted: Filter, question: Question, found: Candidates
) -> None:
    """Add rows that hold none of the words and are next to rows that do."""
    best = sorted([(-each.score, each.id) for each in found.rows.values()])[: question.spilling]
    alike = sorted([(-cosine, each) for each, cosine in found.similar.items()])[: question.spilling]
    asked = list(dict.fromkeys([each for _, each in (*best, *alike)]))
    neighbours = await store.neighbours(view, asked)
    beside: dict[str, float] = {}
    for each, others in neighbours.items():
        score = found.rows[each].score
        for other, off in others.items():
            if other not in found.rows and other != question.without:
                beside[other] = beside.get(other, 0.0) + score / (1 + abs(off))
    chosen = sorted([(-score, each) for each, score in beside.items()])[: question.most_beside]
    for match in await store.outline(view, [each for _, each in chosen], wanted):
        found.rows[match.id] = match
    apart = {each for each, match in found.rows.items() if match.type in question.apart}
    apart |= {question.without} if question.without else set()
    found.neighbours = {
        each: {other: off for other, off in others.items() if other not in apart} if apart else others
        for each, others in neighbours.items()
        if each not in apart
    }
