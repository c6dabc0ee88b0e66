"""Many processes, threads, loops and open memories at once: nothing is lost or mixed, and nobody waits for long."""

import asyncio
import gc
import resource
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem
from chatbot.memory.turn_order import TurnOrder
from chatbot.memory.writing import Draft
from chatbot.stores.backend import Lease
from chatbot.stores.errors import MissingFolder, ReadOnlyFolder, StoreBusy, StoreError, StoreFailed
from chatbot.stores.files import locked
from chatbot.stores.in_memory import MemoryBackend
from chatbot.stores.loops import LoopsLock
from chatbot.stores.records import TranscriptEntry
from chatbot.stores.testing.processes import lines_of, start
from tests.loops import HANG_S, run_in_threads
from tests.patience import PATIENCE_S
from tests.process import begin_together, wait_for_others

STORES = ["basic_session"]
NIGHT = pytest.mark.nightly
HERE = "tests.memory.test_many_at_once"


def capped(home: Path) -> MemorySystem:
    return MemorySystem(home, settings={"basic_session": {"transcript_cap": 100, "kv_cap": 10_000}})


def append(memory: MemorySystem, session_id: str, worker: str, count: str) -> None:
    """Append when it is let, and print the longest wait."""

    async def work() -> float:
        longest = 0.0
        async with memory:
            wait_for_others()
            session = await memory.load_session(session_id, "chat")
            for number in range(int(count)):
                started = time.perf_counter()
                await session.transcript_append("user", f"{worker}.{number}")
                longest = max(longest, time.perf_counter() - started)
                if number % 5 == 0:
                    await session.kv_set(f"{worker}.{number}", "x")
        return longest

    print(asyncio.run(work()))  # noqa: T201


@pytest.mark.parametrize(
    ("workers", "count"), [(4, 25), pytest.param(8, 100, marks=NIGHT), pytest.param(16, 200, marks=NIGHT)]
)
async def test_entries_of_many_processes_are_there_once_in_order(memory_home: Path, workers: int, count: int) -> None:
    async with MemorySystem(memory_home, settings={"basic_session": {"kv_cap": 10_000}}) as memory:
        session = await memory.create_session(STORES, "chat")
        given = (f"{HERE}:append", f"{HERE}:capped", memory_home, session.id)
        running = [start(*given, each, count) for each in range(workers)]
        begin_together(running)
        longest = max(float(line) for process in running for line in lines_of(process))
        said = [entry.content for entry in await session.transcript_read_all()]
        keys = {entry.key for entry in await session.kv_entries()}
    assert keys == {f"{worker}.{n}" for worker in range(workers) for n in range(0, count, 5)}
    for worker in range(workers):
        assert [text for text in said if text.startswith(f"{worker}.")] == [f"{worker}.{n}" for n in range(count)]
    assert len(said) == workers * count
    assert longest < PATIENCE_S / 4  # nobody starves; where nothing else runs it is far below


async def test_an_append_that_meets_a_deletion_is_either_deleted_too_or_refused(memory_home: Path) -> None:
    outcomes: Counter[str] = Counter()
    async with MemorySystem(memory_home) as ours, MemorySystem(memory_home) as theirs:
        while outcomes.total() < (72 if len(outcomes) == 2 else 1_500):  # a round gives three; one in five refuses
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


def take_turns(memory: MemorySystem, session_id: str, worker: str) -> None:
    async def work() -> None:
        async with memory:
            session = await memory.load_session(session_id, "chat")
            for number in range(15):
                async with session.turn_order:
                    await session.transcript_append("user", f"{worker}.{number}")
                    await asyncio.sleep(0)
                    await session.transcript_append("assistant", f"{worker}.{number}")

    asyncio.run(work())


async def test_turns_of_two_processes_are_never_mixed(memory_home: Path) -> None:
    async with MemorySystem(memory_home) as memory:
        session = await memory.create_session(STORES, "chat")
        workers = [start(f"{HERE}:take_turns", f"{HERE}:capped", memory_home, session.id, name) for name in "ab"]
        assert [lines_of(each) for each in workers] == [[], []]
        entries = [(entry.role, entry.content) for entry in await session.transcript_read_all()]
    assert len(entries) == 60
    for question, answer in zip(entries[::2], entries[1::2], strict=True):
        assert (question[0], answer[0]) == ("user", "assistant")
        assert question[1] == answer[1]


