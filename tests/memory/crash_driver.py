"""Kills processes for a living, and cuts the power.

    crash_driver.py kill SCENARIO ROUNDS FOLDER            SIGKILL at a random moment
    crash_driver.py cut SCENARIO ROUNDS FOLDER IMAGE       FOLDER is the mounted ext4 IMAGE; what it holds at a random
                                                           moment is what would be left if the power failed

Children work without end and report what was acknowledged. All of that must be there, once and in order, every file
must open, and the index must agree with the folders. Prints how many operations were acknowledged.
"""

import asyncio
import copy
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

# What is imported when it is first needed is imported here, or each child would spend its short life on it.
import filelock  # noqa: F401
import Stemmer  # noqa: F401
import uuid6  # noqa: F401
import whoosh.codec.whoosh3
import whoosh.fields
import whoosh.formats
import whoosh.index
import whoosh.reading  # noqa: F401

from chatbot.memory import MemorySystem
from chatbot.memory.scope import Caller, Environment, Scope
from chatbot.stores import KeyValue, SessionRef, TranscriptEntry
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.basic_session import BasicSessionStore
from chatbot.stores.observation import STATUSES, Observation, Triple
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.query import Filter
from chatbot.stores.row_events import Event
from chatbot.stores.transcript import TranscriptFile

Ack = Callable[[str], None]
CUTS_A_FOLDER = 12
STORES = ["basic_session"]
A_LOT = 4
STEP = 1.5
MOST = 8


class Scenario:
    """Work of child processes in a folder, and the state required after they died."""

    workers: ClassVar[int] = 1
    rounds_a_folder: ClassVar[int] = 40
    life_s: ClassVar[float] = 0.015
    """The longest that a child lives at first; `Lifetime` learns what fits the machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def work(self, worker: int, ack: Ack) -> None:
        """Go on until killed; `ack` each operation that returned."""
        raise NotImplementedError

    def verify(self, acked: list[str]) -> None:
        """Check the folder, given all that was acknowledged since the last check."""
        raise NotImplementedError

    def at(self, folder: Path) -> "Scenario":
        """The same expectations of a copy of the folder."""
        twin = copy.deepcopy(self)
        twin.folder = folder
        return twin

    @property
    def session(self) -> SessionRef:
        """The session of scenarios that need but one."""
        return SessionRef("s", self.folder)


class Appending(Scenario):
    """Appends numbered entries."""

    cap: ClassVar[int] = 100_000

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept: defaultdict[int, int] = defaultdict(int)

    async def work(self, worker: int, ack: Ack) -> None:
        store = BasicSessionStore(self.folder, transcript_cap=self.cap)
        for number in count(self.kept[worker]):
            await store.transcript_append(self.session, [_entry(self.text(f"{worker}.{number}"))])
            ack(f"{worker}.{number}")

    def text(self, name: str) -> str:
        """Content of the entry of that name, which stands in its first line."""
        return name

    def entries(self) -> list[TranscriptEntry]:
        """Read what is there."""
        return TranscriptFile(self.folder, self.cap).read_all()

    def verify(self, acked: list[str]) -> None:
        for worker, number in (map(int, each.split(".")) for each in acked):
            self.kept[worker] = number + 1
        said = defaultdict(list)
        for entry in self.entries():
            name = entry.content.partition("\n")[0]
            assert entry.content == self.text(name), f"{name} is not whole"
            worker, number = map(int, name.split("."))
            said[worker].append(number)
        for worker in self.kept.keys() | said.keys():
            assert said[worker] == list(range(len(said[worker]))), (worker, said[worker])
            assert len(said[worker]) >= self.kept[worker], (worker, self.kept, said[worker])
            self.kept[worker] = len(said[worker])


class Compacting(Appending):
    """The same with so small a cap that nearly every append compacts."""

    cap = 5


class Long(Appending):
    """The same with entries of 4 KiB to 1 MiB: each is there whole or not at all."""

    rounds_a_folder = 5  # forty lives may write more than is read at once
    life_s = 0.02

    def text(self, name: str) -> str:
        size = int(2 ** random.Random(name).uniform(12, 20))
        return name + ("\n\nbyte by" * (size // 9))[: size - len(name)]


class Sharing(Appending):
    """Three processes append to one session and compact it."""

    cap = 12
    workers = 3
    life_s = 0.03


class Setting(Scenario):
    """Sets three keys to ever higher numbers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.least = dict.fromkeys("abc", -1)
        self.next = 0

    async def work(self, worker: int, ack: Ack) -> None:
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


