"""Recall: from a question to scored rows, by matching words and dates, and the rows beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nlargest
from itertools import islice
from typing import Any

from chatbot.memory.asking import asks_about_oneself, only_asks, parted, vectors_of
from chatbot.memory.ordinals import rows_of_named_sessions
from chatbot.memory.profile_lines import is_proposable
from chatbot.memory.scope import Scope
from chatbot.memory.scoring import Nearness, RowScore, ScoringProfile, outstanding, scored
from chatbot.stores.access import View
from chatbot.stores.candidates import Candidates, Question
from chatbot.stores.errors import StoreError
from chatbot.stores.observation import Observation
from chatbot.stores.query import Filter, Match
from chatbot.stores.records import format_time
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.dates import date_terms
from chatbot.stores.vectors import Vector

RESCORED = 300
"""Number of lexical hits that are scored again, unless more are asked for."""
_MOST_WEIGHED = 128
"""Number of words of a message that are considered, at its beginning and again at its end."""
RECALLED = "recalled"
OVER_LIMIT = "over limit"
IN_FULL = "told in full"
OUTDATED = "changed since"
PROFILE_LINE = "in the profile"
BY_CHANCE = "stands out from no others"
_COMPARED = 8
"""Number of rows beside the recalled ones that are searched for changes to these."""
_NEAR = 0.45
"""The cosine from which on a later row may tell of a change to one that is recalled."""
_BESIDE = 5
"""Number of recalled rows, the best, that later ones are looked for, whether or not the question finds these."""
_LATER = 4
"""Number of later rows that are compared with each recalled one."""
SUMMARIES = frozenset({"session_summary"})
UNSURE, MOST_UNSURE = 0.22, 2
"""Least evidence of the best row if meaning alone found rows; below it few are recalled: it may be an accident."""
_APART, _CLEAR = 0.12, 0.35
"""Least distance of the best cosine from those of the ranks `_REST`, if it is below `_CLEAR` and meaning alone found
rows: the memory's own cosines tell how alike to anything it is by chance."""
_REST = (5, 50)
_EARLIER = 0.4
"""Weight of a word outside the last question, of earlier messages too, relative to one in it."""


@dataclass(frozen=True, slots=True)
class RankedMemory:
    """Considered row with its score and its outcome; with the observation if it was recalled."""

    row: RowScore
    observation: Observation | None
    verdict: str
    changed_at: datetime | None = None
    """Time at which a later statement of the same person made it outdated."""
    is_certain: bool = True
    """True if it did; if not, it only announces a change of something similar in meaning."""

    @property
    def id(self) -> str:
        """The row's id."""
        return self.row.match.id

    @property
    def score(self) -> float:
        """Score from 0 to 1."""
        return self.row.score

    def index(self) -> dict[str, Any]:
        """Return just enough to decide whether to read all of it; nothing if the observation was not recalled."""
        if self.observation is None:
            return {}
        changed_at = self.changed_at and format_time(self.changed_at)
        return self.observation.brief() | {"score": round(self.score, 4), "changed_at": changed_at}

    @property
    def parts(self) -> Mapping[str, float]:
        """Parts of the score."""
        return self.row.parts


@dataclass(frozen=True, slots=True)
class Recollection:
    """Recalled rows, and all rows that were considered, both best first."""

    hits: tuple[RankedMemory, ...] = ()
    considered: tuple[RankedMemory, ...] = ()


async def rows_about(
    scope: Scope,
    view: View,
    texts: Sequence[str],
    wanted: Filter,
    *,
    profile: ScoringProfile,
    limit: int,
    reach: int = 0,
    vectors: Sequence[Vector] | None = None,
) -> list[RowScore]:
    """Rows about the last of `texts`, and a little about those before it; without any words, the newest rows.

    `limit` is how many of the newest rows are looked at, and `reach` how many of those that match at least. `vectors`
    are those of the last text, where they are known already.
    """
    last, dates, earlier = _asked(texts, view)
    if not (last or dates or earlier):
        rows = await scope.rows(wanted, view=view, order="updated", limit=max(limit, 1))
        newest = {row.id: Match.of(row) for row in rows}
        return scored(Candidates(newest), scope.profiles["recent"], view.now)
    question = Question(
        terms=tuple(last),
        dates=tuple(dates),
        earlier=tuple(earlier),
        earlier_weight=_EARLIER,
        limit=max(reach, RESCORED),
        apart=SUMMARIES,
    )
    if vectors is None and scope.meaning is not None:
        (vectors,) = await vectors_of(scope.meaning, [texts])
    found = await _candidates(scope, view, question, wanted, vectors or ())
    named = {match.id: match for match in await rows_of_named_sessions(scope, view, texts[-1], wanted)}
    found.rows |= {each: match for each, match in named.items() if each not in found.rows}
    found.dated = {**found.dated, **dict.fromkeys(named, 1.0)}
    return scored(
        found,
        profile,
        view.now,
        unknown=min(found.similar.values()) if len(found.similar) >= question.limit else 0.0,
        meaning_weight=scope.meaning.weight if scope.meaning else 0.0,
    )


