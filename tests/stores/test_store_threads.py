"""Threads of stores: what happens while one is busy, when work fails, and in a forked child."""

import logging
import os
import threading
from queue import SimpleQueue

import pytest

from chatbot.stores.group_commit import begin
from tests.patience import PATIENCE_S


def _thread_of_work() -> int:
    idents: SimpleQueue[int] = SimpleQueue()
    begin(lambda: idents.put(threading.get_ident()))
    return idents.get(timeout=PATIENCE_S)


def test_work_that_takes_long_holds_up_no_other() -> None:
    go_on, ended = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        assert go_on.wait(PATIENCE_S)
        ended.release()

    for _ in range(3):
        begin(wait)
    assert _thread_of_work() != threading.get_ident()
    go_on.set()
    assert all(ended.acquire(timeout=PATIENCE_S) for _ in range(3))


def test_work_that_fails_is_reported_and_takes_no_thread_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said: SimpleQueue[logging.LogRecord] = SimpleQueue()
    monkeypatch.setattr(logging.getLogger("chatbot.stores.group_commit"), "handle", said.put)
    begin([].pop)
    assert said.get(timeout=PATIENCE_S).exc_info is not None
    assert _thread_of_work() != threading.get_ident()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_thread_of_its_own() -> None:
    _thread_of_work()
    child = os.fork()
    if child == 0:
        os._exit(7 if _thread_of_work() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
