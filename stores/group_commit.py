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
from typing import Generic, TypeVar

from chatbot.stores.loops import Waiter, new_waiter, wake

logger = logging.getLogger(__name__)

T = TypeVar("T")
Batch = list[tuple[T, Waiter | None]]


class GroupCommit(Generic[T]):
    """Runs `commit(items)` in a thread, one at a time, for items from any number of tasks.

    If `commit` returns true, `tidy()` runs before the next one, after the callers were answered.
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

        Cancelling the caller does not withdraw the item.
        """
        done = new_waiter()
        self._put([(item, done)])
        await done

    def post(self, item: T) -> None:
        """Have `item` committed, without waiting for it. A failure is logged."""
        self._put([(item, None)])

    async def finish(self) -> None:
        """Return once no commit is running or waiting."""
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
        """Return the items to commit next, and the waiters for an empty queue. Needs our lock."""
        batch, self._waiting = self._waiting, []
        self._is_busy = bool(batch)
        finished: list[Waiter] = []
        if not batch:
            finished, self._finishing = self._finishing, finished
        return batch, finished

    def _work(self, batch: Batch[T]) -> None:
        """Commit until nothing is left. Callers are answered before tidying; without it, once `idle` is up to date."""
        while batch:
            error, is_untidy = self._committed(batch)
            waiters = [done for _, done in batch if done is not None]
            if is_untidy:
                wake(waiters)
                waiters = []
                self._tidy_up()
            with self._lock:
                batch, finished = self._next()
            wake(waiters, error)
            wake(finished)

    def _committed(self, batch: Batch[T]) -> tuple[BaseException | None, bool]:
        try:
            return None, bool(self._commit([item for item, _ in batch])) and self._tidy is not None
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiters
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
_MOST_THREADS = 16


def begin(work: Work) -> None:
    """Do `work` in a thread, and return at once. It should not raise.

    The threads belong to no event loop, so work is completed even if its loop ends. A forked child starts its own.
    """
    _pool[0].submit(_do, work)


def _do(work: Work) -> None:
    try:
        work()
    except BaseException:
        logger.exception("work in a thread failed")


def _new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_THREADS, "store thread")


def _begin_anew() -> None:
    _pool[:] = [_new_pool()]


_pool = [_new_pool()]
os.register_at_fork(after_in_child=_begin_anew)
