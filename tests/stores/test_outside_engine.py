"""The contract kit runs from an outside package, on an engine that somebody else wrote."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

PROJECT = Path(__file__).parents[1] / "outside" / "sqlite_engine"


@pytest.mark.nightly
@pytest.mark.timeout(4 * PATIENCE_S)
def test_an_engine_on_sqlite_passes_the_kit_from_a_project_of_its_own(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist"]
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
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 200, done.stdout
