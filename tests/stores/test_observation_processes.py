"""Several real processes on one memory: they answer like one, in every word and in every order."""

import asyncio
import os
import pickle
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from msgspec import structs

from chatbot.stores.observation import STATUSES, Observation
from chatbot.stores.query import FactFilter, Filter
from chatbot.stores.row_events import Event
from chatbot.stores.testing.observation_machine import NOW, OWNER, ObservationMachine, observation
from tests.effort import examples, rounds
from tests.patience import PATIENCE_S

WORKER = Path(__file__).with_name("observation_worker.py")
PROCESSES = 4


class Worker:
    """A process that keeps stores open."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", str(WORKER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, number: int, method: str, *args: object, **kwargs: object) -> None:
        """Ask, without waiting for the answer."""
        assert self._process.stdin is not None
        data = pickle.dumps((number, method, args, kwargs))
        self._process.stdin.write(len(data).to_bytes(8, "big") + data)
        self._process.stdin.flush()

    def receive(self) -> Any:
        """The next answer; raises what the store raised."""
        is_fine, answer = pickle.loads(self._read(int.from_bytes(self._read(8), "big")))
        if not is_fine:
            raise answer
        return answer

    def end(self) -> None:
        """Let it go; it has no work left."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(PATIENCE_S) == 0
        finally:
            self._process.kill()
            self._process.stdout.close()

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        parts = b""
        give_up = time.monotonic() + PATIENCE_S
        while len(parts) < size:
            left = give_up - time.monotonic()
            assert left > 0, "the process does not answer"
            if select.select([source], [], [], left)[0]:
                part = os.read(source, size - len(parts))
                assert part, "the process died"
                parts += part
        return parts


class RemoteStore:
    """A store that a worker keeps open; every method is called there."""

    keeps_files = True
    _numbers = count()

    def __init__(self, worker: Worker, home: Path, **caps: float) -> None:
        self.worker = worker
        self.number = next(self._numbers)
        worker.send(self.number, "open", str(home), **caps)
        worker.receive()

    def __getattr__(self, method: str) -> Any:
        async def call(*args: object, **kwargs: object) -> Any:
            self.worker.send(self.number, method, *args, **kwargs)
            return self.worker.receive()

        return call


WORKERS: list[Worker] = []


@pytest.fixture(autouse=True, scope="module")
def _workers() -> Iterator[None]:
    WORKERS.extend(Worker() for _ in range(PROCESSES))
    yield
    while WORKERS:
        WORKERS.pop().end()


class ProcessMachine(ObservationMachine):
    """Each handle of the machine is another process; they take turns."""

    handles = 3
    _opened = count()

    def open_store(self, home: Path) -> Any:
        return RemoteStore(WORKERS[next(self._opened) % PROCESSES], home, **self.caps)

    def disturb(self, home: Path) -> None:
        shutil.rmtree(home / "cache", ignore_errors=True)


class CappedProcessMachine(ProcessMachine):
    caps = {"max_observations": 5, "ttl_days": 0.00005}  # noqa: RUF012 - a ClassVar of the base


TestProcesses = ProcessMachine.TestCase
TestProcesses.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)

TestCappedProcesses = CappedProcessMachine.TestCase
TestCappedProcesses.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)


@pytest.fixture
def processes(tmp_path: Path) -> list[RemoteStore]:
    return [RemoteStore(worker, tmp_path) for worker in WORKERS]


def numbered(number: int, **fields: Any) -> Observation:
    """Like `observation`, with as many ids as there are numbers."""
    return replace(observation(0), id=f"01900000-0000-7000-8000-{number:012x}", title=f"title {number}", **fields)


def adding(*rows: Observation) -> list[Event]:
    return [Event(kind="add", at=NOW, row=row) for row in rows]


def at_once(processes: list[RemoteStore], rounds: list[list[list[Event]]]) -> list[list[Any]]:
    """Let each process make its changes, commit after commit, without waiting for another; all outcomes."""
    for store, commits in zip(processes, rounds, strict=True):
        for events in commits:
            store.worker.send(store.number, "commit", OWNER, events)
    return [
        [outcome for _ in commits for outcome in store.worker.receive()]
        for store, commits in zip(processes, rounds, strict=True)
    ]


def close(processes: list[RemoteStore]) -> None:
    for store in processes:
        asyncio.run(store.aclose())


