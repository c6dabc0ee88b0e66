"""`kill -9` at random moments, thousands of times: nothing acknowledged is lost, everything still opens.

`CRASH_ROUNDS` in the environment multiplies the rounds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("crash_driver.py")
ROUNDS = {"append": 600, "compact": 700, "kv": 400, "create": 200, "fork": 100, "delete": 100}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", ROUNDS)
def test_a_killed_process_loses_nothing_that_was_acknowledged(scenario: str, tmp_path: Path) -> None:
    rounds = ROUNDS[scenario] * int(os.environ.get("CRASH_ROUNDS", "1"))
    command = [sys.executable, str(DRIVER), scenario, str(rounds), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > rounds // 4  # or the children never got to work
