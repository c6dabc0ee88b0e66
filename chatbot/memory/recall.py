"""Recall: from a question to scored rows, by words, dates and meaning, as of now or of a past time."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from chatbot.memory.inputs import list_of
from chatbot.memory.meaning import is_only_questions, split_questions, vectors_of
from chatbot.memory.memorability import asks_more
from chatbot.memory.profile_lines import is_proposable
from chatbot.memory.reading import Recall, TimedFilter
from chatbot.memory.scope import Scope
from chatbot.memory.scoring import (
    ROOM,
    RowScore,
    ScoringProfile,
    by_closeness,
    likeness_to,
    outstanding_row,
    score_rows,
    thresholds,
)
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.errors import StoreError
from chatbot.stores.observation import Observation, replace_unchecked
from chatbot.stores.query import EVERY, MOST_AT_ONCE, Candidates, Filter, Match, Question, check_limit
from chatbot.stores.records import Vector
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.dates import date_terms, local

RESCORED = 300
"""Number of lexical hits that are scored again, unless more are asked for."""
_MOST_WEIGHED = 128
"""Number of words of a message that are considered, at its beginning and again at its end."""
RECALLED = "recalled"
OVER_LIMIT = "over limit"
NOT_NEEDED = "summary not needed"
PROFILE_LINE = "in the profile"
SEEN = "seen already"
"""Reason for a row that is excluded because the prompt shows it anyway."""
BY_CHANCE = "no better than chance"
TOO_WEAK = "much weaker than the best"
ASKED = "only asked"
"""Reason for a row in which the person only asked, if statements are wanted."""
BY_OTHERS = "said by others"
"""Reason for a row that does not answer a standing question, because its person did not say it."""
_SAID = frozenset({"exchange", "compressed_summary"})
"""Types of rows that hold the words of a person."""
_SPARE = 16
"""Number of further rows to read at first, to replace those that are left out."""
_BESIDE = 3
"""Number of best rows for which a later one is recalled."""
_COMPARED = 8
"""Number of later rows among which the nearest has to stand out."""
_CLOSELY = 12
"""Number of best rows whose tokens are compared with those of the question."""
_ENOUGH = 0.6
"""Share of the best evidence that a row must have for a prompt, if no head judges the question."""
_APART, _CLEAR = 0.12, 0.35
"""Minimum lead of the best cosine over the mean of the ranks `_REST`, which is similarity by chance. Checked
if the best is below `_CLEAR` and only meaning found rows."""
_REST = (5, 50)
_MOST_LITERAL = 5
"""Maximum number of rows that hold the only word of a search, or an identifier, and so come before all others."""
_IDENTIFIER = 4
"""Least characters of a word with digits that names one thing, such as the number of a bill."""
_EARLIER = 0.4
"""Weight of a word outside the last question, of earlier messages too, relative to one in it."""


class RankedMemory(Struct, frozen=True):
    """Considered row with its score and its outcome; with the observation if it was recalled."""

    row: RowScore
    observation: Observation | None
    verdict: str
    later: float = 0.0
    """Cosine with an earlier recalled row, if the row is recalled as a later statement about the same thing."""

    @property
    def id(self) -> str:
        """The row's id."""
        return self.row.match.id

    @property
    def score(self) -> float:
        """Score from 0 to 1."""
        return self.row.score

    @property
    def parts(self) -> Mapping[str, float]:
        """Parts of the score."""
        return self.row.parts | {"later": self.later} if self.later else self.row.parts


class Recollection(Struct, frozen=True):
    """Recalled rows, best first and then later statements about the same things, and all considered rows."""

    hits: tuple[RankedMemory, ...] = ()
    considered: tuple[RankedMemory, ...] = ()


