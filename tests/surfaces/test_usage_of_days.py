"""The cost of the last days, as the terminal shows it."""

import re
from pathlib import Path

import pytest

from tests.command import from_json, ok, run


@pytest.fixture
def _spent() -> None:
    Path("config.toml").write_text('[model]\nname = "scripted"\n', encoding="utf-8")
    ok("ask", "I like big red trains from Norway and from Sweden")
    ok("ask", "Which trains do I like, from Norway?")


@pytest.mark.usefixtures("_spent")
def test_the_days_are_counted_and_summed_up() -> None:
    assert re.search(r"tokens in 30 days: [\d,]+, most on", ok("usage"))
    spent = from_json("usage", "--days", "2")
    assert (len(spent["days"]), spent["days"][-1]["calls"], spent["calls"]) == (2, 2, 2)
    assert run("usage", "--days", "0").returncode == 2
