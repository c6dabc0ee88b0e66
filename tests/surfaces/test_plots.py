"""Plots: as wide as asked for, and as large as their figures."""

from pathlib import Path

import pytest

from tests.command import from_json, ok, run


@pytest.fixture
def _spent() -> None:
    Path("config.toml").write_text('[model]\nname = "scripted"\n', encoding="utf-8")
    ok("ask", "I like big red trains from Norway and from Sweden")
    ok("ask", "Which trains do I like, from Norway?")
    ok("memory", "add", "We take the train", "--type", "decision")


@pytest.mark.usefixtures("_spent")
def test_the_days_are_counted_and_drawn_in_eighty_columns() -> None:
    days = from_json("memory", "stats", "--days", "7")
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
    assert from_json("usage", "--days", "2")["days"][-1]["calls"] == 2
    assert run("usage", "--days", "0").returncode == 2
