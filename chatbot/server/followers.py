"""Connections that follow changes: few enough, and ended when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from weakref import WeakSet

from chatbot.server.callers import ServerCaller
from chatbot.server.errors import SLOW_DOWN, Problem, ProblemError

MOST = 100
MOST_OF_ONE = 10
_RETRY_S = 10


class Follower:
    """A connection that follows; it counts for as long as something refers to it."""

    def __init__(self, caller: ServerCaller) -> None:
        self.caller = caller


class Followers:
    """The connections of a server that follow."""

    def __init__(self) -> None:
        self._all: WeakSet[Follower] = WeakSet()
        self._ending = asyncio.Event()

    def admit(self, caller: ServerCaller) -> Follower:
        """Count one more. Raises `ProblemError` where the caller, or all together, have too many."""
        of_caller = sum(each.caller.key == caller.key for each in self._all)
        if of_caller >= MOST_OF_ONE or len(self._all) >= MOST:
            most = f"{MOST_OF_ONE} of yours" if of_caller >= MOST_OF_ONE else f"{MOST} in all"
            why = f"too many connections follow changes, at most {most}: close one, or use follow=false"
            headers = {"retry-after": str(_RETRY_S)}
            raise ProblemError(Problem(429, SLOW_DOWN, "too_many_followers", why, headers=headers))
        follower = Follower(caller)
        self._all.add(follower)
        return follower

    async def pause(self, waiting: Coroutine[Any, Any, None]) -> bool:
        """Wait for that; returns False at once where the server stops."""
        tasks = [asyncio.create_task(each) for each in (waiting, self._ending.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
        return not self._ending.is_set()

    def end(self) -> None:
        """Let every connection end."""
        self._ending.set()
