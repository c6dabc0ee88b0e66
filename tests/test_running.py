"""How these tests are run: what is left to the night, and what a failing test must not do to the others."""

import ast
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("effort", "header", "collected"),
    [("", "effort: usual", "(1 deselected)"), ("1", "effort: nightly", "1 test collected")],
)
def test_what_is_marked_nightly_runs_when_asked_for_and_the_header_says_so(
    effort: str, header: str, collected: str
) -> None:
    arguments = ["-n0", "--collect-only", "-q", "-v", "tests/hooks/test_local_extraction.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT,
        env=os.environ | {"CHATBOT_NIGHTLY": effort},
    )  # fmt: skip
    assert header in done.stdout
    assert collected in done.stdout


class Parses:
    """Garbage that parses when it is collected, as the report of a warning does."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        self._parse(30)

    def _parse(self, depth: int) -> None:
        if depth:
            self._parse(depth - 1)
        else:
            ast.parse("a.b")


def test_the_report_of_a_failed_test_is_made_though_garbage_is_collected_meanwhile() -> None:
    source, usual = Path(ast.__file__).read_text(encoding="utf-8"), gc.get_threshold()
    try:
        for often in range(5, 60, 6):
            for _ in range(20):
                Parses()
            gc.set_threshold(often, 1, 1)
            assert ast.parse(source).body
    finally:
        gc.set_threshold(*usual)
