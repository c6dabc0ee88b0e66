"""Plots: as wide as asked for, and as large as their figures."""

from pathlib import Path

import pytest

from tests.command import from_json, ok, run


@pytest.fixture
def _spent() -> None:
    Path("config.toml").write_text('[model]\nname = "scripted"\n', encoding="utf-8")
    ok("ask", "I like big red trains from Norway and from Sweden")
    ok("ask", "Which trains do I like, from Norway?")


@pytest.mark.usefixtures("_spent")
def test_the_days_are_counted_and_drawn_in_eighty_columns() -> None:
    shown = ok("usage", COLUMNS="80")
    assert "█" in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    spent = from_json("usage", "--days", "2")
    assert (len(spent["days"]), spent["days"][-1]["calls"], spent["calls"]) == (2, 2, 2)
    assert run("usage", "--days", "0").returncode == 2
