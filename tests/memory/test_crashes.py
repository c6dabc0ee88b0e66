"""`kill -9` at random moments, some 1,700 times, and power cuts: nothing acknowledged is lost, everything opens.

That many at night, a share of them else (see `tests.effort`); `CRASH_ROUNDS` in the environment multiplies them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effort import by_day, rounds

DRIVER = Path(__file__).with_name("crash_driver.py")
TIMES = int(os.environ.get("CRASH_ROUNDS", "1"))
KILLS = {
    "append": 400,
    "compact": 400,
    "long": 100,
    "share": 120,
    "kv": 300,
    "create": 150,
    "fork": 80,
    "erase": 25,
    "remember": 40,
    "import": 15,
    "purge": 50,
    "snapshot": 40,
}
CUTS = {
    "append": 12,
    "compact": 20,
    "share": 12,
    "kv": 12,
    "create": 12,
    "fork": 12,
    "erase": 12,
    "remember": 12,
    "purge": 12,
}


@pytest.mark.timeout(900 * TIMES)
@pytest.mark.parametrize("scenario", by_day(KILLS, "append", "long", "create", "erase", "remember", "purge"))
def test_a_killed_process_loses_nothing_that_was_acknowledged(scenario: str, tmp_path: Path) -> None:
    tries = rounds(KILLS[scenario], least=3) * TIMES
    assert _drive("kill", scenario, tries, tmp_path) > tries // 8  # or the children never got to work


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    """A disk image, mounted on the folder `disk` beside it. Nothing reaches it before someone asks for that."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount the disk whose power is cut")
    path, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    path.touch()
    os.truncate(path, 24 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", path], check=True)
        subprocess.run(["mount", "-o", "loop,commit=300", path, disk], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this system cannot mount a disk image: {error}")
    yield path
    subprocess.run(["umount", disk], check=True)


def test_a_power_cut_loses_what_was_not_synced_or_these_tests_could_not_fail(image: Path, tmp_path: Path) -> None:
    os.sync()
    (tmp_path / "disk" / "file").write_bytes(b"x" * 10_000)
    left, mounted = tmp_path / "left", tmp_path / "mounted"
    mounted.mkdir()
    subprocess.run(["cp", image, left], check=True)
    subprocess.run(["mount", "-o", "loop", left, mounted], check=True)
    survived = (mounted / "file").exists()
    subprocess.run(["umount", mounted], check=True)
    assert not survived


@pytest.mark.timeout(900 * TIMES)
@pytest.mark.parametrize("scenario", by_day(CUTS, "append", "remember", "purge"))
def test_a_power_cut_loses_nothing_that_was_acknowledged(scenario: str, tmp_path: Path, image: Path) -> None:
    tries = rounds(CUTS[scenario], least=3) * TIMES
    assert _drive("cut", scenario, tries, tmp_path / "disk", image) > tries // 8


def _drive(how: str, scenario: str, tries: int, *paths: Path) -> int:
    command = [sys.executable, str(DRIVER), how, scenario, str(tries), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)
