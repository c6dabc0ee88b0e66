"""How rows are weighed: a table of golden cases, and properties of scores for any numbers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chatbot.memory import scoring
from chatbot.memory.recall import NOT_NEEDED, verdicts_of
from chatbot.memory.scoring import PROFILES, RowScore, ScoringProfile, by_closeness, outstanding_row, score_rows
from chatbot.stores.observation import Observation
from chatbot.stores.query import Candidates, Match

NOW = datetime(2026, 3, 4, tzinfo=UTC)
SEARCH, RECENT, INJECT = PROFILES["search"], PROFILES["recent"], PROFILES["inject"]


HALF = 0.5 * scoring.ROOM / scoring.WORDS
"""The BM25 score that is half a match, for a question that weighs nothing."""


def candidate(name: str = "a", *, days: float = 0, lexical: float = HALF, **known: object) -> Match:
    at = NOW - timedelta(days=days)
    given: dict[str, object] = {"type": "note", "session_id": None, "created_at": at, "updated_at": at} | known
    return Match(id=name, score=lexical, **given)  # type: ignore[arg-type]


def ranked(rows: Mapping[str, Match], profile: ScoringProfile, **more: Any) -> list[RowScore]:
    return score_rows(Candidates(dict(rows), **more), profile, NOW)


def score(one: Match, profile: ScoringProfile) -> float:
    [only] = ranked({one.id: one}, profile)
    return only.score


@pytest.mark.parametrize(
    ("profile", "one", "expected"),
    [
        (SEARCH, candidate(), 0.96 * 0.5 + 0.02),
        (SEARCH, candidate(days=1), 0.96 * 0.5 + 0.02 * 0.5),
        (SEARCH, candidate(mention_count=5), 0.96 * 0.5 + 0.02 + 0.02 * 0.5),
        (SEARCH, candidate(mention_count=50), 0.96 * 0.5 + 0.02 + 0.02),
        (RECENT, candidate(days=3, mention_count=2), 0.7 / 4 + 0.3 * 0.2),
        (INJECT, candidate(importance=1.0), 0.9 * 0.5 + 0.01 + 0.06 + 0.03 * 0.5),
        (INJECT, candidate(confirmed_count=1, importance=0.0), 0.9 * 0.5 + 0.01 + 0.03 * (1 - 0.5 / (1 + log(6)))),
        (INJECT, candidate(confirmed_count=9, importance=0.0), 0.9 * 0.5 + 0.01 + 0.03 * (1 - 0.5 / (1 + log(46)))),
        (INJECT, candidate(days=30, importance=0.0), 0.9 * 0.5 + 0.01 * 0.5 + 0.03 * 0.5),
        (INJECT, candidate(days=21, type="event", importance=0.0), 0.9 * 0.5 + 0.01 * 0.5 + 0.03 * 0.5),
        (INJECT, candidate(days=3000, type="preference", importance=0.0), 0.9 * 0.5 + 0.01 + 0.03 * 0.5),
    ],
)
def test_the_golden_cases(profile: ScoringProfile, one: Match, expected: float) -> None:
    assert score(one, profile) == pytest.approx(expected)


def test_an_exchange_neither_fades_nor_grows_when_it_is_looked_for() -> None:
    given = {"id": "0" * 8 + "-0000-4000-8000-" + "0" * 12, "created_at": NOW, "updated_at": NOW, "title": "t"}
    faded = {"importance": 0.5, "strength": 0.1}
    assert Match.of(Observation(**given, **faded, type="exchange")).importance == 0.5  # type: ignore[arg-type]
    assert Match.of(Observation(**given, **faded, type="note")).importance == 0.1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cosines", "lexical", "profile", "need", "verdict"),
    [
        ((0.25, 0.15), 0.0, "inject", None, "no better than chance"), ((0.30, 0.15), 0.0, "inject", None, "recalled"),
        ((0.40, 0.35), 0.0, "inject", None, "recalled"), ((0.25, 0.15), 9.0, "inject", None, "recalled"),
        ((0.25, 0.15), 9.0, "inject", 1.0, "recalled"), ((0.25, 0.15), 9.0, "inject", -1.0, "no better than chance"),
        ((0.30, 0.15), 9.0, "inject", -1.0, "recalled"), ((0.25, 0.15), 0.0, "search", None, "recalled"),
    ],
)  # fmt: skip
def test_what_meaning_alone_finds_has_to_stand_out_from_the_rest_of_the_memory(
    cosines: tuple[float, float], lexical: float, profile: str, need: float | None, verdict: str
) -> None:
    best, rest = cosines
    rows = {f"{number:02}": candidate(f"{number:02}", lexical=0.0) for number in range(60)}
    similar = dict.fromkeys(rows, rest) | {"07": best}
    rows["07"] = replace(rows["07"], score=lexical)
    weighed = PROFILES[profile]
    found = score_rows(Candidates(rows, similar=similar), weighed, NOW)
    verdicts = verdicts_of(found, weighed, 5, frozenset(), need=need, is_calibrated=False)
    assert {row.match.id: each for row, each in verdicts}["07"] == verdict


def test_a_row_among_many_similar_ones_needs_a_greater_cosine() -> None:
    rows = {each: candidate(each, lexical=0.0) for each in "abc"}
    similar, density = {"a": 0.6, "b": 0.58, "c": 0.2}, {"a": 0.8, "b": 0.2}
    assert [row.match.id for row in ranked(rows, SEARCH, similar=similar)] == ["a", "b", "c"]
    found = ranked(rows, SEARCH, similar=similar, density=density)
    assert [row.match.id for row in found] == ["b", "a", "c"]
    weighed = [0.58 + 0.3 * scoring.DENSE, 0.6 - 0.3 * scoring.DENSE, 0.2]
    assert [row.evidence for row in found] == pytest.approx([scoring.WEIGHT * each for each in weighed])


@pytest.mark.parametrize(
    ("later", "nearest"),
    [
        ({"a": 0.6, "b": 0.5, "c": 0.1}, "a"), ({"a": 0.6, "b": 0.55, "c": 0.1}, ""), ({"a": 0.45}, "a"),
        ({"a": 0.35, "b": 0.1}, ""), ({}, ""),
    ],
)  # fmt: skip
def test_a_later_row_is_about_the_same_if_it_is_near_and_well_ahead(later: dict[str, float], nearest: str) -> None:
    assert outstanding_row(later) == nearest


def test_a_summary_takes_no_place_where_anything_that_was_said_is_recalled() -> None:
    rows = {
        "summary": candidate("summary", lexical=10.0, type="session_summary", session_id="one"),
        "said": candidate("said", lexical=8.0, session_id="one"),
        "else": candidate("else", lexical=9.0, type="session_summary", session_id="two"),
        "seen": candidate("seen", lexical=9.5, session_id="two"),
    }
    verdicts = {row.match.id: each for row, each in verdicts_of(ranked(rows, INJECT), INJECT, 2, frozenset({"seen"}))}
    expected = {"summary": NOT_NEEDED, "seen": "seen already", "else": NOT_NEEDED, "said": "recalled"}
    assert verdicts == expected
    alone = verdicts_of(ranked(rows, INJECT), INJECT, 2, frozenset({"seen", "said"}))
    assert [verdict for _, verdict in alone].count("recalled") == 2


def test_what_the_prompt_shows_anyway_does_not_decide_how_good_the_others_must_be() -> None:
    rows = {"shown": candidate("shown", lexical=90.0), "good": candidate("good", lexical=9.0)}
    profile = replace(INJECT, relative_floor=0.6)
    verdicts = {row.match.id: one for row, one in verdicts_of(ranked(rows, profile), profile, 5, frozenset({"shown"}))}
    assert verdicts == {"shown": "seen already", "good": "recalled"}


def test_one_weak_word_gives_way_to_meaning_and_many_rare_words_do_not() -> None:
    """A question of one word weighs little, so a row that holds it is no better than the word."""
    similar = {"meaning": 0.4, "words": 0.1}
    weak = {"words": candidate("words", lexical=4.0), "meaning": candidate("meaning", lexical=0.0)}
    rare = weak | {"words": candidate("words", lexical=30.0)}
    assert ranked(weak, INJECT, weight=4.0, similar=similar)[0].match.id == "meaning"
    assert ranked(rare, INJECT, weight=30.0, similar=similar)[0].match.id == "words"


@given(st.floats(0, 4000), st.sampled_from(["note", "event", "discovery", "technical"]))
def test_age_never_beats_a_better_match(days: float, type_: str) -> None:
    """Better by a fifth is better, however old."""
    for profile in (SEARCH, INJECT):
        rows = {
            "old": candidate("old", days=days, lexical=12.0, type=type_),
            "new": candidate("new", lexical=10.0, type=type_),
        }
        assert ranked(rows, profile)[0].match.id == "old"


@pytest.mark.parametrize(
    ("cosine", "need", "among", "recalled"),
    [
        (0.0, 3, 200, 0), (0.1, 3, 200, 1), (0.5, 3, 200, 3), (0.4, 0, 200, 0), (0.75, 0, 200, 2), (0.7, 0.5, 200, 3),
        (0.45, 0, 200, 0), (0.45, 0, 3, 2), (0.4, 0, 3, 0), (0.7, -1, 200, 0), (1.0, -1, 200, 2),
    ],
)  # fmt: skip
def test_the_less_a_message_needs_memory_and_the_more_rows_there_are_the_more_evidence_rows_need(
    cosine: float, need: float, among: int, recalled: int
) -> None:
    rows = {str(number): candidate(str(number), lexical=0.0) for number in range(among)}
    found = ranked(rows, INJECT, similar=dict.fromkeys(rows, 0.0) | {"0": cosine, "1": 0.8 * cosine, "2": 0.8 * cosine})
    found = by_closeness(found, dict.fromkeys(rows, 0.5), INJECT)
    verdicts = [verdict for _, verdict in verdicts_of(found, INJECT, 5, frozenset(), need=need)]
    assert verdicts.count("recalled") == recalled
    assert verdicts.count("no better than chance") == (among if not recalled and cosine else 0)


def test_rows_that_are_not_compared_token_by_token_need_less_evidence() -> None:
    rows = {str(number): candidate(str(number), lexical=0.0) for number in range(200)}
    found = ranked(rows, INJECT, similar=dict.fromkeys(rows, 0.0) | {"0": 0.65})
    compared = by_closeness(found, dict.fromkeys([*rows][:12], 0.5), INJECT)
    best = [verdicts_of(each, INJECT, 5, frozenset(), need=0.0)[0][1] for each in (found, compared)]
    assert best == ["recalled", "no better than chance"]


_AMOUNTS = st.floats(0, 1000, allow_nan=False)
_CANDIDATES = st.builds(
    candidate,
    days=st.floats(0, 4000),
    lexical=_AMOUNTS,
    importance=st.floats(0, 1),
    mention_count=st.integers(0, 1000),
    confirmed_count=st.integers(0, 10_000),
    type=st.sampled_from(["note", "exchange", "task", "preference"]),
)


@given(_CANDIDATES, st.sampled_from([SEARCH, INJECT]), st.floats(0.01, 100))
def test_a_better_match_outranks_a_worse_one_that_is_else_alike(row: Match, profile: ScoringProfile, by: float) -> None:
    rows = {"a": row, "b": replace(row, id="b", score=row.score + by)}
    assert [each.match.id for each in ranked(rows, profile)] == ["b", "a"]


@given(st.lists(_CANDIDATES, min_size=1, max_size=8), st.sampled_from(list(PROFILES.values())))
def test_a_score_lies_between_0_and_1_whatever_else_was_found(rows: list[Match], profile: ScoringProfile) -> None:
    named = {f"{number}": replace(row, id=f"{number}") for number, row in enumerate(rows)}
    together = {each.match.id: each.score for each in ranked(named, profile)}
    assert together == {name: score(row, profile) for name, row in named.items()}
    assert all(0 <= each <= 1 for each in together.values())


def test_a_session_alone_is_no_evidence() -> None:
    [found] = ranked({"a": candidate(lexical=0.0, session_id="s")}, INJECT, sessions={"s": 1000})
    assert found.evidence == 0
    assert [verdict for _, verdict in verdicts_of([found], INJECT, 5, frozenset())] == ["much weaker than the best"]
