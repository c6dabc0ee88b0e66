"""How these tests are run: what is left to the night."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]


@pytest.mark.nightly
def test_what_is_marked_nightly_runs_when_asked_for_and_the_header_says_so() -> None:
    arguments = ["-n0", "--collect-only", "-q", "-v", "tests/models/test_probes.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT,
        env=os.environ | {"CHATBOT_NIGHTLY": "1"},
    )  # fmt: skip
    assert "effort: nightly" in done.stdout
    assert "tests collected" in done.stdout
    assert "deselected" not in done.stdout
