"""Plots: as wide as asked for, and as large as their figures."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.cli.charts import bar, binned, sparks
from tests.command import ok, run

amounts = st.lists(st.integers(0, 10**9), min_size=1, max_size=50)


@given(amounts)
def test_bars_are_as_many_as_values_and_the_largest_is_full(values: list[int]) -> None:
    drawn = sparks(values)
    assert len(drawn) == len(values)
    assert all((bar == " ") == (value == 0) for value, bar in zip(values, drawn, strict=True))
    if max(values):
        assert drawn[values.index(max(values))] == "█"


@given(amounts, st.integers(1, 20))
def test_bins_keep_the_sum(values: list[int], most: int) -> None:
    assert sum(binned(values, most)) == sum(values)
    assert len(binned(values, most)) <= most


def test_a_bar_is_seen_and_never_too_long() -> None:
    assert [len(bar(share, 10)) for share in (0, 0.001, 0.5, 1, 7)] == [0, 1, 5, 10, 10]


@pytest.fixture
def _spent() -> None:
    Path("config.toml").write_text('[model]\nname = "scripted"\n', encoding="utf-8")
    ok("ask", "I like big red trains from Norway and from Sweden")
    ok("ask", "Which trains do I like, from Norway?")
    ok("memory", "add", "We take the train", "--type", "decision")


@pytest.mark.usefixtures("_spent")
def test_the_days_are_counted_and_drawn_in_eighty_columns() -> None:
    days = json.loads(ok("memory", "stats", "--json", "--days", "7"))
    assert len(days["days"]) == 7
    assert days["hit_rate"] == 0.5
    today = days["days"][-1]
    assert (today["turns"], today["injected"]) == (2, 1)
    assert today["remembered"]["decision"] == 1
    for command in (["memory", "stats"], ["usage"]):
        shown = ok(*command, COLUMNS="80")
        assert "█" in shown
        assert "\x1b" not in shown
        assert max(map(len, shown.splitlines())) <= 80
    assert json.loads(ok("usage", "--json", "--days", "2"))["days"][-1]["calls"] == 2
    assert run("usage", "--days", "0").returncode == 2