class Creating(Scenario):
    """Creates sessions, names them and writes into them."""

    life_s = 0.03

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.made: set[str] = set()
        self.named: set[str] = set()
        self.said: set[str] = set()

    async def work(self, worker: int, ack: Ack) -> None:
        async with MemorySystem(self.folder) as memory:
            while True:
                session = await memory.create_session(STORES, "chat")
                ack(f"made {session.id}")
                await session.rename(f"title of {session.id}")
                ack(f"named {session.id}")
                await session.transcript_append("user", "hi")
                ack(f"said {session.id}")

    def verify(self, acked: list[str]) -> None:
        for what, session_id in (each.split() for each in acked):
            {"made": self.made, "named": self.named, "said": self.said}[what].add(session_id)
        titles = _agreed(self.folder)
        assert self.made <= titles.keys(), self.made - titles.keys()
        for session_id in self.named:
            assert titles[session_id] == f"title of {session_id}", session_id
        for session_id in self.said:
            assert _said(self.folder, session_id, 500) == ["hi"]


class Forking(Creating):
    """Forks one session over and over."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.source = asyncio.run(_source(folder))

    async def work(self, worker: int, ack: Ack) -> None:
        async with MemorySystem(self.folder, settings={"basic_session": {"transcript_cap": 20}}) as memory:
            while True:
                ack(f"made {(await memory.fork_session(self.source)).id}")

    def verify(self, acked: list[str]) -> None:
        super().verify(acked)
        for session_id in _agreed(self.folder):
            assert _said(self.folder, session_id, 20) == [str(number) for number in range(50)]


class Remembering(Scenario):
    """Two processes add rows, each by itself; now and then one says again what was said before."""

    workers = 2
    life_s = 0.06

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept: set[int] = set()
        self.next = 0

    async def work(self, worker: int, ack: Ack) -> None:
        async with self.open() as store:
            for number in count(self.next + worker, self.workers):
                [outcome] = await store.commit(OWNER, [_adding(number)])
                assert outcome.kind == "added"
                ack(str(number))

    def verify(self, acked: list[str]) -> None:
        self.kept.update(map(int, acked))
        rows = asyncio.run(self.rows())
        found = {int(row.id[-12:], 16) for row in rows}
        assert self.kept <= found, sorted(self.kept - found)
        assert all(row == _adding(number).row for row in rows for number in [int(row.id[-12:], 16)])
        self.next = max([self.next, *found]) + 1

    def open(self) -> ObservationFileStore:
        """The store, its caches beside the memory."""
        return ObservationFileStore(self.folder / "memory", cache=str(self.folder / "cache"))

    async def rows(self) -> list[Observation]:
        """All rows there are, as a process sees them that has just begun, and that can write."""
        async with self.open() as store:
            rows = await Scope(store, Caller(), Environment()).rows(Filter(), view=OWNER)
            torn = (self.folder / "memory" / "observations.jsonl").exists() and not _ends_whole(self.folder)
            with _told() as told:
                fact = Triple(id=str(uuid4()), subject="s", predicate="p", object="o", created_at=NOW)
                [outcome] = await store.commit(OWNER, [Event(kind="triple", at=NOW, triple=fact)])
            assert outcome.kind == "added"
            assert any("torn" in each or "cut" in each for each in told) == torn, told
            assert _ends_whole(self.folder)
            return rows


class Purging(Remembering):
    """Rows are erased soon after they were written; what is gone is in no file."""

    life_s = 0.08

    async def work(self, worker: int, ack: Ack) -> None:
        async with self.open() as store:
            for number in count(self.next + worker, self.workers):
                await store.commit(OWNER, [_adding(number, f"secret{number}end")])
                await store.reindex()
                await store.purge(OWNER, [_adding(number).ids[0]])
                ack(f"secret{number}end")
                await store.commit(OWNER, [_adding(number + 1_000_000)])
                ack(str(number + 1_000_000))

    def verify(self, acked: list[str]) -> None:
        files = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        for word in acked:
            if word.startswith("secret"):
                left = [f"{path} holds {word}" for path, data in files.items() if word.encode() in data]
                assert not left, left
            else:
                self.kept.add(int(word))
        found = {int(row.id[-12:], 16) for row in asyncio.run(self.rows())}
        assert self.kept <= found, sorted(self.kept - found)
        self.next = max([self.next, *(number % 1_000_000 for number in found)]) + 2


class Erasing(Scenario):
    """Conversations are deleted with what is remembered of them; one that was interrupted can be deleted again."""

    life_s = 0.2

    async def work(self, worker: int, ack: Ack) -> None:
        async with self.open() as memory:
            for number in count():
                word = f"canary{os.getpid()}x{worker}x{number}end"
                session = await memory.create_session((*STORES, "observations"), "chat", title=word)
                await session.transcript_append("user", word)
                said = await session.memory.remember(word, type="exchange")
                await session.memory.remember(f"{word} too", derived_from=[said.id])
                await session.memory.store_fact(word, "is", "said")
                await memory.delete_session(session.id)
                ack(word)

    def verify(self, acked: list[str]) -> None:
        assert not self.left(acked)
        _agreed(self.folder / "memory")
        asyncio.run(self.finish())
        assert not self.left(["canary"])

    def left(self, words: list[str]) -> list[str]:
        """The files that hold any of the words, but for sessions that never came into being."""
        files = (path for path in self.folder.rglob("*") if path.is_file() and ".drafts" not in path.parts)
        return [f"{path}: {word}" for path in files for data in [path.read_bytes()]
                for word in words if word.encode() in data]  # fmt: skip

    async def finish(self) -> None:
        """Delete again what was interrupted; nothing is remembered of what is gone."""
        async with self.open() as memory:
            for record in await memory.list_sessions():
                await memory.delete_session(record.id)
            last = await memory.create_session(STORES, "chat")
            await memory.delete_session(last.id)  # empties the trash
            memories = memory.memory().within(across=True)
            assert await memories.every(sensitivities=SENSITIVITIES, statuses=STATUSES) == []
            assert await memories.query_facts(sensitivities=SENSITIVITIES) == []

    def open(self) -> MemorySystem:
        """The memory, whose caches are below the folder too."""
        return MemorySystem(self.folder / "memory", settings={"observations": {"cache": str(self.folder / "cache")}})


def _agreed(folder: Path) -> dict[str, str]:
    """Check that the index and the folders agree, and that each session opens; returns the titles."""
    titles = asyncio.run(_titles(folder))
    sessions = folder / "sessions"
    assert titles.keys() == ({path.name for path in sessions.iterdir()} if sessions.is_dir() else set())
    return titles


async def _titles(folder: Path) -> dict[str, str]:
    async with MemorySystem(folder) as memory:
        records = await memory.list_sessions()
        for record in records:
            session = await memory.load_session(record.id, "chat")
            assert session.record.title == record.title
            await session.transcript_read_all()
        return {record.id: record.title for record in records}


async def _source(folder: Path) -> str:
    async with MemorySystem(folder, settings={"basic_session": {"transcript_cap": 20}}) as memory:
        session = await memory.create_session(STORES, "chat")
        await session.transcript_extend([_entry(str(number)) for number in range(50)])
        return session.id


def _said(folder: Path, session_id: str, cap: int) -> list[str]:
    return [entry.content for entry in TranscriptFile(folder / "sessions" / session_id, cap).read_all()]


def _entry(content: str) -> TranscriptEntry:
    return TranscriptEntry("user", content, datetime.now(UTC))


class Child:
    """A forked process that works for a scenario until it is killed."""

    def __init__(self, scenario: Scenario, worker: int, rest_s: float = 0) -> None:
        reader, writer = os.pipe()
        self._rest = b""
        self.lives = True
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(reader)
                os.write(writer, b"ready\n")
                asyncio.run(scenario.work(worker, lambda done: _tell(writer, done, rest_s)))
            except BaseException:  # noqa: BLE001 - told, and the process ends
                traceback.print_exc()  # only an error ends the work
            finally:
                os._exit(1)
        os.close(writer)
        self._reader = reader
        assert os.read(reader, 6) == b"ready\n"

    def acked(self) -> list[str]:
        """Return what it acknowledged since the last call; all of it, if it is stopped or dead."""
        os.set_blocking(self._reader, False)
        try:
            while part := os.read(self._reader, 1 << 16):
                self._rest += part
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode() for line in lines]

    def stop(self) -> None:
        """Halt it between two system calls."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        self.lives = os.WIFSTOPPED(status)
        assert self.lives, "it failed by itself"

    def go_on(self) -> None:
        """Let it work again."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> list[str]:
        """Kill it and return what it had acknowledged."""
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.lives = False
        assert os.WIFSIGNALED(status), "it failed by itself"
        told = self.acked()
        os.close(self._reader)
        return told


@contextmanager
def _children(scenario: Scenario, rest_s: float = 0) -> Iterator[list[Child]]:
    """All workers of a scenario; none outlives the block, not even where a check fails."""
    children = [Child(scenario, worker, rest_s) for worker in range(scenario.workers)]
    try:
        yield children
    finally:
        for child in children:
            if child.lives:
                child.kill()


OWNER = View("full", datetime(2026, 3, 4, tzinfo=UTC))
NOW = OWNER.now


def _adding(number: int, word: str = "") -> Event:
    observation_id = f"01900000-0000-7000-8000-{number:012x}"
    row = Observation(
        id=observation_id,
        created_at=NOW,
        updated_at=NOW,
        title=f"title {number}",
        narrative=f"{word} {'東京 ' * (number % 50)}",
        tags=(word,),
        sensitivity="public",
    )
    return Event(kind="add", at=NOW, ids=(observation_id,), row=row)


def _ends_whole(folder: Path) -> bool:
    data = (folder / "memory" / "observations.jsonl").read_bytes()
    return not data or data.endswith(b"\n")


@contextmanager
def _told() -> Iterator[list[str]]:
    """Records logged by `chatbot.stores.files`."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("chatbot.stores.files")
    logger.addHandler(handler)
    try:
        yield told
    finally:
        logger.removeHandler(handler)


