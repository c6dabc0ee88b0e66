"""Properties of scores for any numbers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.memory.recall import judged
from chatbot.memory.scoring import (
    HALF_MATCH,
    PROFILES,
    SESSION_SHARE,
    SPILL,
    LexicalScore,
    RowScore,
    ScoringProfile,
    credibility,
    raised,
    saturated,
    scored,
)
from chatbot.stores.query import Candidates, Match

NOW = datetime(2026, 3, 4, tzinfo=UTC)
SEARCH, INJECT = PROFILES["search"], PROFILES["inject"]


def candidate(name: str = "a", *, days: float = 0, lexical: float = 0.0, **given: Any) -> Match:
    at = NOW - timedelta(days=days)
    return Match(name, lexical, given.pop("type", "note"), given.pop("session", None), at, at, **given)


def ranked(
    *candidates: Match,
    profile: ScoringProfile = SEARCH,
    neighbours: Mapping[str, Mapping[str, int]] | None = None,
    sessions: Mapping[str, float] | None = None,
) -> list[RowScore]:
    rows = {each.id: each for each in candidates}
    return scored(Candidates(rows, neighbours or {}, sessions or {}), profile, NOW)


def test_the_weights_of_each_profile_are_shares_of_one() -> None:
    for profile in PROFILES.values():
        weights = [getattr(profile, name) for name in ("match", "recency", "mention", "importance", "credibility")]
        assert all(0 <= weight <= 1 for weight in weights)
        assert sum(weights) == pytest.approx(1)


_AMOUNTS = st.floats(0, 1000, allow_nan=False)
_CANDIDATES = st.builds(
    candidate,
    days=st.floats(0, 4000),
    lexical=_AMOUNTS,
    importance=st.floats(0, 1),
    mention_count=st.integers(0, 1000),
    use_count=st.integers(0, 1000),
    type=st.sampled_from(["note", "exchange", "task", "preference"]),
)


@given(_CANDIDATES, st.sampled_from([SEARCH, INJECT]), st.floats(0.01, 100))
def test_a_better_match_outranks_a_worse_one_that_is_else_the_same(
    row: Match, profile: ScoringProfile, by: float
) -> None:
    better = row._replace(id="b", score=row.score + by)
    assert [each.match.id for each in ranked(row, better, profile=profile)] == ["b", row.id]


@given(_CANDIDATES, st.sampled_from(list(PROFILES.values())))
def test_a_score_lies_between_0_and_1(row: Match, profile: ScoringProfile) -> None:
    [found] = ranked(row, profile=profile)
    assert 0 <= found.score <= 1


@given(st.lists(_CANDIDATES, min_size=1, max_size=8), st.sampled_from(list(PROFILES.values())))
def test_a_score_does_not_depend_on_what_else_was_found(rows: list[Match], profile: ScoringProfile) -> None:
    rows = [row._replace(id=f"{number}") for number, row in enumerate(rows)]
    together = {each.match.id: each.score for each in ranked(*rows, profile=profile)}
    assert together == {row.id: ranked(row, profile=profile)[0].score for row in rows}


@given(st.permutations([candidate(name, lexical=lexical) for name, lexical in zip("abcd", (2, 2, 1, 0), strict=True)]))
def test_the_order_does_not_depend_on_how_rows_came_in(rows: list[Match]) -> None:
    assert [each.match.id for each in ranked(*rows)] == ["b", "a", "c", "d"]


@given(_AMOUNTS, _AMOUNTS)
def test_matches_saturate_and_keep_their_order(one: float, other: float) -> None:
    assert 0 <= saturated(one) < 1
    assert saturated(0) == 0
    assert saturated(HALF_MATCH) == 0.5
    if one < other:
        assert saturated(one) <= saturated(other)


def test_use_makes_credible_and_never_beyond_1() -> None:
    worth = [credibility(candidate(use_count=count)) for count in (0, 1, 10, 10_000)]
    assert worth[0] == 0.5
    assert worth == sorted(worth)
    assert worth[-1] < 1


def test_a_row_gets_its_part_of_what_stands_beside_it_and_of_its_session() -> None:
    rows = {each.id: each for each in (candidate("a", lexical=4, session="s"), candidate("b", session="s"))}
    parts = raised(rows, {"a": {"b": 1, "gone": 2}, "b": {"a": -1}}, {"s": 3.0})
    assert parts["a"] == LexicalScore(4, 0, SESSION_SHARE * 3)
    assert parts["b"] == LexicalScore(0, SPILL[1] * 4, SESSION_SHARE * 3)


@given(st.floats(0.1, 100))
def test_what_spills_over_is_less_than_what_was_matched(lexical: float) -> None:
    match, near, far = candidate("a", lexical=lexical), candidate("b"), candidate("c")
    found = ranked(match, near, far, neighbours={"a": {"b": 1, "c": 2}})
    assert [each.match.id for each in found] == ["a", "b", "c"]


def test_a_session_alone_is_no_evidence() -> None:
    [found] = ranked(candidate(session="s"), profile=INJECT, sessions={"s": 1000})
    assert found.evidence == 0
    assert [verdict for _, verdict in judged([found], INJECT, 5, frozenset())] == ["below relative floor"]
