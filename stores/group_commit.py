"""Group commit: items that arrive during a commit are committed together by the next one.

A single item is committed at once; fifty that arrive together cost two commits. Items may come from tasks of any number
of event loops: commits run in a thread that belongs to none of them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from chatbot.stores.loops import Waiter, new_waiter, wake

logger = logging.getLogger(__name__)

T = TypeVar("T")
Batch = list[tuple[T, Waiter | None]]


class GroupCommit(Generic[T]):
    """Runs `commit(items)` in a thread, one at a time, for items from any number of tasks.

    Where `commit` returns true, `tidy()` is run before the next one, once the callers have been told that all is well.
    """

    def __init__(self, commit: Callable[[list[T]], object], tidy: Callable[[], None] | None = None) -> None:
        self._commit = commit
        self._tidy = tidy
        self._lock = threading.Lock()
        self._waiting: Batch[T] = []
        self._finishing: list[Waiter] = []
        self._is_busy = False

    @property
    def idle(self) -> bool:
        """True if no commit is running or waiting."""
        return not self._is_busy

    async def add(self, item: T) -> None:
        """Return once `item` is committed; raises what its commit raised. Items keep the order in which they came.

        A caller that is cancelled while it waits does not take its item back.
        """
        done = new_waiter()
        self._put([(item, done)])
        await done

    def post(self, item: T) -> None:
        """Have `item` committed, without waiting for it. A failure is logged."""
        self._put([(item, None)])

    async def finish(self) -> None:
        """Return once nothing is under way or waiting."""
        with self._lock:
            if not self._is_busy:
                return
            done = new_waiter()
            self._finishing.append(done)
        await done

    def _put(self, items: Batch[T]) -> None:
        with self._lock:
            self._waiting += items
            if self._is_busy:
                return
            batch, _ = self._next()
        begin(partial(self._work, batch))

    def _next(self) -> tuple[Batch[T], list[Waiter]]:
        """The items to commit next, and who waits for there to be none. Needs our lock."""
        batch, self._waiting = self._waiting, []
        self._is_busy = bool(batch)
        finished: list[Waiter] = []
        if not batch:
            finished, self._finishing = self._finishing, finished
        return batch, finished

    def _work(self, batch: Batch[T]) -> None:
        """Commit until nothing is left. Callers are told when all is settled that they may ask for next."""
        while batch:
            error, is_untidy = self._committed(batch)
            told = [done for _, done in batch if done is not None]
            if is_untidy:
                wake(told)
                told = []
                self._tidy_up()
            with self._lock:
                batch, finished = self._next()
            wake(told, error)
            wake(finished)

    def _committed(self, batch: Batch[T]) -> tuple[BaseException | None, bool]:
        try:
            return None, bool(self._commit([item for item, _ in batch])) and self._tidy is not None
        except BaseException as error:  # noqa: BLE001 - it is raised in those who wait
            if not any(done for _, done in batch):
                logger.warning("a background write failed: %s", error)
            return error, False

    def _tidy_up(self) -> None:
        try:
            if self._tidy is not None:
                self._tidy()
        except Exception:
            logger.exception("tidying up after a commit failed")


Work = Callable[[], None]
_Inbox = SimpleQueue[Work]
_MOST_THREADS = 16


def begin(work: Work) -> None:
    """Do `work` in a thread, and return at once. It is done unless the process ends before; it should not raise.

    One thread, kept for this, wakes up faster than those of an executor. If it is busy, work goes to a pool of the
    process, so long work or a wait for a lock delays nothing else. Neither belongs to an event loop: work is completed
    even if its loop ends. A forked child starts its own.
    """
    try:
        inbox = _vacant.pop()
    except IndexError:
        _pool[0].submit(_do, work)
        return
    (inbox or _start()).put(work)


def _start() -> _Inbox:
    inbox: _Inbox = SimpleQueue()
    Thread(target=_serve, args=(inbox,), name="fast thread", daemon=True).start()
    return inbox


def _serve(inbox: _Inbox) -> None:
    while True:
        _do(inbox.get())
        _vacant.append(inbox)


def _do(work: Work) -> None:
    try:
        work()
    except BaseException:
        logger.exception("work in a thread failed")


def _new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_THREADS, "store thread")


def _begin_anew() -> None:
    _vacant[:] = [None]
    _pool[:] = [_new_pool()]


_vacant: list[_Inbox | None] = [None]
"""Queue of the idle thread; None before its start, empty while it is busy."""
_pool = [_new_pool()]
os.register_at_fork(after_in_child=_begin_anew)
