"""A year of a memory's life, small: see `benchmarks/year.py`."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest


def _benchmark() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "year.py"
    spec = importlib.util.spec_from_file_location("year", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(300)
async def test_after_a_year_what_matters_is_known_and_what_is_gone_is_explained(tmp_path: Path) -> None:
    year = _benchmark().Year(tmp_path, 200, 1, 300)
    result = await year.live()
    assert result["decisions"] == (8, 8)
    assert result["preferences"] == (6, 6)
    assert result["corrected"] == (5, 5)
    assert result["active"] <= 330
    assert result["unexplained"] == []
    assert all(year.counts[kind] for kind in ("consolidate", "archive", "delete", "compress", "erase"))
    (_, _, half, _), (_, _, whole, _) = year.growth[1], year.growth[3]
    assert whole < 2.5 * half  # it grows by what is said, and no faster
