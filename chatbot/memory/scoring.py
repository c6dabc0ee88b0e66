"""How well a row answers a question: one number from what matched, age, mentions, importance and credibility. Pure.

A lexical score is first raised by the rows beside it in the same session and by the score of that session, for what
belongs to an answer often stands next to the words that were asked for. It is then made a share between 0 and 1 that
does not depend on what else was found, and weighed with the rest by a profile:

    search   0.6 match, 0.2 recency by days, 0.2 mentions; without a text 0.7 recency, 0.3 mentions (Coop)
    inject   0.55 match, 0.20 recency by half-lives, 0.15 importance, 0.10 credibility, and floors (LetsGo)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from operator import mul
from typing import Any, NamedTuple

from stores.errors import InvalidValue, did_you_mean
from stores.observation import LASTING_IN_RANK, TYPES
from stores.query import Match

WEIGHT = 0.3
"""How much meaning counts beside words: from 0.2 to 0.35 it makes little difference."""
SPILL = {1: 0.3, 2: 0.15}
"""What of a row's lexical score its neighbours get, by how far off they stand."""
SESSION_SHARE = 1.0
"""What of its session's own score each row gets."""
HALF_MATCH = 5.0
"""The lexical score that counts as half a match: about one rare word."""
CONFIRMATION = 5.0
USE = 0.005
"""What makes credible: that someone said that it is so, and hardly that it was found before. Else what was shown once
would be shown again and again, in the place of what answers better."""
OTHER = "other"
"""All types that are not named."""
HALF_LIVES: Mapping[str, float] = {
    "note": 30.0,
    "preference": math.inf,
    "identity": math.inf,
    "decision": math.inf,
    "exchange": math.inf,
    OTHER: 21.0,
}
"""Days after which a type counts half as recent. What was said stays said: an exchange does not grow old."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Weights from 0 to 1, and the least that a row must reach."""

    match: float
    recency: float
    mention: float = 0.0
    importance: float = 0.0
    credibility: float = 0.0
    half_lives: Mapping[str, float] | None = None
    """None lets recency fall as 1 / (1 + days), for every type alike."""
    relative_floor: float = 0.0
    """Share of the best evidence that a row must have."""
    absolute_floor: float = 0.0
    """The least evidence that counts at all."""


PROFILES: Mapping[str, Profile] = {
    "search": Profile(match=0.6, recency=0.2, mention=0.2),
    "recent": Profile(match=0.0, recency=0.7, mention=0.3),
    "inject": Profile(
        match=0.55,
        recency=0.20,
        importance=0.15,
        credibility=0.10,
        half_lives=HALF_LIVES,
        relative_floor=0.2,
        absolute_floor=0.15,
    ),
}


def tuned(profile: Profile, changes: Mapping[str, Any]) -> Profile:
    """The profile with other values of its fields; half-lives are added to those that hold.

    Raises `InvalidValue` for the half-life of a type that there is not.
    """
    half_lives = changes.get("half_lives") or {}
    known = (*TYPES, OTHER)
    for name in half_lives:
        if name not in known:
            raise InvalidValue(f"no type of memory is called {name!r}{did_you_mean(name, known)}")
    lives = {**(profile.half_lives or HALF_LIVES), **half_lives} if half_lives else profile.half_lives
    return replace(profile, **{**changes, "half_lives": lives})


class Raised(NamedTuple):
    """A row's lexical score: its own, what spills over from its neighbours, and its session's part."""

    lexical: float
    spill: float
    session: float


_WEIGHED = ("match", "recency", "mention", "importance", "credibility")


@dataclass(frozen=True, slots=True)
class Scored:
    """Something found, with its score from 0 to 1, and what that is made of."""

    match: Match
    score: float
    evidence: float
    """The lexical score that floors are about: its own and its neighbours', without its session's."""
    raised: Raised
    weighed: tuple[float, ...]
    weights: tuple[float, ...]
    meaning: float | None = None
    """The cosine, where meaning was asked for."""

    @property
    def parts(self) -> dict[str, float]:
        """The parts of the score that count, by name, and what the match is made of."""
        counted = zip(_WEIGHED, self.weighed, self.weights, strict=True)
        parts = {name: part for name, part, weight in counted if weight} | self.raised._asdict()
        return parts if self.meaning is None else parts | {"meaning": self.meaning}


def raised(
    candidates: Mapping[str, Match],
    neighbours: Mapping[str, Mapping[str, int]],
    sessions: Mapping[str, float],
) -> dict[str, Raised]:
    """What the lexical score of each candidate becomes."""
    spill: defaultdict[str, float] = defaultdict(float)
    for each, beside in neighbours.items():
        if each in candidates and (own := candidates[each].score):
            for other, off in beside.items():
                spill[other] += SPILL.get(abs(off), 0.0) * own
    shares = {name: SESSION_SHARE * score for name, score in sessions.items()}
    return {
        each.id: Raised(each.score, spill.get(each.id, 0.0), shares.get(each.session_id or "", 0.0))
        for each in candidates.values()
    }


