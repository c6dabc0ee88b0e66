"""Holds a model's reply back until a test lets it go on."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

from chatbot.messages import Delta, TextDelta


class Gate:
    """Closed until it is opened, for whoever waits in any thread's event loop."""

    def __init__(self) -> None:
        self._is_open = threading.Event()

    def open(self) -> None:
        """Let everyone through."""
        self._is_open.set()

    async def passed(self) -> None:
        """Wait until it is open."""
        while not self._is_open.is_set():  # noqa: ASYNC110 - another thread opens it
            await asyncio.sleep(0.005)

    def reply(self, before: str, after: str) -> Callable[[], AsyncIterator[Delta]]:
        """A reply that stops at the gate."""

        async def deltas() -> AsyncIterator[Delta]:
            yield TextDelta(before)
            await self.passed()
            yield TextDelta(after)

        return deltas