async def recollect(
    scope: Scope, asked: Recall, wanted: Filter, fits: Callable[[Observation], bool] = lambda _: True
) -> Recollection:
    """Return the recalled rows, and all that were considered.

    Lines of the profile, which a prompt shows elsewhere, and rows that do not fit do not count towards the limit.
    """
    view, profile = scope.view(asked.sensitivities), scope.environment.options.profiles[asked.profile]
    is_calibrated = scope.meaning is not None and scope.meaning.is_calibrated
    if asked.statements and (asked.need is None or not is_calibrated):
        profile = replace(profile, relative_floor=max(profile.relative_floor, _ENOUGH))
    limit, exclude = check_limit(asked.limit), frozenset((scope.asked_row(), *asked.exclude))
    texts = list_of([asked.texts] if isinstance(asked.texts, str) else asked.texts, "texts")
    wanted, past = await as_of(scope, view, wanted, asked)
    asks, most = (asked.need or 0.0) > 0, limit + len(exclude)
    reach = EVERY if asked.known_at else 0  # as rows that were written later are then left out
    rated = await rows_about(scope, view, texts, wanted, profile=profile, limit=most, past=past, reach=reach, asks=asks)
    read, left_out = dict[str, Observation](), dict[str, str]()
    portion = limit + _SPARE
    while True:
        unread = [row.match.id for row in rated if row.match.id not in read and row.match.id not in exclude][:portion]
        found = await rows_then(scope, view, unread, past, asked.known_at)
        gone = set(unread).difference(found)
        rated = [row for row in rated if row.match.id not in gone]
        left_out |= {each: PROFILE_LINE for each, row in found.items() if is_proposable(row)}
        left_out |= {each: BY_OTHERS for each, row in found.items() if not fits(row)}
        if asked.statements:
            left_out |= dict.fromkeys(await merely_asking(scope, found), ASKED)
        if not read:  # the best rows, in the first portion
            fit = {each: row for each, row in found.items() if each not in left_out}
            compared = _without_replies(fit) if asked.statements else fit
            rated = _by_identifiers(texts, await _by_tokens(scope, texts, rated, compared, profile), fit)
        read |= found
        without = exclude.union(left_out)
        verdicts = verdicts_of(rated, profile, limit, without, need=asked.need, is_calibrated=is_calibrated)
        best = [row for row, verdict in verdicts if verdict == RECALLED]
        if all(row.match.id in read for row in best):
            break
        portion *= 2
    hits = [RankedMemory(row, read[row.match.id], RECALLED) for row in best]
    # The nearest later statements about the same things take the last places.
    near = await _said_later(scope, view, best[: min(_BESIDE, limit // 2)], wanted, exclude) if asked.statements else {}
    later_ids = [match.id for later in near.values() for match in later]
    beside = await rows_then(scope, view, later_ids, past, asked.known_at)
    merely_ask = await merely_asking(scope, beside)
    stated = {id_: row for id_, row in beside.items() if fits(row) and not is_proposable(row) and id_ not in merely_ask}
    nearest = _nearest(hits, near, stated)
    unranked = score_rows(Candidates({match.id: replace(match, score=0.0) for match in nearest}), profile, view.now)
    scores = {row.match.id: row for row in (*unranked, *rated)}
    later = [RankedMemory(scores[match.id], stated[match.id], RECALLED, match.score) for match in nearest]
    hits = [*hits[: limit - len(later)], *later]
    return Recollection(tuple(hits), _all_considered(verdicts, hits, left_out))


async def _by_tokens(
    scope: Scope, texts: Sequence[str], rows: list[RowScore], read: Mapping[str, Observation], profile: ScoringProfile
) -> list[RowScore]:
    """Return all rows, best first, after the best of those read were compared with the last text token by token."""
    best = [read[row.match.id] for row in rows if row.match.id in read][:_CLOSELY]
    if len(best) < 2 or not texts or not profile.meaning or scope.meaning is None:
        return rows
    return by_closeness(rows, await scope.meaning.closeness(texts[-1], best, scope.view(SENSITIVITIES)), profile)


def _without_replies(rows: Mapping[str, Observation]) -> dict[str, Observation]:
    return {each: replace_unchecked(row, assistant_text="") if row.user_text else row for each, row in rows.items()}


async def merely_asking(scope: Scope, rows: Mapping[str, Observation]) -> set[str]:
    """Return the ids of rows that hold only a person's questions, unless they more likely than not state something."""
    words = {each: row.user_text or row.title for each, row in rows.items() if row.type in _SAID}
    asking = {each: text for each, text in words.items() if is_only_questions(text)}
    judged = await scope.meaning.judge([*asking.values()]) if asking and scope.meaning else [None] * len(asking)
    scored = {each: {} if found is None else found.scores for each, found in zip(asking, judged, strict=True)}
    return {each for each, of in scored.items() if of.get("states_something", 0.0) <= 0 or asks_more(of)}


def _by_identifiers(texts: Sequence[str], rows: list[RowScore], read: Mapping[str, Observation]) -> list[RowScore]:
    """Return all rows, with more evidence for those, if few, that hold an identifier of the last text, such as 4997."""
    asked = {term for term in terms("".join(texts[-1:])) if len(term) >= _IDENTIFIER and re.search(r"\d", term)}
    held = holders(read, asked)
    return [replace(row, evidence=row.evidence + 1) if row.match.id in held else row for row in rows]


def holders(rows: Mapping[str, Observation], words: set[str]) -> set[str]:
    """Return the ids of the rows that hold one of these words, unless they are many."""
    held = {each for each, row in rows.items() if not words.isdisjoint(terms(row.text()))} if words else set()
    return held if len(held) <= _MOST_LITERAL else set()


def _all_considered(
    verdicts: Sequence[tuple[RowScore, str]], hits: Sequence[RankedMemory], left_out: Mapping[str, str]
) -> tuple[RankedMemory, ...]:
    """Return all considered rows, then the hits that the question did not find."""
    looked_at = (
        RankedMemory(row, None, left_out.get(row.match.id, OVER_LIMIT if verdict == RECALLED else verdict))
        for row, verdict in verdicts
    )
    return tuple({each.id: each for each in (*looked_at, *hits)}.values())


async def rows_about(
    scope: Scope,
    view: View,
    texts: Sequence[str],
    wanted: Filter,
    *,
    profile: ScoringProfile,
    limit: int,
    past: dict[str, Observation],
    reach: int = 0,
    vectors: Sequence[Vector] | None = None,
    asks: bool = False,
) -> list[RowScore]:
    """Return rows about the last of `texts` and, with less weight, the earlier ones; without any, the newest rows.

    They include those of `past`, which no index has. `limit` is the number of newest rows, and `reach` the minimum of
    matching rows to consider. `vectors` are those of the last text, if they are known; for `asks` see `vectors_of`.
    """
    last, dates, earlier = _question_terms(texts, view)
    if vectors is None:
        (vectors,) = await vectors_of(scope, [texts], asks=asks)
    if not (last or dates or earlier or vectors):
        rows = await scope.rows(wanted, view=view, order="updated", limit=max(limit, 1))
        newest = {row.id: Match.of(row) for row in (*rows, *past.values())}
        return score_rows(Candidates(newest), scope.environment.options.profiles["recent"], view.now)
    question = Question(
        terms=tuple(last),
        dates=tuple(dates),
        earlier=tuple(earlier),
        earlier_weight=_EARLIER,
        limit=max(reach, RESCORED),
        without=scope.asked_row(),
    )
    found = await _candidates(scope, view, question, wanted, vectors)
    has_gaps = scope.meaning is not None and scope.meaning.has_gaps
    current = score_rows(found, profile, view.now, unknown=_unknown(found, question.limit, has_gaps=has_gaps))
    return sorted((*current, *_scored_past(past, texts[-1], profile, view.now)), key=lambda row: -row.score)


def _unknown(found: Candidates, limit: int, *, has_gaps: bool) -> float:
    """Return the cosine to assume for a row that is not in `found.similar`.

    That is the lowest one there, or 0 if all rows were compared. While some rows have no vector, it is the mean of the
    better half of the cosines of lexical matches.
    """
    if has_gaps:
        known = sorted(cosine for each, cosine in found.similar.items() if found.rows[each].score)
        best = known[len(known) // 2 :]
        return sum(best) / len(best) if best else 0.0
    return min(found.similar.values()) if len(found.similar) >= limit else 0.0


async def _candidates(
    scope: Scope, view: View, question: Question, wanted: Filter, vectors: Sequence[Vector]
) -> Candidates:
    """Return the candidates by words and, with an embedder, by meaning."""
    if scope.meaning is None:
        return await scope.store.candidates(view, question, wanted)
    try:
        meant = replace(question, vectors=tuple(vectors), model=scope.meaning.model)
        found = await scope.store.candidates(view, meant, wanted)
    except StoreError as error:
        if not vectors:
            raise
        scope.meaning.pause(error)
        return await scope.store.candidates(view, question, wanted)
    found.similar = {each: min(1.0, scope.meaning.scale * cosine) for each, cosine in found.similar.items()}
    return found


def verdicts_of(
    rows: Sequence[RowScore],
    profile: ScoringProfile,
    limit: int,
    exclude: frozenset[str],
    *,
    need: float | None = None,
    is_calibrated: bool = True,
) -> list[tuple[RowScore, str]]:
    """Return each row with its outcome: recalled, or the reason why it is left out.

    Summaries are left out if other rows have evidence. With `need`, the score of `needs_memory`, it and the best
    evidence decide which rows are recalled (`thresholds`). Without it, or with cosines to which the thresholds do not
    apply, no row is recalled unless one holds words of the question or stands out by meaning; words do not count if
    `need` is 0 or less.
    """
    eligible = [row for row in rows if row.match.id not in exclude]
    said = [row for row in eligible if row.evidence and not _is_summary(row)]
    best = max((row.evidence for row in said or eligible), default=0.0)
    share, most = profile.relative_floor, math.inf
    if need is None or not is_calibrated:
        holds_words = (need is None or need > 0) and any(row.holds_words for row in rows)
        is_chance = share > 0 and not (holds_words or _stands_out(rows))
    else:
        is_compared = any(row.closeness is not None for row in rows)
        least, enough, most = thresholds(best, need, len(rows), is_compared=is_compared)
        is_chance, share = 0 < best < least, max(share, enough)
    verdicts, recalled = [], 0
    for row in rows:
        if is_chance:
            verdict = BY_CHANCE
        elif row.evidence < share * best or (share and not row.evidence):
            verdict = TOO_WEAK
        elif row.match.id in exclude:
            verdict = SEEN
        elif _is_summary(row) and said:
            verdict = NOT_NEEDED
        elif recalled >= min(limit, most):
            verdict = OVER_LIMIT
        else:
            verdict = RECALLED
            recalled += 1
        verdicts.append((row, verdict))
    return verdicts


def _stands_out(rows: Sequence[RowScore]) -> bool:
    """Return whether the most similar row stands out from those after it; true if there are few rows."""
    begin, end = _REST
    cosines = nlargest(end, (row.meaning for row in rows if row.meaning is not None))
    rest = cosines[begin:]
    return not rest or cosines[0] >= _CLEAR or cosines[0] - sum(rest) / len(rest) >= _APART


async def _said_later(
    scope: Scope, view: View, rows: Sequence[RowScore], wanted: Filter, exclude: frozenset[str]
) -> dict[str, list[Match]]:
    """Return for each of these rows the most similar rows said later, with the cosine as their score."""
    said_at = {row.match.id: row.match.created_at for row in rows if not _is_summary(row)}
    if scope.meaning is None or not said_at:
        return {}
    try:
        most = 2 * _COMPARED  # some of them may only ask
        found = await scope.store.later_alike(view, list(said_at), wanted, model=scope.meaning.model, limit=most)
    except StoreError as error:
        scope.meaning.pause(error)
        return {}
    later: dict[str, list[Match]] = {}
    for each, matches in found.items():
        fit = (match for match in matches if match.type != "session_summary" and match.id not in exclude)
        later[each] = [match for match in fit if match.created_at > said_at[each]]  # imported rows may be older
    return later


def _nearest(
    hits: Sequence[RankedMemory], near: Mapping[str, Sequence[Match]], said: Mapping[str, Observation]
) -> list[Match]:
    """Return later statements about the same things as hits: the nearest one to each, if it stands out."""
    shown = {hit.id for hit in hits}
    found: dict[str, Match] = {}
    for hit in hits:
        stated = (match for match in near.get(hit.id, ()) if match.id in said)
        later = {match.id: match for match in islice(stated, _COMPARED)}
        cosines = {each: match.score for each, match in later.items()}
        words = {each: _words_of(said[each]) for each in later}
        nearest = outstanding_row(likeness_to(_words_of(hit.observation), cosines, words))
        if nearest and nearest not in shown:
            found[nearest] = later[nearest]
    return list(found.values())


def _words_of(row: Observation | None) -> frozenset[str]:
    return frozenset(terms(row.user_text or row.text())) if row else frozenset()


def _is_summary(row: RowScore) -> bool:
    return row.match.type == "session_summary"


def _question_terms(texts: Sequence[str], view: View) -> tuple[list[str], list[str], list[str]]:
    """Return the terms of the last question, its dates, and the terms of everything else."""
    *before, last = texts or [""]
    said, questions = split_questions(last)
    if questions:
        before, last = [*before, said], " ".join(questions)
    words, now = dict.fromkeys(terms(last)), local(view.now)
    dates = dict.fromkeys(date_terms(last, now, exact=True))
    found = (term for text in before for term in (*date_terms(text, now, exact=True), *terms(text)))
    earlier = dict.fromkeys(term for term in found if term not in words)
    return _ends(list(words)), list(dates), _ends(list(earlier))


def _ends(words: list[str]) -> list[str]:
    return list(dict.fromkeys([*words[:_MOST_WEIGHED], *words[-_MOST_WEIGHED:]]))


async def as_of(scope: Scope, view: View, wanted: Filter, asked: TimedFilter) -> tuple[Filter, dict[str, Observation]]:
    """Return the filter of the rows that existed at the time asked for, and those that were current only then."""
    at = scope.moment(asked.as_of, asked.known_at, view.now)
    if at is None:
        return wanted, {}
    end = at + timedelta.resolution
    wanted = replace(wanted, before=end if wanted.before is None else min(end, wanted.before))
    left = replace(wanted, statuses=("superseded", "compressed", "expired", "archived"))
    rows = await scope.rows(left, view=view)
    replaced = {"superseded", "compressed"}
    ends = [(row, row.superseded_at if row.status in replaced else row.expires_at) for row in rows]
    return wanted, {row.id: row for row, end in ends if end is None or end > at}


def _scored_past(rows: dict[str, Observation], text: str, profile: ScoringProfile, now: datetime) -> list[RowScore]:
    """Score unindexed rows by the share of the text's words that they hold; leave out those with none."""
    asked = frozenset(terms(text))
    found = Candidates(weight=ROOM)
    for row in rows.values():
        held = asked & frozenset(terms(row.text()))
        if held or not asked:
            found.rows[row.id] = Match.of(row, ROOM * len(held) / max(len(asked), 1))
    return score_rows(found, profile, now)


async def rows_then(
    scope: Scope,
    view: View,
    ids: Sequence[str],
    past: dict[str, Observation],
    known_at: datetime | None,
    *,
    part: slice = slice(None),
) -> dict[str, Observation]:
    """Return by id the rows that were known at a time; `past` ones are not read again. `part` selects some of `ids`."""
    if known_at is not None:
        ids = await _known(scope, view, ids, known_at, part.stop)
    unread = [each for each in ids[part] if each not in past]
    rows = {row.id: row for row in await scope.store.get(view, unread)} | past if unread else past
    return {each: rows[each] for each in ids[part] if each in rows}


async def _known(scope: Scope, view: View, ids: Sequence[str], at: datetime, most: int | None) -> list[str]:
    """Return the first `most` of these rows that had been written by a time."""
    found: list[str] = []
    begin, size = 0, min(most or MOST_AT_ONCE, MOST_AT_ONCE)
    while begin < len(ids) and (most is None or len(found) < most):
        written = await scope.store.written_at(view.asking_all(), ids[begin : begin + size])
        found += [each for each, since in written.items() if since <= at]
        begin, size = begin + size, min(4 * size, MOST_AT_ONCE)
    return found[:most]
