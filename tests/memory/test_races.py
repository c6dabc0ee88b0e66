"""Several processes at once: every entry exactly once and in order, every session listed, nobody waits for long."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem

STORES = ["basic_session"]
WORKER = """
import asyncio, json, sys, time
from chatbot.memory import MemorySystem

async def main(kind, home, session_id, worker, count):
    longest = 0.0
    made = []
    async with MemorySystem(home, settings={"basic_session": {"transcript_cap": 100, "kv_cap": 10_000}}) as memory:
        print("ready", flush=True)
        sys.stdin.readline()
        session = await memory.load_session(session_id, "chat")
        for number in range(int(count)):
            started = time.perf_counter()
            if kind == "append":
                await session.transcript_append("user", f"{worker}.{number}")
            elif kind == "kv":
                await session.kv_set(f"{worker}.{number}", "x")
            else:
                made.append((await memory.create_session(["basic_session"], "chat")).id)
            longest = max(longest, time.perf_counter() - started)
    print(json.dumps({"longest": longest, "made": made}))

asyncio.run(main(*sys.argv[1:]))
"""


def _race(kind: str, home: Path, session_id: str, workers: int, count: int) -> list[dict[str, object]]:
    """Start the workers, let them all begin at the same moment, and return what they report."""
    commands = [
        [sys.executable, "-c", WORKER, kind, str(home), session_id, str(worker), str(count)]
        for worker in range(workers)
    ]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in commands
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
            reports.append(json.loads(process.communicate(timeout=100)[0]))
            assert process.returncode == 0
        return reports
    finally:
        for process in running:
            process.kill()
            process.communicate()


async def _session(home: Path) -> str:
    async with MemorySystem(home) as memory:
        return (await memory.create_session(STORES, "chat")).id


@pytest.mark.parametrize(("workers", "count"), [(8, 100), (16, 50)])
async def test_entries_of_many_processes_are_all_there_once_and_in_order(
    memory_home: Path, workers: int, count: int
) -> None:
    session_id = await _session(memory_home)
    reports = _race("append", memory_home, session_id, workers, count)
    async with MemorySystem(memory_home) as memory:
        said = [entry.content for entry in await (await memory.load_session(session_id, "chat")).transcript_read_all()]
    for worker in range(workers):
        assert [text for text in said if text.startswith(f"{worker}.")] == [f"{worker}.{n}" for n in range(count)]
    assert len(said) == workers * count
    assert all(float(str(report["longest"])) < 5 for report in reports)


async def test_keys_set_by_many_processes_are_all_there(memory_home: Path) -> None:
    session_id = await _session(memory_home)
    _race("kv", memory_home, session_id, 8, 20)
    async with MemorySystem(memory_home) as memory:
        entries = await (await memory.load_session(session_id, "chat")).kv_entries()
    assert {entry.key for entry in entries} == {f"{worker}.{n}" for worker in range(8) for n in range(20)}


async def test_sessions_made_by_many_processes_are_each_listed_once(memory_home: Path) -> None:
    session_id = await _session(memory_home)
    reports = _race("create", memory_home, session_id, 8, 25)
    made = [each for report in reports for each in report["made"]]  # type: ignore[attr-defined]
    async with MemorySystem(memory_home) as memory:
        listed = Counter(record.id for record in await memory.list_sessions())
    assert listed == Counter([session_id, *made])
    assert len(made) == 200