def windowed(
    candidates: Mapping[str, Match],
    neighbours: Mapping[str, Mapping[str, int]],
    similar: Mapping[str, float],
    unknown: float = 0.0,
) -> dict[str, float]:
    """For each candidate: how alike it is together with the rows beside it, a mean that `SPILL` weighs.

    That stands for a vector of the whole window, and needs none. Rows that are not in `similar` count as `unknown`.
    """
    windows = {}
    for each in candidates:
        beside = {other: SPILL.get(abs(off), 0.0) for other, off in neighbours.get(each, {}).items()}
        around = sum(weight * similar.get(other, unknown) for other, weight in beside.items())
        windows[each] = (similar.get(each, unknown) + around) / (1 + sum(beside.values()))
    return windows


def scored(
    candidates: Mapping[str, Match],
    neighbours: Mapping[str, Mapping[str, int]],
    sessions: Mapping[str, float],
    profile: Profile,
    now: datetime,
    *,
    similar: Mapping[str, float] | None = None,
    unknown: float = 0.0,
    meaning_weight: float = WEIGHT,
) -> list[Scored]:
    """All candidates, best first; of equals, the one created later.

    `similar` are cosines; as `windowed`, they are fused with the lexical scores, on the scale of these: see
    `fuse`. Rows that are not among them are as alike as `unknown`, at most.
    """
    raises = raised(candidates, neighbours, sessions)
    totals = {each: sum(parts) for each, parts in raises.items()}
    if similar:
        top = max(totals.values(), default=0.0) or HALF_MATCH
        windows = windowed(candidates, neighbours, similar, unknown)
        totals = {each: top * share for each, share in fuse(totals, windows, meaning_weight).items()}
    weights = tuple(getattr(profile, name) for name in _WEIGHED)
    found = []
    for candidate in candidates.values():
        own, total = raises[candidate.id], totals[candidate.id]
        weighed = (
            saturated(total),
            recency(candidate, profile, now),
            min(candidate.mention_count / 10, 1.0),
            candidate.importance,
            credibility(candidate),
        )
        evidence = own.lexical + own.spill
        meaning = None
        if similar:
            evidence = max(evidence, total - own.session)
            meaning = similar.get(candidate.id, 0.0)
        score = sum(map(mul, weights, weighed))
        found.append(Scored(candidate, score, evidence, own, weighed, weights, meaning))
    return sorted(found, key=lambda each: (each.score, each.match.created_at, each.match.id), reverse=True)


def saturated(lexical: float) -> float:
    """A lexical score as a number from 0 to 1 that does not depend on what else was found."""
    return lexical / (lexical + HALF_MATCH)


def recency(candidate: Match, profile: Profile, now: datetime) -> float:
    """1 for what is new, falling with age."""
    if profile.half_lives is None:
        return 1 / (1 + _days(candidate.updated_at, now))
    half_life = profile.half_lives.get(candidate.type, profile.half_lives.get(OTHER, HALF_LIVES[OTHER]))
    return math.exp2(-_days(candidate.created_at, now) / half_life)


def credibility(candidate: Match) -> float:
    """0.5 for what was never used, towards 1 with each time that it was confirmed, and very slowly with each use.

    An exchange is no truer for having been shown: it is what was said.
    """
    uses = 0 if candidate.type in LASTING_IN_RANK else candidate.use_count
    return 1 - 0.5 / (1 + math.log1p(USE * uses + CONFIRMATION * candidate.confirmed_count))


def _days(then: datetime, now: datetime) -> float:
    return max(0.0, (now - then).total_seconds()) / 86_400


def fuse(lexical: Mapping[str, float], vector: Mapping[str, float], weight: float = WEIGHT) -> dict[str, float]:
    """One score from 0 to 1 for each id in either: `(1 - weight)` of words and `weight` of meaning.

    Each side is spread over 0 to 1, from its least to its greatest score, where what a side does not hold counts as 0;
    so a side whose scores are all the same counts fully. A side that is empty counts nothing, and the other one whole.
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"the weight is {weight}: it lies in 0 to 1")
    if not lexical or not vector:
        return _spread(lexical or vector, lexical or vector)
    ids = dict.fromkeys((*lexical, *vector))
    words, meaning = _spread(lexical, ids), _spread(vector, ids)
    return {each: (1 - weight) * words[each] + weight * meaning[each] for each in ids}


def _spread(scores: Mapping[str, float], ids: Mapping[str, object]) -> dict[str, float]:
    given = {each: scores.get(each, 0.0) for each in ids}
    low, high = min(given.values(), default=0.0), max(given.values(), default=0.0)
    if high == low:
        return dict.fromkeys(given, 1.0 if high > 0 else 0.0)
    return {each: (score - low) / (high - low) for each, score in given.items()}
