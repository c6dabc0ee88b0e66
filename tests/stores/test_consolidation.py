"""Strength is bounded, depends on elapsed time alone, and a run that finds nothing new changes nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.stores.observation import FLOOR, TYPES, Observation
from tests.stores.reference import consolidated, touches

NOW = datetime(2026, 3, 4, tzinfo=UTC)
_ROWS = st.builds(
    Observation,
    id=st.just("01900000-0000-7000-8000-000000000001"),
    created_at=st.just(NOW),
    updated_at=st.just(NOW),
    title=st.just("x"),
    type=st.sampled_from(TYPES),
    importance=st.floats(0, 1),
    use_count=st.integers(0, 1_000_000),
    mention_count=st.integers(0, 50),
)
_DAYS = st.floats(0, 4_000)
_RATES = st.sampled_from([0.0, 0.01, 0.05, 1.0, 999_999.0])


def _after(row: Observation, days: float, rate: float = 0.05) -> Observation:
    at = NOW + timedelta(days=days)
    strength = consolidated(row, at, rate)
    if strength is None:
        return row
    return replace(row, strength=strength, consolidated_at=at, consolidated_touches=touches(row))


@given(row=_ROWS, days=_DAYS, rate=_RATES)
def test_strength_stays_between_its_floor_and_one(row: Observation, days: float, rate: float) -> None:
    assert FLOOR * row.importance - 0.0001 <= _after(row, days, rate).standing <= 1


@given(row=_ROWS, days=_DAYS, stops=st.lists(st.floats(0, 1), max_size=8))
def test_many_runs_take_away_what_one_would_have(row: Observation, days: float, stops: list[float]) -> None:
    row = replace(row, use_count=0, mention_count=0)
    once = _after(row, days)
    often = row
    for stop in sorted(stops):
        often = _after(often, days * stop)
    often = _after(often, days)
    assert often.standing == pytest.approx(once.standing, abs=0.0602)  # what waits until it is worth writing


@given(row=_ROWS, days=st.floats(1, 4_000))
def test_what_lasts_fades_at_half_the_rate(row: Observation, days: float) -> None:
    row = replace(row, use_count=0, mention_count=0, importance=1.0, type="note")
    faded, lasting = (1 - _after(replace(row, type=each), days).standing for each in ("note", "decision"))
    assert lasting <= faded
    if faded and lasting and faded < 1 - FLOOR:
        assert lasting == pytest.approx(faded / 2, abs=0.0002)


@given(row=_ROWS, more=st.integers(1, 100), days=_DAYS)
def test_more_use_never_makes_weaker(row: Observation, more: int, days: float) -> None:
    used = replace(row, use_count=row.use_count + more)
    assert _after(used, days).standing >= _after(row, days).standing - 0.0001
