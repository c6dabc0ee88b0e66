"""Score of a row for a question: one number from matches, age, mentions, importance and credibility. Pure.

The match is a sum of three parts:

    words     WORDS * (own + session) / (weight of the question + ROOM)
    dates     DATED * share of the asked dates that the row names
    meaning   weight * (cosine of the question and the row - DENSE * density)

`own` is the row's BM25 score, `session` that of its session. The weight of a question is the sum of its terms' inverse
frequencies: meaning decides for a question of one common word, words decide for one of ten rare words (at the weight
`ROOM` words count half of their maximum). `density` is a row's mean cosine with its nearest candidates, beyond that of
all: a row among many similar ones is near many questions by chance (Radovanović et al. 2010, "Hubs in space"; the
remedy is that of Conneau et al. 2018, "Word translation without parallel data"). The match of the best rows is
corrected once more, by their tokens (`by_closeness`). Scaled to between 0 and 1, it is then weighed with the rest by a
profile; age and mentions break ties:

    search   0.96 match, 0.02 recency by days, 0.02 mentions; without a text 0.7 recency, 0.3 mentions
    inject   0.90 match, 0.01 recency by half-lives, 0.06 importance, 0.03 credibility, and floors

The constants were chosen on half of the questions of five sets (`benchmarks/quality.py`) and lie on a plateau.
"""

import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from operator import mul

from msgspec import Struct
from msgspec.structs import replace

from chatbot.stores.query import Candidates, Match

WEIGHT = 0.8
"""Weight of meaning relative to words. From 0.5 to 1, none of five question sets scores below words alone."""
WORDS = 0.9
ROOM = 40.0
DATED = 0.5
SESSION_SHARE = 1.5
"""Share of its session's score that each row gets."""
DENSE = 0.45
"""Share of its density that is taken away from the cosine of a row."""
CLOSER = 1.25
"""Weight of closeness by tokens, relative to that of meaning."""
HALF_MATCH = 0.5
"""The match that is scaled to one half."""
CONFIRMATION = 5.0
SHARED = 0.8
"""Weight of the cosine of two rows' words in their likeness, relative to that of their vectors."""
_LEAST_NEAR, _AHEAD = 0.4, 0.05
"""Minimum likeness of an outstanding row, and its minimum lead over the next."""
_NEEDED, _DOUBT = 0.62, 0.45
"""A row belongs in a prompt if its evidence plus `_DOUBT` times its share of the best evidence reaches `_NEEDED`."""
_CHANCE, _LESS_PER_POINT = 0.57, 0.2
"""The best evidence that small talk has by chance, and how much less suffices for each point of `needs_memory`."""
_SINGLE, MANY = 0.42, 200
"""How much less evidence a single row has by chance than the best of `MANY` rows."""
_UNCOMPARED = 0.1
"""How much less evidence the best of many rows has if none is compared token by token, which raises the closest."""
_UNSURE, _MOST_UNSURE = 0.5, 2
"""The score of `needs_memory` below which a prompt has at most so many rows."""
OTHER = "other"
"""Key for all types that are not named."""
HALF_LIVES: Mapping[str, float] = {
    "note": 30.0,
    "preference": math.inf,
    "identity": math.inf,
    "decision": math.inf,
    "exchange": math.inf,
    "compressed_summary": math.inf,
    OTHER: 21.0,
}
"""Days after which a type counts half as recent; an exchange does not age."""


class ScoringProfile(Struct, frozen=True):
    """Weights from 0 to 1, and thresholds."""

    match: float
    recency: float
    mention: float = 0.0
    importance: float = 0.0
    credibility: float = 0.0
    half_lives: Mapping[str, float] | None = None
    """With None, recency falls as 1 / (1 + days) for every type."""
    relative_floor: float = 0.0
    """Share of the best evidence that a row must have; if it is not 0, a row also needs some evidence."""
    meaning: float = WEIGHT
    """Weight of meaning relative to words, from 0 to 1: `[embedding] weight`."""


PROFILES: Mapping[str, ScoringProfile] = {
    "search": ScoringProfile(match=0.96, recency=0.02, mention=0.02),
    "recent": ScoringProfile(match=0.0, recency=0.7, mention=0.3),
    "inject": ScoringProfile(
        match=0.90, recency=0.01, importance=0.06, credibility=0.03, half_lives=HALF_LIVES, relative_floor=0.1
    ),
}


WEIGHTS = ("match", "recency", "mention", "importance", "credibility")
"""Parts of a score, between 0 and 1, that a profile weighs."""


class RowScore(Struct, frozen=True):
    """Candidate with its score from 0 to 1, and the parts of the score."""

    match: Match
    score: float
    evidence: float
    """Match without the session's part; floors apply to it."""
    lexical: float
    session: float
    """How much its session is about the terms, weighed."""
    weighed: tuple[float, ...]
    weights: tuple[float, ...]
    dated: float = 0.0
    """The share of the asked dates that the row names."""
    meaning: float | None = None
    """The cosine, if meaning was searched."""
    closeness: float | None = None
    """How much closer the row is to the question than others among the best, if their tokens were compared."""

    @property
    def holds_words(self) -> bool:
        """True if the row holds a word of the question or one of its dates."""
        return self.lexical > 0 or self.dated > 0

    @property
    def parts(self) -> dict[str, float]:
        """Parts of the score that count, by name, and those of the match."""
        counted = zip(WEIGHTS, self.weighed, self.weights, strict=True)
        parts = {name: part for name, part, weight in counted if weight}
        parts |= {"lexical": self.lexical, "session": self.session, "evidence": self.evidence}
        if self.dated:
            parts["dates"] = self.dated
        by_vectors = {"meaning": self.meaning, "closeness": self.closeness}
        return parts | {name: part for name, part in by_vectors.items() if part is not None}


