"""Kills processes for a living: `python crash_driver.py SCENARIO ROUNDS FOLDER`.

Each round forks a child that works until it is killed with SIGKILL at a random moment and reports each operation that
was acknowledged, over a pipe. Then everything acknowledged must be there, once and in order, and every file must open.
Prints how many operations were acknowledged.
"""

import asyncio
import os
import random
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from chatbot.memory import MemorySystem
from stores import KeyValue, SessionRef, TranscriptEntry
from stores.basic_session import BasicSessionStore
from stores.transcript_file import TranscriptFile

Ack = Callable[[str], None]
ROUNDS_A_FOLDER = 40
STORES = ["basic_session"]


class Appending:
    """Appends numbered entries; with a small cap, most of them compact."""

    cap = 100_000
    life_s = 0.015

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = SessionRef("s", folder)
        self.kept = 0

    async def work(self, ack: Ack) -> None:
        store = BasicSessionStore(self.folder, transcript_cap=self.cap)
        for number in count(self.kept):
            await store.transcript_append(self.session, [_entry(number)])
            ack(str(number))

    def verify(self, acked: list[str]) -> None:
        said = [int(entry.content) for entry in TranscriptFile(self.folder, self.cap).read_all()]
        assert said == list(range(len(said))), said
        assert len(said) >= self.kept + len(acked), (len(said), self.kept, acked)
        self.kept = len(said)


class Compacting(Appending):
    cap = 5


class Setting:
    """Sets three keys to ever higher numbers."""

    life_s = 0.015

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = SessionRef("s", folder)
        self.least = dict.fromkeys("abc", -1)
        self.next = 0

    async def work(self, ack: Ack) -> None:
        store = BasicSessionStore(self.folder)
        for number in count(self.next):
            await store.kv_set(self.session, KeyValue("abc"[number % 3], str(number), datetime.now(UTC)))
            ack(str(number))

    def verify(self, acked: list[str]) -> None:
        for number in map(int, acked):
            self.least["abc"[number % 3]] = number
            self.next = number + 1
        store = BasicSessionStore(self.folder)
        found = {entry.key: int(entry.value) for entry in asyncio.run(store.kv_entries(self.session))}
        for key, least in self.least.items():
            assert found.get(key, -1) >= least, (found, self.least)
        self.next = max([self.next, *(value + 1 for value in found.values())])


class Creating:
    """Creates sessions and writes into them."""

    life_s = 0.03

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: set[str] = set()

    async def work(self, ack: Ack) -> None:
        async with MemorySystem(self.folder) as memory:
            while True:
                session = await memory.create_session(STORES, "chat")
                ack(session.id)
                await session.transcript_append("user", "hi")

    def verify(self, acked: list[str]) -> None:
        self.made |= set(acked)
        listed = asyncio.run(_listed(self.folder))
        sessions = self.folder / "sessions"
        assert listed == ({path.name for path in sessions.iterdir()} if sessions.is_dir() else set())
        assert self.made <= listed, self.made - listed


class Forking(Creating):
    """Forks one session over and over."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.source = asyncio.run(_source(folder))

    async def work(self, ack: Ack) -> None:
        async with MemorySystem(self.folder, settings={"basic_session": {"transcript_cap": 20}}) as memory:
            while True:
                ack((await memory.fork_session(self.source)).id)

    def verify(self, acked: list[str]) -> None:
        super().verify(acked)
        for session_id in asyncio.run(_listed(self.folder)):
            said = TranscriptFile(self.folder / "sessions" / session_id, 20).read_all()
            assert [entry.content for entry in said] == [str(number) for number in range(50)]


class Deleting(Creating):
    """Creates and deletes sessions; what is acknowledged as deleted is gone."""

    async def work(self, ack: Ack) -> None:
        async with MemorySystem(self.folder) as memory:
            while True:
                session = await memory.create_session(STORES, "chat")
                await session.transcript_append("user", "hi")
                await memory.delete_session(session.id)
                ack(session.id)

    def verify(self, acked: list[str]) -> None:
        super().verify([])
        assert not set(acked) & asyncio.run(_listed(self.folder))


async def _listed(folder: Path) -> set[str]:
    async with MemorySystem(folder) as memory:
        records = await memory.list_sessions()
        for record in records:
            await (await memory.load_session(record.id, "chat")).transcript_read_all()
        return {record.id for record in records}


async def _source(folder: Path) -> str:
    async with MemorySystem(folder, settings={"basic_session": {"transcript_cap": 20}}) as memory:
        session = await memory.create_session(STORES, "chat")
        await session.transcript_extend([_entry(number) for number in range(50)])
        return session.id


def _entry(number: int) -> TranscriptEntry:
    return TranscriptEntry("user", str(number), datetime.now(UTC))


def kill_one(work: Callable[[Ack], Coroutine[Any, Any, None]], life_s: float) -> list[str]:
    """Run `work` in a child, kill it, and return what it acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.write(writer, b"ready\n")
        asyncio.run(work(lambda done: _tell(writer, done)))
    os.close(writer)
    select.select([reader], [], [], 10)
    time.sleep(random.uniform(0, life_s))  # the moment of death is what is being tested
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        return told.read().split("\n")[1:-1]


def _tell(writer: int, done: str) -> None:
    os.write(writer, f"{done}\n".encode())


SCENARIOS: dict[str, type[Any]] = {
    "append": Appending,
    "compact": Compacting,
    "kv": Setting,
    "create": Creating,
    "fork": Forking,
    "delete": Deleting,
}


def main(scenario: str, rounds: int, root: Path) -> int:
    acknowledged = 0
    played: Any = None
    for number in range(rounds):
        if number % ROUNDS_A_FOLDER == 0:
            shutil.rmtree(root / "play", ignore_errors=True)
            (root / "play").mkdir(parents=True)
            played = SCENARIOS[scenario](root / "play")
        acked = kill_one(played.work, played.life_s)
        acknowledged += len(acked)
        played.verify(acked)
    return acknowledged


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))  # noqa: T201 - the answer