async def test_a_waiter_that_is_cancelled_leaves_the_turn_to_others(tmp_path: Path) -> None:
    async with MemorySystem(tmp_path) as one, MemorySystem(tmp_path) as other:
        session = await one.create_session(STORES, "chat")
        same = await other.load_session(session.id, "chat")
        async with session.turn_order:
            waiting = asyncio.ensure_future(same.turn_order.__aenter__())
            while not same.turn_order.in_process.locked():  # noqa: ASYNC110 - a lock tells nobody
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert not same.turn_order.in_process.locked()
        async with same.turn_order, asyncio.timeout(PATIENCE_S):
            await same.transcript_append("user", "mine")


class _Broken(Lease):
    """A lease that another process holds, or in a database that went away: before it is taken, or released."""

    def __init__(self, error: StoreError | None, *, is_taken: bool) -> None:
        self.error = error
        self._is_taken = is_taken
        self.released_by: int | None = None

    def take(self) -> bool:
        if self._is_taken or self.error is None:
            return self._is_taken
        raise self.error

    def release(self) -> None:
        self.released_by = threading.get_ident()
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, StoreFailed("no PostgreSQL answers there")])
async def test_without_an_answer_about_the_order_there_is_no_turn(
    error: StoreError | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("chatbot.memory.turn_order._SILENT_WAIT_S", 0)
    order = TurnOrder(_Broken(error, is_taken=False), work="opening it by its key", longest_wait_s=0.1)
    with pytest.raises(type(error or StoreBusy()), match="no PostgreSQL answers" if error else "opening it by its key"):
        await order.__aenter__()
    assert not order.in_process.locked()
    waits = [] if error else ["another process is opening it by its key: waiting for it, 0.1 s at most"]
    assert caplog.messages == waits
    async with TurnOrder(_Broken(ReadOnlyFolder("only read"), is_taken=False)):
        pass  # the order within this process


async def test_an_order_that_cannot_be_given_back_stops_neither_the_session_nor_the_loop() -> None:
    lease = _Broken(StoreFailed("the connection broke"), is_taken=True)
    order = TurnOrder(lease)
    for _ in range(2):
        async with order:
            pass
        assert not order.in_process.locked()
    assert lease.released_by not in {None, threading.get_ident()}


class _Slow(MemoryBackend, Lease):
    """A backend with one lease, which is taken once the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.gate, self.is_held = threading.Event(), threading.Event(), False

    def lease(self, name: str) -> Lease:
        return self

    def take(self) -> bool:
        self.asked.set()
        self.is_held = self.gate.wait(PATIENCE_S)
        return True

    def release(self) -> None:
        self.is_held = False


async def test_a_lease_that_a_thread_takes_after_a_cancellation_is_given_back() -> None:
    async with MemorySystem(None) as memory:
        memory.backend = backend = _Slow()
        run = asyncio.create_task(memory.maintain())
        assert await asyncio.to_thread(backend.asked.wait, PATIENCE_S)
        run.cancel()
        backend.gate.set()
        await asyncio.wait([run])
        assert (run.cancelled(), backend.is_held) == (True, False)


BOTH = ["basic_session", "observations"]
ROUNDS = 5


async def _use(memory: MemorySystem, shared_id: str, who: int, stores: Sequence[str]) -> None:
    """Every kind of operation, on a session of one's own and on one that all share, and never for long."""
    own = await memory.create_session(stores, "chat", title=f"of {who}")
    shared = await memory.load_session(shared_id, "chat")
    for number in range(ROUNDS):
        async with asyncio.TaskGroup() as group:
            group.create_task(own.transcript_append("user", f"{who} said {number}"))
            group.create_task(shared.kv_set(f"{who}.{number}", "value"))
            group.create_task(own.memory.remember(f"note{number} of worker{who}"))
            group.create_task(own.memory.search("note1"))
            group.create_task(memory.list_sessions())
        async with shared.turn_order:
            await shared.transcript_append("user", f"{who}.{number}")
            await shared.transcript_append("assistant", f"{who}.{number}")
        await shared.transcript_read_all()
        await memory.search_sessions(f"{number}", limit=2)
    assert [each.content for each in await own.transcript_read_last(9)] == [f"{who} said {n}" for n in range(ROUNDS)]


async def _check(memory: MemorySystem, shared_id: str, workers: int) -> None:
    shared = await memory.load_session(shared_id, "chat")
    said = [each.content for each in await shared.transcript_read_all()]
    assert said[::2] == said[1::2]
    for who in range(workers):
        assert [each for each in said[::2] if each.startswith(f"{who}.")] == [f"{who}.{n}" for n in range(ROUNDS)]
        assert await shared.kv_get(f"{who}.{ROUNDS - 1}") == "value"
    assert len(await memory.list_sessions()) == workers + 1
    rows = await memory.memory().every()
    noted = [f"note{n} of worker{w}" for w in range(workers) for n in range(ROUNDS)]
    assert sorted(row.text() for row in rows) == sorted(noted)


def _memory(home: Path | None) -> MemorySystem:
    from tests.memory.test_meaning import LetterEmbedder  # not in the other processes, which start faster

    return MemorySystem(home, embedder=LetterEmbedder())


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [4, 16])
@pytest.mark.parametrize("is_on_disk", [True, False])
def test_one_memory_serves_many_threads_with_a_loop_each(memory_home: Path, workers: int, is_on_disk: bool) -> None:  # noqa: FBT001
    memory = _memory(memory_home if is_on_disk else None)
    stores = BOTH if is_on_disk else ["in_memory"]
    shared_id = asyncio.run(memory.create_session(stores, "chat")).id
    run_in_threads(workers, lambda who: _use(memory, shared_id, who, stores))
    asyncio.run(_check(memory, shared_id, workers))
    asyncio.run(memory.aclose())


