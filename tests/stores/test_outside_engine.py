"""The contract kit runs from an outside package, on an engine that somebody else wrote."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import NIGHTLY
from tests.patience import PATIENCE_S

PROJECT = Path(__file__).parents[1] / "outside" / "sqlite_engine"
_SAMPLE = "Log and not kill and not processes or Shelf and not kill and not processes or Rounded and near or purged"
"""Tests of the kit that are run where not all are."""


@pytest.mark.nightly
@pytest.mark.timeout(4 * PATIENCE_S)
def test_an_engine_on_sqlite_passes_the_kit_from_a_project_of_its_own(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist"]
    command += [] if NIGHTLY else ["-k", _SAMPLE]
    done = subprocess.run(
        command,
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * PATIENCE_S,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
    )
    assert done.returncode == 0, done.stdout[-5_000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) > (500 if NIGHTLY else 20), done.stdout


def test_the_engine_is_small() -> None:
    for name in ("sqlite_engine.py", "sqlite_shelf.py"):
        assert len((PROJECT / name).read_text(encoding="utf-8").splitlines()) < 250