def likeness_to(
    words: frozenset[str], cosines: Mapping[str, float], others: Mapping[str, frozenset[str]]
) -> dict[str, float]:
    """Return the likeness of each other row: its cosine, and the common words, of which rare ones weigh most."""
    held = Counter(chain.from_iterable(others.values()))

    def weight(some: frozenset[str]) -> float:
        return sum(math.log1p((len(others) + 1) / (held[word] + 0.5)) for word in some)

    shared = {each: weight(words & theirs) for each, theirs in others.items()}
    return {
        each: cosines[each] + (SHARED * both / math.sqrt(weight(words) * weight(others[each])) if both else 0.0)
        for each, both in shared.items()
    }


def outstanding_row(likeness: Mapping[str, float]) -> str:
    """Return the row that is clearly more alike than all others; empty if none stands out.

    Likeness alone says little, as it depends on how a person writes; a row well ahead of the rest is about the same
    thing. A single row needs no lead.
    """
    best, *rest = sorted(likeness, key=lambda each: -likeness[each]) or [""]
    if not best or likeness[best] < _LEAST_NEAR:
        return ""
    return best if not rest or likeness[best] - likeness[rest[0]] >= _AHEAD else ""


def score_rows(found: Candidates, profile: ScoringProfile, now: datetime, *, unknown: float = 0.0) -> list[RowScore]:
    """Return all candidates, best, then newest first; those with words and no known cosine count as `unknown`."""
    usual = sum(found.density.values()) / len(found.density) if found.density else 0.0
    scale = WORDS / (found.weight + ROOM)
    weights = tuple(getattr(profile, name) for name in WEIGHTS)
    rows = []
    for each, row in found.rows.items():
        session, dated = SESSION_SHARE * found.sessions.get(row.session_id or "", 0.0), found.dated.get(each, 0.0)
        evidence = scale * row.score + DATED * dated
        if found.similar:
            cosine = found.similar.get(each, unknown if row.score else 0.0)
            evidence += profile.meaning * (cosine - DENSE * (found.density.get(each, usual) - usual))
        weighed = (
            saturate(evidence + scale * session),
            recency(row, profile, now) if profile.recency else 0.0,  # not computed if it has no weight
            min(row.mention_count / 10, 1.0),
            row.importance,
            credibility(row) if profile.credibility else 0.0,
        )
        meaning = found.similar.get(each, 0.0) if found.similar else None
        score = sum(map(mul, weights, weighed))
        rows.append(RowScore(row, score, evidence, row.score, session, weighed, weights, dated, meaning))
    rows.sort(key=lambda each: (each.score, each.match.created_at, each.match.id), reverse=True)
    return rows


def by_closeness(rows: list[RowScore], closeness: Mapping[str, float], profile: ScoringProfile) -> list[RowScore]:
    """Return all rows, best first. Of those in `closeness`, the match rises by what is above their mean, or falls."""
    mean, weight = sum(closeness.values()) / len(closeness) if closeness else 0.0, CLOSER * profile.meaning
    known = {each: close - mean for each, close in closeness.items()}
    closer = [_raised(row, known[row.match.id], weight) if row.match.id in known else row for row in rows]
    return sorted(closer, key=lambda row: -row.score)


def _raised(row: RowScore, closeness: float, weight: float) -> RowScore:
    """Return the row with more match, or less, by its closeness: `saturate` is undone, and done again."""
    match, *rest = row.weighed
    by = weight * closeness
    weighed = (saturate(HALF_MATCH * match / (1 - match) + by), *rest)
    score = sum(map(mul, row.weights, weighed))
    return replace(row, evidence=row.evidence + by, closeness=closeness, weighed=weighed, score=score)


def thresholds(best: float, need: float, rows: int, *, is_compared: bool = True) -> tuple[float, float, float]:
    """Return the evidence that the best row of a prompt must have, the share of it that any row needs, and most rows.

    The first falls with the score of `needs_memory`, the second with the best evidence. Both are lower if there are few
    rows: the highest of n random numbers grows about as the root of log n (Gumbel 1958, "Statistics of extremes"). They
    are also lower if the rows are not compared token by token.
    """
    few = max(0.0, 1 - math.sqrt(math.log(max(rows, 1)) / math.log(MANY)))
    less = _SINGLE * few + (0.0 if is_compared else _UNCOMPARED * (1 - few))
    least, share = _CHANCE - _LESS_PER_POINT * need - less, min(1.0, _NEEDED / (best + less + _DOUBT))
    return least, share, math.inf if need >= _UNSURE else _MOST_UNSURE


def saturate(match: float) -> float:
    """Return a match scaled to between 0 and 1."""
    return match / (match + HALF_MATCH) if match > 0 else 0.0


def recency(candidate: Match, profile: ScoringProfile, now: datetime) -> float:
    """Return 1 for a new row, falling with age."""
    if profile.half_lives is None:
        return 1 / (1 + _days(candidate.updated_at, now))
    half_life = profile.half_lives.get(candidate.type, profile.half_lives.get(OTHER, HALF_LIVES[OTHER]))
    return 1.0 if half_life == math.inf else math.exp2(-_days(candidate.created_at, now) / half_life)


def credibility(candidate: Match) -> float:
    """Return 0.5 for an unconfirmed row, rising to 1 with confirmations. Being shown makes no row truer."""
    return 1 - 0.5 / (1 + math.log1p(CONFIRMATION * candidate.confirmed_count))


def _days(then: datetime, now: datetime) -> float:
    return max(0.0, (now - then).total_seconds()) / 86_400