async def _candidates(
    scope: Scope, view: View, question: Question, wanted: Filter, vectors: Sequence[Vector]
) -> Candidates:
    """Return the candidates by words and, with an embedder, by meaning."""
    if scope.meaning is None:
        return await scope.store.candidates(view, question, wanted)
    scale = scope.meaning.scale
    try:
        meant = replace(question, vectors=tuple(vectors), model=scope.meaning.model)
        found = await scope.store.candidates(view, meant, wanted)
    except StoreError as error:
        if not vectors:
            raise
        scope.meaning.pause(error)
        return await scope.store.candidates(view, question, wanted)
    found.similar = {each: min(1.0, scale * cosine) for each, cosine in found.similar.items()}
    return found


def judged(
    rows: Sequence[RowScore], profile: ScoringProfile, limit: int, exclude: frozenset[str], asked: str = ""
) -> list[tuple[RowScore, str]]:
    """Return each row with its outcome: recalled, or the reason why it is left out.

    What was said tells more than the summary of its session: where the one is recalled, the other takes no place. Where
    the most similar row does not stand out, none is recalled; but few are if people ask about themselves, for it is
    likely that they have told it in other words.
    """
    best = max((row.evidence for row in rows), default=0.0)
    floor = profile.relative_floor * best
    by_meaning = not any(row.holds_words for row in rows)
    is_unclear = by_meaning and profile.absolute_floor > 0 and not _stands_out(rows)
    by_chance = is_unclear and not asks_about_oneself(asked)
    if is_unclear or (best < UNSURE and by_meaning):
        limit = min(limit, MOST_UNSURE)
    said = (
        row
        for row in rows
        if row.match.id not in exclude
        and not _is_summary(row)
        and not row.is_below(profile.absolute_floor)
        and row.evidence >= floor
    )
    in_full = {row.match.session_id for row in islice(said, limit)} - {None}
    verdicts = []
    recalled = 0
    for row in rows:
        if row.match.id in exclude:
            verdict = "seen already"
        elif row.is_below(profile.absolute_floor):
            verdict = "below absolute floor"
        elif by_chance:
            verdict = BY_CHANCE
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


def _stands_out(rows: Sequence[RowScore]) -> bool:
    """Return whether the most similar row is clearly more so than those after it; true if there are few rows."""
    begin, end = _REST
    cosines = nlargest(end, (row.meaning for row in rows if row.meaning is not None))
    rest = cosines[begin:]
    return not rest or cosines[0] >= _CLEAR or cosines[0] - sum(rest) / len(rest) >= _APART


def eligible(verdicts: Sequence[tuple[RowScore, str]]) -> tuple[list[RowScore], int]:
    """The rows to choose from, best first, and how many of them are to be recalled."""
    chosen = sum(verdict == RECALLED for _, verdict in verdicts)
    rows = [row for row, verdict in verdicts if verdict in (RECALLED, OVER_LIMIT)]
    return rows[: chosen + _COMPARED] if chosen else [], chosen


async def later_near(
    scope: Scope, view: View, choice: Sequence[RowScore], wanted: Filter, *, most: int, exclude: frozenset[str]
) -> tuple[Nearness, list[Match]]:
    """Return how near later rows are to those that are recalled, and those that are neither chosen nor excluded."""
    if scope.meaning is None or not choice:
        return {}, []
    asked = [row.match.id for row in choice[: min(most, _BESIDE)] if not _is_summary(row)]
    try:
        found = await scope.store.later_alike(view, asked, wanted, model=scope.meaning.model, limit=_LATER)
    except StoreError as error:
        scope.meaning.pause(error)
        return {}, []
    said = {each: [match for match in later if match.type not in SUMMARIES] for each, later in found.items()}
    near = {each: {match.id: match.score for match in later} for each, later in said.items()}
    known = exclude.union(row.match.id for row in choice)
    apart = {outstanding(later)[0] for later in near.values()}
    more = {match.id: match for later in said.values() for match in later if match.score >= _NEAR or match.id in apart}
    return near, [match for each, match in more.items() if each not in known]


def unasked(more: Sequence[Match], found: Sequence[RowScore], profile: ScoringProfile, now: datetime) -> list[RowScore]:
    """The scores of rows that were not recalled: those they have, or those of rows that answer nothing."""
    known = {row.match.id: row for row in found} if more else {}
    rest = {match.id: match._replace(score=0.0) for match in more if match.id not in known}
    return [*(known[match.id] for match in more if match.id in known), *scored(Candidates(rest), profile, now)]


