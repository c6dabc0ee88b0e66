"""One memory used from several threads with an event loop each, and by one event loop after another."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem
from chatbot.stores.loops import LoopsLock
from tests.loops import HANG_S, run_in_threads
from tests.memory.test_meaning import LetterEmbedder

STORES = ["basic_session", "observations"]
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
    assert sorted(row.text() for row in rows) == sorted(
        f"note{n} of worker{who}" for who in range(workers) for n in range(ROUNDS)
    )


def _memory(home: Path | None) -> MemorySystem:
    return MemorySystem(home, embedder=LetterEmbedder())


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [4, 16])
@pytest.mark.parametrize("is_on_disk", [True, False])
def test_one_memory_serves_many_threads_with_a_loop_each(memory_home: Path, workers: int, is_on_disk: bool) -> None:  # noqa: FBT001
    memory = _memory(memory_home if is_on_disk else None)
    stores = STORES if is_on_disk else ["in_memory"]
    shared_id = asyncio.run(memory.create_session(stores, "chat")).id
    run_in_threads(workers, lambda who: _use(memory, shared_id, who, stores))
    if not is_on_disk:
        asyncio.run(_check(memory, shared_id, workers))
        return asyncio.run(memory.aclose())
    asyncio.run(memory.aclose())
    asyncio.run(_check(MemorySystem(memory_home), shared_id, workers))
    return None


def test_one_memory_serves_one_loop_after_another(memory_home: Path) -> None:
    memory = _memory(memory_home)
    shared_id = asyncio.run(memory.create_session(STORES, "chat")).id
    for who in range(8):
        asyncio.run(asyncio.wait_for(_use(memory, shared_id, who, STORES), HANG_S))
    asyncio.run(_check(memory, shared_id, 8))
    asyncio.run(memory.aclose())


def test_a_loop_that_ends_in_the_midst_of_its_work_holds_up_no_other(memory_home: Path) -> None:
    memory = _memory(memory_home)
    shared_id = asyncio.run(memory.create_session(STORES, "chat")).id

    async def leave() -> None:
        session = await memory.load_session(shared_id, "chat")
        left = [asyncio.create_task(_use(memory, shared_id, 90 + each, STORES)) for each in range(3)]
        left += [asyncio.create_task(session.transcript_append("user", "left")) for _ in range(3)]  # type: ignore[arg-type]
        await asyncio.sleep(0)

    for _ in range(5):
        asyncio.run(leave())
    run_in_threads(2, lambda who: _use(memory, shared_id, who, STORES))
    asyncio.run(asyncio.wait_for(memory.aclose(), HANG_S))


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
