"""From a question to scored rows: what matches its words and dates, what stands beside that, and how it all weighs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chatbot.memory.scope import Scope
from chatbot.memory.scoring import Profile, Scored, scored
from stores.access import View
from stores.analysis import terms
from stores.dates import date_terms
from stores.observation import Observation
from stores.query import Filter, Match
from stores.vectors import Vector

RESCORED = 300
"""How many lexical hits are looked at again."""
_SPILLING = 100
"""How many of them, the best, and of those most alike, raise the rows beside them."""
_MOST_BESIDE = 100
"""How many rows that hold none of the words may come in that way."""
_MOST_TERMS = 32
"""How many words of a message are searched for: of a long one, the rarest."""
_MOST_WEIGHED = 128
"""How many words of a message are thought of at all, at its beginning and again at its end."""
RECALLED = "recalled"
OVER_LIMIT = "over limit"
IN_FULL = "told in full"
SUMMARIES = frozenset({"session_summary"})
_EARLIER = 0.4
"""What a word of an earlier message counts, beside one of the last."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """A row that was looked at, with its score, and what became of it; the observation, where it was recalled."""

    row: Scored
    observation: Observation | None
    verdict: str

    @property
    def id(self) -> str:
        """The row's id."""
        return self.row.match.id

    @property
    def score(self) -> float:
        """From 0 to 1."""
        return self.row.score

    @property
    def parts(self) -> Mapping[str, float]:
        """What the score is made of."""
        return self.row.parts


@dataclass(frozen=True, slots=True)
class Recollection:
    """What was recalled, and everything that was looked at for it, both best first."""

    hits: tuple[Recalled, ...] = ()
    considered: tuple[Recalled, ...] = ()


async def rows_about(
    scope: Scope,
    view: View,
    texts: Sequence[str],
    wanted: Filter,
    *,
    profile: Profile,
    limit: int,
    vectors: Sequence[Vector] | None = None,
) -> list[Scored]:
    """Rows about the last of `texts`, and a little about those before it; without any words, the newest rows.

    `vectors` are those of the last text, where they are known already.
    """
    asked = _asked(texts, view)
    if not any(asked):
        page = await scope.store.find(view, wanted, limit=max(limit, 1))
        newest = {row.id: Match.of(row) for row in page.rows}
        return scored(newest, {}, {}, scope.profiles["recent"], view.now)
    last, earlier = [await _rarest(scope, view, words) for words in asked]
    candidates: dict[str, Match] = {}
    for words, weight in ((last, 1.0), (earlier, _EARLIER)):
        for match in await scope.store.match(view, words, wanted, limit=RESCORED) if words else ():
            before = candidates[match.id].score if match.id in candidates else 0.0
            score = before + weight * match.score
            candidates[match.id] = match if score == match.score else replace(match, score=score)
    similar: dict[str, float] = {}
    for match in await _alike(scope, view, texts[-1], wanted, vectors):
        similar[match.id] = match.score
        candidates.setdefault(match.id, replace(match, score=0.0))
    best = sorted(candidates.values(), key=lambda each: (-each.score, each.id))[:_SPILLING]
    alike = sorted(similar, key=lambda each: (-similar[each], each))[:_SPILLING]
    neighbours = await scope.store.neighbours(view, [*dict.fromkeys([*(each.id for each in best), *alike])])
    await _add_beside(scope, view, wanted, candidates, neighbours)
    neighbours = _in_full(candidates, neighbours)
    has_sessions = any(each.session_id for each in candidates.values())
    sessions = await scope.store.sessions_about(view, last or earlier) if has_sessions else {}
    weight = scope.meaning.weight if scope.meaning else 0.0
    return scored(
        candidates,
        neighbours,
        sessions,
        profile,
        view.now,
        similar=similar,
        unknown=min(similar.values()) if len(similar) >= RESCORED else 0.0,
        meaning_weight=weight,
    )


async def _alike(scope: Scope, view: View, text: str, wanted: Filter, vectors: Sequence[Vector] | None) -> list[Match]:
    """The rows that mean something like the text; none without an embedder."""
    if scope.meaning is None:
        return []
    if vectors is None:
        return await scope.meaning.nearest(view, [text], wanted, limit=RESCORED)
    return await scope.meaning.nearest_to(view, vectors, wanted, limit=RESCORED)


def judged(rows: Sequence[Scored], profile: Profile, limit: int, exclude: frozenset[str]) -> list[tuple[Scored, str]]:
    """What becomes of each row: recalled, or left out, and why.

    What was said tells more than the summary of its session: where the one is recalled, the other takes no place.
    """
    floor = profile.relative_floor * max((row.evidence for row in rows), default=0.0)
    least = max(floor, profile.absolute_floor)
    said = [row for row in rows if row.match.id not in exclude and row.evidence >= least and not _is_summary(row)]
    in_full = {row.match.session_id for row in said[:limit]} - {None}
    verdicts = []
    recalled = 0
    for row in rows:
        if row.match.id in exclude:
            verdict = "seen already"
        elif row.evidence < profile.absolute_floor:
            verdict = "below absolute floor"
        elif row.evidence < floor:
            verdict = "below relative floor"
        elif _is_summary(row) and row.match.session_id in in_full:
            verdict = IN_FULL
        elif recalled >= limit:
            verdict = OVER_LIMIT
        else:
            verdict = RECALLED
            recalled += 1
        verdicts.append((row, verdict))
    return verdicts


def _is_summary(row: Scored) -> bool:
    return row.match.type in SUMMARIES


def _asked(texts: Sequence[str], view: View) -> tuple[list[str], list[str]]:
    """The terms of the last text, and those that only earlier ones have."""
    found = [dict.fromkeys([*date_terms(text, view.now, exact=True), *terms(text)]) for text in texts]
    last = found.pop() if found else {}
    earlier = dict.fromkeys(term for each in found for term in each if term not in last)
    return list(last), list(earlier)


async def _rarest(scope: Scope, view: View, words: list[str]) -> list[str]:
    """The words that tell rows apart best, in their order, where there are too many to search for."""
    if len(words) <= _MOST_TERMS:
        return words
    if len(words) > 2 * _MOST_WEIGHED:
        words = [*words[:_MOST_WEIGHED], *words[-_MOST_WEIGHED:]]
    held = await scope.store.frequencies(view, words)
    rarest = {*sorted(held, key=held.__getitem__)[:_MOST_TERMS]}
    return [word for word in words if word in rarest]


def _in_full(candidates: Mapping[str, Match], neighbours: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """What stands beside what, without summaries: they repeat words, and stand beside nothing of a conversation."""
    short = {each for each, match in candidates.items() if match.type in SUMMARIES}
    return {
        each: {other: off for other, off in others.items() if other not in short}
        for each, others in neighbours.items()
        if each not in short
    }


async def _add_beside(
    scope: Scope,
    view: View,
    wanted: Filter,
    candidates: dict[str, Match],
    neighbours: Mapping[str, Mapping[str, int]],
) -> None:
    """Rows that hold none of the words, and stand next to those that do."""
    beside: dict[str, float] = {}
    for each, others in neighbours.items():
        for other, off in others.items():
            if other not in candidates:
                beside[other] = beside.get(other, 0.0) + candidates[each].score / (1 + abs(off))
    chosen = sorted(beside, key=lambda each: (-beside[each], each))[:_MOST_BESIDE]
    for match in await scope.store.outline(view, chosen, wanted):
        candidates[match.id] = match
