"""`kill -9` at random moments, some 1,700 times, power cuts, full disks: what is acknowledged stays, everything opens.

That many at night, a share of them else (see `tests.effort`); `CRASH_ROUNDS` in the environment multiplies them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem
from chatbot.stores.errors import StoreFailed
from tests.disk import fill
from tests.effort import by_day, rounds
from tests.patience import PATIENCE_S

DRIVER = Path(__file__).with_name("crash_driver.py")
STORES = ["basic_session"]
TIMES = int(os.environ.get("CRASH_ROUNDS", "1"))
KILLS = {
    "append": 400, "compact": 400, "long": 100, "share": 120, "kv": 300, "create": 150, "fork": 80, "erase": 25,
    "remember": 60, "purge": 80,
}  # fmt: skip
CUTS = {"compact": 20} | dict.fromkeys(["append", "share", "kv", "create", "fork", "erase", "remember", "purge"], 12)


@pytest.mark.timeout(900 * TIMES)
@pytest.mark.parametrize("scenario", by_day(KILLS, "append", "create", "remember", "purge"))
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
@pytest.mark.parametrize("scenario", by_day(CUTS, "remember", "purge"))
def test_a_power_cut_loses_nothing_that_was_acknowledged(scenario: str, tmp_path: Path, image: Path) -> None:
    tries = rounds(CUTS[scenario], least=3) * TIMES
    assert _drive("cut", scenario, tries, tmp_path / "disk", image) > tries // 8


def _drive(how: str, scenario: str, tries: int, *paths: Path) -> int:
    command = [sys.executable, str(DRIVER), how, scenario, str(tries), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


INDEX_REFUSED = """
import asyncio, logging, resource, sys
from pathlib import Path
from chatbot.memory import MemorySystem

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main(home):
    async with MemorySystem(home) as memory:
        sessions = [await memory.create_session(["basic_session"], "chat", title=f"number {n}") for n in range(8)]
        limit(2048)  # every file of a session stays below, the index does not
        await sessions[0].transcript_append("user", "hello")
        await sessions[0].rename("renamed")
        await memory.delete_session(sessions[1].id)
        made = await memory.create_session(["basic_session"], "chat", title="made")
        print(*[record.title for record in await memory.list_sessions()], sep=", ")
        limit(resource.RLIM_INFINITY)
        print(*[record.title for record in await memory.list_sessions()], sep=", ")

asyncio.run(main(Path(sys.argv[1])))
"""


def test_an_index_that_cannot_be_written_fails_nothing_and_hides_nothing(memory_home: Path) -> None:
    command = [sys.executable, "-c", INDEX_REFUSED, str(memory_home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    listed = "made, renamed, number 7, number 6, number 5, number 4, number 3, number 2"
    assert done.stdout.splitlines() == [listed, listed]
    assert "sessions.journal.jsonl could not be written" in done.stderr
    assert "File too large" in done.stderr


async def test_on_a_full_disk_everything_stays_readable_and_deleting_makes_room(small_disk: Path) -> None:
    home = small_disk / "memory"
    async with MemorySystem(home) as memory:
        talk, old = [await memory.create_session(STORES, "chat", title=title) for title in ("talk", "old")]
        for session in (talk, old):
            await session.transcript_append("user", "kept")
            await session.kv_set("key", "kept")
        fill(small_disk)
        for refused in (
            talk.transcript_append("user", "x" * 5_000),
            talk.kv_set("key", "x" * 5_000),
            talk.receipt_append({"text": "x" * 5_000}),
            memory.create_session(STORES, "chat"),
            talk.rename("renamed"),
            memory.fork_session(talk.id),
        ):
            with pytest.raises(StoreFailed, match="No space left"):
                await refused
        assert list((home / ".drafts").iterdir()) == []
        assert [entry.content for entry in await talk.transcript_read_all()] == ["kept"]
        assert await talk.kv_get("key") == "kept"
        assert {record.title for record in await memory.list_sessions()} == {"talk", "old"}
        await memory.delete_session(old.id)
        assert [record.title for record in await memory.list_sessions()] == ["talk"]
    (small_disk / "ballast").unlink()
    async with MemorySystem(home) as memory:
        talk = await memory.load_session(talk.id, "chat")
        await talk.transcript_append("user", "x" * 5_000)
        assert [len(entry.content) for entry in await talk.transcript_read_all()] == [4, 5_000]
        assert (await memory.create_session(STORES, "chat")).id > talk.id
        assert {record.title for record in await memory.list_sessions()} == {"talk", ""}