def test_a_loop_that_ends_in_the_midst_of_its_work_holds_up_no_other(memory_home: Path) -> None:
    memory = _memory(memory_home)
    shared_id = asyncio.run(memory.create_session(BOTH, "chat")).id

    async def leave() -> None:
        session = await memory.load_session(shared_id, "chat")
        left = [asyncio.create_task(_use(memory, shared_id, 90 + each, BOTH)) for each in range(3)]
        left += [asyncio.create_task(session.transcript_append("user", "left")) for _ in range(3)]  # type: ignore[arg-type]
        await asyncio.sleep(0)

    for _ in range(5):
        asyncio.run(leave())
    run_in_threads(2, lambda who: _use(memory, shared_id, who, BOTH))
    asyncio.run(asyncio.wait_for(memory.aclose(), HANG_S))


async def test_others_are_answered_while_many_memories_are_added(memory_home: Path) -> None:
    async with MemorySystem(memory_home) as memory:
        notes = memory.memory("chat")
        first = await notes.remember("the first")
        adding = asyncio.create_task(notes.remember_all(Draft(title=f"number {n} of many") for n in range(1_000)))
        answered = 0
        while not adding.done():
            assert await notes.get([first.id])
            answered += 1
        assert len({each.id for each in await adding}) == 1_000
    assert answered > 6  # of 1,000 that are checked and written at once, each would wait for 500


def test_a_lock_goes_round_all_loops_one_at_a_time_and_outlives_who_is_cancelled() -> None:
    lock = LoopsLock()
    inside: list[int] = []
    count = 0

    async def work(who: int) -> None:
        nonlocal count
        for number in range(50):
            waiting = asyncio.create_task(lock.acquire()) if number % 5 == 0 else None
            await asyncio.sleep(0)
            if waiting is not None and not waiting.cancel():
                lock.release()
            async with lock:
                inside.append(who)
                await asyncio.sleep(0)
                assert inside == [who]
                inside.pop()
                count += 1

    run_in_threads(8, work)
    assert count == 8 * 50
    assert not lock.locked()


def test_a_lock_is_not_given_to_a_loop_that_was_closed() -> None:
    lock = LoopsLock()

    async def take() -> None:
        await lock.acquire()

    asyncio.run(take())
    forgotten = asyncio.new_event_loop()
    waiting = forgotten.create_task(take())
    forgotten.run_until_complete(asyncio.sleep(0))
    assert not waiting.done()
    forgotten.close()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    lock.release()
    asyncio.run(asyncio.wait_for(take(), HANG_S))


def use_many(home: Path) -> None:
    async def work() -> None:
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
        most = len([*Path("/proc/self/fd").iterdir()])
        for memory in memories[::2]:
            await memory.aclose()
        del memory, memories, session, sessions  # half of them unclosed
        gc.collect()
        print(most, len([*Path("/proc/self/fd").iterdir()]))  # noqa: T201 - to the test

    resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
    asyncio.run(work())


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not tell which descriptors are open")
def test_three_hundred_identities_are_used_in_turn_with_one_descriptor_each(tmp_path: Path) -> None:
    most, left = map(int, lines_of(start(f"{HERE}:use_many", "pathlib:Path", tmp_path / "homes"))[0].split())
    assert most < 330
    assert left < 20