def _tell(writer: int, done: str, rest_s: float) -> None:
    os.write(writer, f"{done}\n".encode())
    time.sleep(random.uniform(0, rest_s))


class Lifetime:
    """How long children live: as many die before they have done anything as after they did a lot, on any machine."""

    def __init__(self, scenario: type[Scenario], times: float = 1) -> None:
        self._longest_s = times * scenario.life_s
        self._a_lot = A_LOT * scenario.workers

    def live(self) -> None:
        """Wait for the moment of death, which is what is being tested."""
        time.sleep(random.uniform(0, self._longest_s))

    def learn(self, done: int) -> None:
        """Take into account how much the children of a round have done."""
        if not done:
            self._longest_s *= STEP
        elif done > self._a_lot:
            self._longest_s /= STEP


def kill(scenario: type[Scenario], rounds: int, root: Path) -> int:
    """Kill the children at random moments, round after round in one folder, and more on a busy machine."""
    acknowledged = number = 0
    lifetime = Lifetime(scenario)
    played = scenario(_fresh(root))
    while number < rounds or (acknowledged <= rounds // 8 and number < MOST * rounds):
        if number and number % scenario.rounds_a_folder == 0:
            played = scenario(_fresh(root))
        acked = []
        with _children(played) as children:
            for child in children:
                lifetime.live()
                acked += child.kill()
        lifetime.learn(len(acked))
        acknowledged += len(acked)
        played.verify(acked)
        number += 1
    return acknowledged


def cut(scenario: type[Scenario], rounds: int, root: Path, image: Path) -> int:
    """While children work on the mounted image, look again and again at what a power cut would leave of it."""
    acknowledged = 0
    lifetime = Lifetime(scenario, times=3)
    left, mounted = image.with_suffix(".left"), image.with_suffix(".mounted")
    mounted.mkdir()
    for first in range(0, rounds, CUTS_A_FOLDER):
        played = scenario(_fresh(root))
        os.sync()
        acked: list[str] = []
        # They rest between operations, for one that is halted in a sync is halted when that has done its work.
        with _children(played, rest_s=0.01) as children:
            looks, wanted = 0, min(rounds - first, CUTS_A_FOLDER)
            while looks < wanted or (len(acked) <= wanted // 8 and looks < MOST * wanted):  # a busy machine gets more
                looks += 1
                lifetime.live()
                before = len(acked)
                for child in children:
                    child.stop()
                    acked += child.acked()
                lifetime.learn(len(acked) - before)
                subprocess.run(["cp", "--sparse=always", image, left], check=True)
                for child in children:
                    child.go_on()
                subprocess.run(["mount", "-o", "loop", left, mounted], check=True)
                try:
                    played.at(mounted / "play").verify(acked)
                finally:
                    subprocess.run(["umount", mounted], check=True)
        acknowledged += len(acked)
    return acknowledged


def _fresh(root: Path) -> Path:
    folder = root / "play"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


SCENARIOS: dict[str, type[Scenario]] = {
    "append": Appending, "compact": Compacting, "long": Long, "share": Sharing, "kv": Setting, "create": Creating,
    "fork": Forking, "erase": Erasing, "remember": Remembering, "purge": Purging,
}  # fmt: skip


if __name__ == "__main__":
    how, what, rounds, *paths = sys.argv[1:]
    done = {"kill": kill, "cut": cut}[how](SCENARIOS[what], int(rounds), *map(Path, paths))  # type: ignore[operator]
    print(done)  # noqa: T201 - the answer
