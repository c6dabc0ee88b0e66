"""`kill -9` in the middle of writing, compacting, erasing and saving: nothing acknowledged is lost or comes back.

`CRASH_ROUNDS` in the environment multiplies the rounds. The scenarios are those of `tests/memory/crash_driver.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parents[1] / "memory" / "crash_driver.py"
TIMES = int(os.environ.get("CRASH_ROUNDS", "1"))
KILLS = {
    "remember": 40,
    "import": 15,
    "use": 25,
    "purge": 50,
    "snapshot": 40,
    "maintain": 25,
    "correct": 30,
    "retire": 25,
}


@pytest.mark.timeout(120 * TIMES)
@pytest.mark.parametrize("scenario", KILLS)
def test_a_killed_process_loses_no_memory_and_brings_none_back(scenario: str, tmp_path: Path) -> None:
    rounds = KILLS[scenario] * TIMES
    command = [sys.executable, str(DRIVER), "kill", scenario, str(rounds), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=115 * TIMES, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > rounds // 4  # or the children never got to work