async def everything(store: RemoteStore) -> object:
    wanted = Filter(statuses=STATUSES)
    pages = [await store.find(OWNER, wanted, order=order, limit=1000) for order in ("created", "updated")]
    return (
        pages,
        await store.match(OWNER, ["titl"], Filter(), limit=1000),
        await store.facets(OWNER, "tags"),
        await store.facts(OWNER, FactFilter()),
        [await store.history(OWNER, row.id) for row in pages[0].rows[:20]],
        structs.replace(await store.stats(OWNER), cache_bytes=0),
    )


def test_processes_that_write_at_the_same_time_keep_every_row_once(processes: list[RemoteStore]) -> None:
    batches = rounds(40, least=10)
    written = [
        [adding(*(numbered(worker * 1000 + batch * 5 + each) for each in range(5))) for batch in range(batches)]
        for worker in range(PROCESSES)
    ]
    outcomes = at_once(processes, written)
    assert {outcome.kind for each in outcomes for outcome in each} == {"added"}
    wanted = sorted(outcome.id for each in outcomes for outcome in each)
    assert len(set(wanted)) == PROCESSES * 5 * batches
    answers = [asyncio.run(everything(store)) for store in processes]
    found = asyncio.run(processes[0].find(OWNER, Filter(), limit=1000))
    assert sorted(row.id for row in found.rows) == wanted
    assert all(answer == answers[0] for answer in answers)
    close(processes)


@pytest.mark.nightly
def test_the_same_said_by_all_at_once_becomes_one_row_that_counts_the_others(processes: list[RemoteStore]) -> None:
    written = [
        [adding(replace(numbered(worker * 100 + each), title=f"Tea {each % 3}")) for each in range(30)]
        for worker in range(PROCESSES)
    ]
    outcomes = at_once(processes, written)
    kinds = [outcome.kind for each in outcomes for outcome in each]
    assert (kinds.count("added"), kinds.count("exact_dup")) == (3, PROCESSES * 30 - 3)
    for store in processes:
        rows = asyncio.run(store.find(OWNER, Filter(statuses=STATUSES), limit=100)).rows
        assert sorted((row.title, row.mention_count) for row in rows) == [
            (f"Tea {number}", PROCESSES * 10 - 1) for number in range(3)
        ]
    close(processes)


@pytest.mark.nightly
def test_uses_purges_and_compactions_at_the_same_time_lose_nothing(processes: list[RemoteStore]) -> None:
    kept = [numbered(number) for number in range(10)]
    asyncio.run(processes[0].commit(OWNER, adding(*kept)))
    using = [Event(kind="use", at=NOW, ids=(row.id,)) for row in kept]
    rounds = [[using * 30 for _ in range(10)] for _ in processes]
    for store, commits in zip(processes, rounds, strict=True):
        for number, events in enumerate(commits):
            extra = numbered(1000 + store.number * 100 + number)
            store.worker.send(store.number, "commit", OWNER, adding(extra))
            store.worker.send(store.number, "commit", OWNER, events)
            store.worker.send(store.number, "find", OWNER, Filter(), limit=5)
            store.worker.send(store.number, "history", OWNER, kept[number].id)
            store.worker.send(store.number, "purge", OWNER, [extra.id])
    for store, commits in zip(processes, rounds, strict=True):
        for number in range(len(commits)):
            [added] = store.worker.receive()
            assert added.kind == "added"
            assert {outcome.kind for outcome in store.worker.receive()} == {"updated"}
            assert len(store.worker.receive().rows) == 5
            assert [version.observation.id for version in store.worker.receive()] == [kept[number].id]
            assert store.worker.receive() == [added.id]
    for store in processes:
        rows = asyncio.run(store.find(OWNER, Filter(statuses=STATUSES), order="created", limit=100)).rows
        assert [(row.id, row.use_count) for row in rows[::-1]] == [(row.id, PROCESSES * 300) for row in kept]
    close(processes)


@pytest.mark.nightly
def test_pages_of_one_process_go_on_in_another(processes: list[RemoteStore]) -> None:
    asyncio.run(processes[0].commit(OWNER, adding(*(numbered(number) for number in range(25)))))
    seen: list[str] = []
    after = None
    for number in range(20):
        page = asyncio.run(processes[number % PROCESSES].find(OWNER, Filter(), order="created", limit=3, after=after))
        seen += [row.id for row in page.rows]
        after = page.after
        if after is None:
            break
    assert seen == [numbered(number).id for number in range(24, -1, -1)]
    close(processes)
