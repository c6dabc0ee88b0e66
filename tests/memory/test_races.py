"""Several processes at once: every entry exactly once and in order, every session listed, nobody waits for long."""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem
from chatbot.stores import MissingFolder, TranscriptEntry
from chatbot.stores.files import locked
from tests.patience import PATIENCE_S

STORES = ["basic_session"]
NIGHT = pytest.mark.nightly
WORKER = """
import asyncio, sys, time
from chatbot.memory import MemorySystem

async def main(home, session_id, worker, count):
    longest = 0.0
    async with MemorySystem(home, settings={"basic_session": {"transcript_cap": 100, "kv_cap": 10_000}}) as memory:
        print("ready", flush=True)
        sys.stdin.readline()
        session = await memory.load_session(session_id, "chat")
        for number in range(int(count)):
            started = time.perf_counter()
            await session.transcript_append("user", f"{worker}.{number}")
            longest = max(longest, time.perf_counter() - started)
            if number % 5 == 0:
                await session.kv_set(f"{worker}.{number}", "x")
    print(longest)

asyncio.run(main(*sys.argv[1:]))
"""


def _race(home: Path, session_id: str, workers: int, count: int) -> list[float]:
    """Start the workers, let them all begin at the same moment, and return the longest wait of each."""
    command = [sys.executable, "-c", WORKER, str(home), session_id]
    running = [
        subprocess.Popen([*command, str(each), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for each in range(workers)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        reports = []
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in running:
            reports.append(float(process.communicate(timeout=PATIENCE_S)[0]))
            assert process.returncode == 0
        return reports
    finally:
        for process in running:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("workers", "count"), [(4, 25), pytest.param(8, 100, marks=NIGHT), pytest.param(16, 200, marks=NIGHT)]
)
async def test_entries_of_many_processes_are_all_there_once_and_in_order(
    memory_home: Path, workers: int, count: int
) -> None:
    async with MemorySystem(memory_home, settings={"basic_session": {"kv_cap": 10_000}}) as memory:
        session = await memory.create_session(STORES, "chat")
        longest = max(_race(memory_home, session.id, workers, count))
        said = [entry.content for entry in await session.transcript_read_all()]
        keys = {entry.key for entry in await session.kv_entries()}
    assert keys == {f"{worker}.{n}" for worker in range(workers) for n in range(0, count, 5)}
    for worker in range(workers):
        assert [text for text in said if text.startswith(f"{worker}.")] == [f"{worker}.{n}" for n in range(count)]
    assert len(said) == workers * count
    print(f"{workers} processes, {count} appends each: the longest wait was {longest:.3f} s")  # noqa: T201 - see -rP
    assert longest < PATIENCE_S / 4  # nobody starves; where nothing else runs it is far below


async def test_an_append_that_meets_a_deletion_is_either_deleted_too_or_refused(memory_home: Path) -> None:
    outcomes: Counter[str] = Counter()
    async with MemorySystem(memory_home) as ours, MemorySystem(memory_home) as theirs:
        for _ in range(24):
            session = await ours.create_session(STORES, "chat")
            folder = memory_home / "sessions" / session.id
            with locked(folder):  # until both wait for this lock, or for the one who does
                deleting = asyncio.create_task(theirs.delete_session(session.id))
                appending = [asyncio.create_task(session.transcript_append("user", "hi")) for _ in range(2)]
                appending.append(asyncio.create_task(session.kv_set("key", "value")))  # type: ignore[arg-type]
                await asyncio.wait([deleting, *appending], timeout=0.002)
                assert not deleting.done()
            for answer in await asyncio.gather(*appending, return_exceptions=True):
                outcomes["refused" if isinstance(answer, MissingFolder) else "kept until then"] += 1
                assert isinstance(answer, MissingFolder | TranscriptEntry | None), answer
            await deleting
            assert not folder.exists()
            assert list((memory_home / ".trash").iterdir()) == []
        assert await ours.list_sessions() == []
    assert set(outcomes) == {"refused", "kept until then"}


async def test_a_session_deleted_in_many_places_at_once_is_deleted_once(memory_home: Path) -> None:
    async with MemorySystem(memory_home) as ours, MemorySystem(memory_home) as theirs:
        for _ in range(12):
            session = await ours.create_session(STORES, "chat")
            await session.transcript_append("user", "hi")
            deleting = [memory.delete_session(session.id) for memory in (ours, theirs, ours)]
            answers = await asyncio.gather(*deleting, return_exceptions=True)
            assert sorted(type(answer).__name__ for answer in answers) == ["Erasure", *["SessionNotFound"] * 2]
            assert list((memory_home / ".trash").iterdir()) == []


async def test_sweeping_strays_disturbs_nobody_who_makes_or_deletes_sessions(memory_home: Path) -> None:
    async def make_and_delete(memory: MemorySystem) -> None:
        for _ in range(8):
            session = await memory.create_session(STORES, "chat")
            await session.transcript_append("user", "hi")
            await memory.delete_session(session.id)

    async def open_and_sweep() -> None:
        for _ in range(8):
            async with MemorySystem(memory_home) as memory:
                await memory.delete_session((await memory.create_session(STORES, "chat")).id)

    async with MemorySystem(memory_home) as memory, asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(make_and_delete(memory))
            group.create_task(open_and_sweep())
    async with MemorySystem(memory_home) as memory:
        assert await memory.list_sessions() == []
