"""The fast thread: answers, errors, what happens while it is busy, closed loops and forked children."""

import asyncio
import os
import threading

import pytest

from stores.fast_thread import in_thread

WAIT_S = 10


async def test_what_the_work_returns_or_raises_comes_back() -> None:
    assert await in_thread(lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


async def test_work_after_work_is_done_by_the_same_thread() -> None:
    assert await in_thread(threading.get_ident) == await in_thread(threading.get_ident) != threading.get_ident()


async def test_work_that_takes_long_holds_up_no_other() -> None:
    go_on = threading.Event()
    slow = [in_thread(lambda: go_on.wait(WAIT_S)) for _ in range(2)]
    assert await in_thread(lambda: "done") == "done"
    go_on.set()
    assert await asyncio.gather(*slow) == [True, True]


def test_a_loop_that_is_closed_meanwhile_takes_no_thread_with_it() -> None:
    go_on, done = threading.Event(), threading.Event()

    async def leave() -> None:
        in_thread(lambda: done.set() if go_on.wait(WAIT_S) else None)

    asyncio.run(leave())
    go_on.set()
    assert done.wait(WAIT_S)

    async def come_back() -> int:
        return await in_thread(lambda: 1)

    assert asyncio.run(come_back()) == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_thread_of_its_own() -> None:
    async def work() -> int:
        return await in_thread(lambda: 7)

    assert asyncio.run(work()) == 7
    child = os.fork()
    if child == 0:
        os._exit(asyncio.run(work()))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
