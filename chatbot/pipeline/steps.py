"""How long a stranger's coroutine kept everything else from running: no time-out can end what never awaits."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


class Stepwise(Generic[Answer]):
    """Awaits a coroutine step by step; a step runs from one `await` that waits to the next."""

    def __init__(self, coroutine: Coroutine[Any, Any, Answer]) -> None:
        self._coroutine = coroutine
        self.longest_s = 0.0
        """How long its longest step has taken so far."""

    def __await__(self) -> Generator[Any, Any, Answer]:
        step: Callable[[], Any] = partial(self._coroutine.send, None)
        while True:
            began = time.monotonic()
            try:
                waits_for = step()
            except StopIteration as done:
                answer: Answer = done.value
                return answer
            finally:
                self.longest_s = max(self.longest_s, time.monotonic() - began)
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 -- the coroutine shall have it, a cancellation for one
                step = partial(self._coroutine.throw, error)
            else:
                step = partial(self._coroutine.send, None)
