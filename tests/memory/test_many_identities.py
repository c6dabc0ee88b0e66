"""Hundreds of open memories in a process that may have few files open at once."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

IDENTITIES = """
import asyncio, os, resource, sys
from pathlib import Path
from chatbot.memory import MemorySystem

resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))

async def main(home):
    memories = [MemorySystem(home / str(number)) for number in range(300)]
    sessions = []
    for number, memory in enumerate(memories):
        session = await memory.create_session(["basic_session", "observations"], "chat")
        await session.transcript_append("user", f"said {number}")
        await session.memory.remember(f"note {number}")
        sessions.append(session)
    for number, session in enumerate(sessions):
        await session.transcript_append("user", "again")
        assert len(await session.memory.search("note")) == 1
        if number % 10 == 0:
            await session.memory.remember(f"other note {number}")
            assert len(await session.memory.search("note")) == 2
    for session in sessions[:20]:
        assert [entry.content for entry in await session.transcript_read_all()][1:] == ["again"]
    most = len(os.listdir("/proc/self/fd"))
    for memory in memories:
        await memory.aclose()
    print(most, len(os.listdir("/proc/self/fd")))

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.fixture
def quick_disk() -> Iterator[Path]:
    """A folder in memory where there is one: hundreds of identities are made, and no test of the disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not tell which descriptors are open")
def test_three_hundred_identities_are_used_in_turn_with_one_descriptor_each(quick_disk: Path) -> None:
    command = [sys.executable, "-c", IDENTITIES, str(quick_disk / "homes")]
    environment = os.environ | {"XDG_CACHE_HOME": str(quick_disk / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    most, left = map(int, done.stdout.split())
    assert most < 330
    assert left < 20
