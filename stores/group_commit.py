"""Group commit: what arrives while a commit is under way is committed together by the next one.

A lone item is committed at once; fifty that arrive together cost two commits, not fifty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from stores.fast_thread import in_thread

T = TypeVar("T")


class GroupCommit(Generic[T]):
    """Runs `commit(items)` in a thread, one at a time, for items from any number of tasks.

    Where `commit` returns true, `tidy()` is run before the next one, once the callers have been told that all is well.
    """

    def __init__(self, commit: Callable[[list[T]], object], tidy: Callable[[], None] | None = None) -> None:
        self._commit = commit
        self._tidy = tidy
        self._waiting: list[tuple[T, asyncio.Future[None]]] = []
        self._under_way: asyncio.Future[Any] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is under way or waiting, as far as a loop that was closed meanwhile could tell us."""
        return self._under_way is None or self._under_way.get_loop().is_closed()

    async def add(self, item: T) -> None:
        """Return once `item` is committed; raises what its commit raised. Items keep the order in which they came.

        A caller that is cancelled while it waits does not take its item back.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self.idle:
            self._commit_waiting()
        await done

    async def finish(self) -> None:
        """Return once nothing is under way or waiting."""
        while self._under_way is not None and not self.idle:
            await asyncio.wait([self._under_way])

    def _commit_waiting(self) -> None:
        batch, self._waiting = self._waiting, []
        self._under_way = in_thread(partial(self._commit, [item for item, _ in batch]))
        self._under_way.add_done_callback(lambda commit: self._report(batch, commit))

    def _report(self, batch: list[tuple[T, asyncio.Future[None]]], commit: asyncio.Future[object]) -> None:
        error = commit.exception()
        for _, done in batch:
            if done.cancelled() or done.get_loop().is_closed():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
        if self._tidy is not None and error is None and commit.result():
            self._under_way = asyncio.get_running_loop().run_in_executor(None, self._tidy)
            self._under_way.add_done_callback(self._go_on)
        else:
            self._go_on(commit)

    def _go_on(self, _: asyncio.Future[Any]) -> None:
        self._under_way = None
        if self._waiting:
            self._commit_waiting()
