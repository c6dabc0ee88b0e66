"""`kill -9` in the middle of writing, compacting, erasing and saving: nothing acknowledged is lost or comes back.

All rounds are played at night, a share of them else (see `tests.effort`); `CRASH_ROUNDS` in the environment multiplies
them. The scenarios are those of `tests/memory/crash_driver.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import by_day, rounds
from tests.patience import PATIENCE_S

DRIVER = Path(__file__).parents[1] / "memory" / "crash_driver.py"
TIMES = int(os.environ.get("CRASH_ROUNDS", "1"))
KILLS = {
    "remember": 40,
    "import": 15,
    "use": 25,
    "purge": 50,
    "snapshot": 40,
    "maintain": 40,
    "correct": 30,
}


@pytest.mark.timeout(300 * TIMES)
@pytest.mark.parametrize("scenario", by_day(KILLS, "remember", "purge"))
def test_a_killed_process_loses_no_memory_and_brings_none_back(scenario: str, tmp_path: Path) -> None:
    tries = rounds(KILLS[scenario], least=3) * TIMES
    command = [sys.executable, str(DRIVER), "kill", scenario, str(tries), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * TIMES, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > tries // 8  # or the children never got to work
