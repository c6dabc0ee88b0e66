"""Group commit: order, one commit for all who wait, and errors for exactly those whose commit failed."""

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from chatbot.embed import Portal
from chatbot.stores import loops
from chatbot.stores.loops import GroupCommit
from tests.loops import run_in_threads
from tests.patience import PATIENCE_S


class Disk:
    """Commits when it is let; remembers every batch; refuses batches that hold a refused item."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.refused: set[int] = set()
        self.started = threading.Semaphore(0)
        self.let = threading.Semaphore(0)

    def commit(self, items: list[int]) -> object:
        self.started.release()
        assert self.let.acquire(timeout=PATIENCE_S)
        if self.refused & set(items):
            raise OSError("the disk is full")
        self.batches.append(items)
        return -1 in items

    def tidy(self) -> None:
        self.commit([100])


@pytest.fixture
def disk() -> Disk:
    return Disk()


async def _started(disk: Disk) -> None:
    """Return when a commit is under way, so that what comes now must wait."""
    assert await asyncio.to_thread(disk.started.acquire, timeout=PATIENCE_S)


@contextmanager
def _no_complaints() -> Iterator[None]:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    yield
    assert complaints == []


async def test_what_arrives_during_a_commit_is_committed_together_in_order(disk: Disk) -> None:
    commits = GroupCommit(disk.commit)
    async with asyncio.TaskGroup() as group:
        group.create_task(commits.add(0))
        await _started(disk)
        for number in range(1, 50):
            group.create_task(commits.add(number))
        await asyncio.sleep(0)  # each of them has begun to wait
        assert not commits.idle
        disk.let.release(2)
    assert disk.batches == [[0], list(range(1, 50))]


async def test_an_error_reaches_exactly_those_whose_commit_failed(disk: Disk) -> None:
    commits = GroupCommit(disk.commit)
    disk.refused = {2}
    adding = [asyncio.create_task(commits.add(0))]
    await _started(disk)
    adding += [asyncio.create_task(commits.add(number)) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    disk.let.release()
    await _started(disk)
    adding.append(asyncio.create_task(commits.add(4)))
    await asyncio.sleep(0)
    disk.let.release(2)
    answers = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(None), OSError, OSError, OSError, type(None)]
    assert disk.batches == [[0], [4]]


async def test_a_cancelled_waiter_does_not_take_its_item_back_nor_disturb_others(disk: Disk) -> None:
    commits = GroupCommit(disk.commit)
    first = asyncio.create_task(commits.add(0))
    await _started(disk)
    cancelled, kept = asyncio.create_task(commits.add(1)), asyncio.create_task(commits.add(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    first.cancel()
    await asyncio.wait([cancelled, first], timeout=PATIENCE_S)
    with _no_complaints():
        disk.let.release(2)
        await kept
    assert disk.batches == [[0], [1, 2]]


async def test_a_failed_commit_without_a_waiter_is_reported_once(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    commits = GroupCommit(disk.commit)
    disk.refused = {0}
    first = asyncio.create_task(commits.add(0))
    await _started(disk)
    first.cancel()
    with _no_complaints():
        disk.let.release()
        await commits.finish()
    assert "the disk is full" in caplog.text


async def test_tidying_begins_when_the_callers_know_and_ends_before_the_next_commit(disk: Disk) -> None:
    commits = GroupCommit(disk.commit, disk.tidy)
    disk.let.release()
    await commits.add(-1)
    await _started(disk)
    await _started(disk)  # it tidies, and the caller already went on
    next_one = asyncio.create_task(commits.add(1))
    await asyncio.sleep(0)
    assert disk.batches == [[-1]]
    disk.let.release(2)
    await next_one
    assert disk.batches == [[-1], [100], [1]]
    assert commits.idle


def test_what_many_loops_add_is_committed_once_and_told_to_each_of_them() -> None:
    batches: list[list[tuple[int, int]]] = []
    commits = GroupCommit(batches.append)

    async def add(loop: int) -> None:
        for number in range(0, 100, 4):
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                for each in range(number, number + 4):
                    group.create_task(commits.add((loop, each)))

    run_in_threads(16, add)
    items = [item for batch in batches for item in batch]
    assert [[n for loop, n in items if loop == each] for each in range(16)] == [list(range(100))] * 16
    assert len(batches) < len(items)
    asyncio.run(commits.finish())
    assert commits.idle


def test_an_unawaited_item_is_committed_and_its_failure_reported(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    commits = GroupCommit(disk.commit)
    disk.refused = {2}
    disk.let.release(2)
    for number in (1, 2):
        commits.post(number)
        asyncio.run(commits.finish())
    assert disk.batches == [[1]]
    assert "the disk is full" in caplog.text


async def test_a_long_commit_holds_up_no_other_and_what_waits_for_a_thread_is_committed_together(disk: Disk) -> None:
    quick: list[list[int]] = []
    commits = GroupCommit(quick.append)
    slow = [asyncio.create_task(GroupCommit(disk.commit).add(number)) for number in range(loops._MOST_THREADS - 1)]
    await commits.add(0)
    slow.append(asyncio.create_task(GroupCommit(disk.commit).add(99)))
    for _ in slow:
        await _started(disk)
    late = [asyncio.create_task(commits.add(number)) for number in (1, 2)]
    await asyncio.sleep(0)
    disk.let.release(len(slow))
    await asyncio.gather(*slow, *late)
    assert quick == [[0], [1, 2]]


async def test_without_a_thread_items_are_committed_by_the_caller(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(loops, "_pool", [ThreadPoolExecutor(1)])
    commits = GroupCommit(disk.commit)
    disk.let.release(3)
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refuse)
        async with asyncio.timeout(PATIENCE_S):
            await commits.add(1)
            await commits.add(2)
    await commits.add(3)
    loops._pool[0].shutdown()
    assert disk.batches == [[1], [2], [3]]
    assert commits.idle


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    batches: list[list[int]] = []
    asyncio.run(GroupCommit(batches.append).add(0))
    portal = Portal()

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(asyncio.sleep(PATIENCE_S))

    begun = portal.run(begin())
    child = os.fork()
    if child == 0:
        asyncio.run(asyncio.wait_for(loops.cancel_and_wait(begun), 4))  # its loop runs in the parent
        with pytest.raises(RuntimeError, match="of the process that was forked"):
            portal.run(asyncio.sleep(0))
        asyncio.run(GroupCommit(batches.append).add(1))
        os._exit(7)
    portal.close()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


async def test_a_cancelled_caller_waits_for_work_that_hangs_only_so_long() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loops.to_its_end(asyncio.Event().wait(), longest_s=0.01), 0.01)
