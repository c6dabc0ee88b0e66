"""A year of a memory's life, small: see `benchmarks/year.py`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from year import Year, claims  # where Python finds it for scripts


@pytest.mark.nightly
async def test_after_a_year_what_matters_is_known_and_what_is_gone_is_explained(tmp_path: Path) -> None:
    year = Year(tmp_path, 80, 1, 100)
    result = await year.live()
    assert result["decisions"] == (8, 8)
    assert result["preferences"] == (6, 6)
    assert result["corrected"] == (5, 5)
    assert result["active"] <= 110
    assert result["unexplained"] == []
    assert result["statuses"] == result["counted"]
    assert all(year.counts[kind] for kind in ("consolidate", "archive", "delete", "compress", "erase"))
    (_, _, half, _), (_, _, whole, _) = year.growth[19], year.growth[39]
    assert whole < 1.75 * half  # twice as much if nothing went; how much goes depends on the day on which it runs
    told = {what: holds for what, _, holds in claims(year, result)}
    hard = [what for what in told if "grows" in what or "share" in what]
    assert all(holds for what, holds in told.items() if what not in hard), told
    assert len(hard) == 4  # which need more sessions, and a quiet machine