def telling_first(
    choice: Sequence[RowScore], observations: Mapping[str, Observation], asked: str, limit: int
) -> list[RowScore]:
    """Return the rows to choose from; for those who ask about themselves, what they told stands before what they asked.

    A question is alike to other questions, and tells little of who asked it. One that holds a word of this one, or its
    date, keeps its place.
    """
    if not asks_about_oneself(asked):
        return list(choice)
    end = limit + _COMPARED
    first = sorted(choice[:end], key=lambda row: _asks_something_else(row, observations.get(row.match.id)))
    return [*first, *choice[end:]]


def _asks_something_else(row: RowScore, observation: Observation | None) -> bool:
    is_found = row.raised.lexical > 0 or row.dated > 0
    return observation is not None and not is_found and only_asks(observation.user_text)


def latest_first(
    rows: Sequence[RowScore],
    observations: Mapping[str, Observation],
    limit: int,
    *,
    changed: Mapping[str, datetime],
    nearness: Nearness,
    now: datetime,
) -> list[RankedMemory]:
    """Return the recalled rows, each statement before what it has certainly changed, then what is left out for it.

    The first `limit` of `rows` are recalled, the others may have changed them. `changed` are rows that are known to be
    outdated, with the time of the change. Where there is no room for both, what is certainly outdated is left out; a
    row that names the date that was asked for keeps its place. What only may have changed a row leaves the order of
    the matches alone: it comes last, in place of the least match, and only for the best one.
    """
    from chatbot.memory.changes import outdated, said_at  # hundreds of patterns, which no prompt waits for

    found = [(row, observations[row.match.id]) for row in rows if row.match.id in observations]
    found = [(row, each) for row, each in found if not is_proposable(each)]
    asked = [each for _, each in found[: limit + _COMPARED]]
    others = [each for _, each in found[len(asked) :]]
    first = {each.id for each in asked[:limit]}
    later = outdated(asked, others, now, nearness, among=first)
    newest = {new.by.id for new in later.values()} - first  # they may be outdated, too
    later |= outdated(asked, others, now, nearness, among=newest)
    by_id = {each.id: (row, each) for row, each in found}
    when = {old: said_at(new.by) for old, new in later.items()} | dict(changed)
    perhaps = {old for old, new in later.items() if not new.is_certain} - changed.keys()
    order: list[str] = []
    behind: list[str] = []
    for row, each in found[:limit]:
        is_changed = each.id in later and later[each.id].is_certain and not row.dated
        if is_changed and later[each.id].by.id not in order:
            order.append(later[each.id].by.id)
        if each.id in when and not row.dated and each.id not in perhaps:
            behind.append(each.id)
        if each.id not in order:
            order.append(each.id)
    left = behind[::-1][: max(0, len(order) - limit)]
    chosen = [each for each in order if each not in left][:limit]
    best = next((each.id for row, each in found[:1] if not row.dated and each.id in perhaps), "")
    if best and (beside := later[best].by.id) not in chosen:
        chosen = [*chosen[: limit - 1], beside] if limit > 1 else chosen
    return [
        RankedMemory(*by_id[each], OUTDATED if each in left else RECALLED, when.get(each), each not in perhaps)
        for each in (*chosen, *left)
    ]


def left_out(verdict: str, *, is_line: bool) -> str:
    """Why a row is not recalled that was good enough: it is a line of the profile, or others came before it."""
    if is_line:
        return PROFILE_LINE
    return OVER_LIMIT if verdict == RECALLED else verdict


def _is_summary(row: RowScore) -> bool:
    return row.match.type in SUMMARIES


def _asked(texts: Sequence[str], view: View) -> tuple[list[str], list[str], list[str]]:
    """The terms of what the last text asks, the dates in that, and the terms that only the rest has."""
    if not texts:
        return [], [], []
    *before, last = texts
    said, questions = parted(last)
    if questions:
        before, last = [*before, said], " ".join(questions)
    words, dates = dict.fromkeys(terms(last)), dict.fromkeys(date_terms(last, view.now, exact=True))
    earlier = dict.fromkeys(term for text in before for term in _terms(text, view) if term not in words)
    return _ends(list(words)), list(dates), _ends(list(earlier))


def _terms(text: str, view: View) -> list[str]:
    return [*date_terms(text, view.now, exact=True), *terms(text)]


def _ends(words: list[str]) -> list[str]:
    if len(words) <= 2 * _MOST_WEIGHED:
        return words
    return [*words[:_MOST_WEIGHED], *words[-_MOST_WEIGHED:]]
