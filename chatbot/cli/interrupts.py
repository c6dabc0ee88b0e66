"""Signals while the chat runs. Ctrl-C ends the turn and keeps its entries; other signals end the chat cleanly."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def end_in_order() -> None:
    """Make SIGTERM and SIGHUP cancel the running task, so that everything is closed and no process is left."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if task is not None:
            loop.add_signal_handler(number, task.cancel)


async def until_interrupted(work: Coroutine[Any, Any, T]) -> T | None:
    """The outcome of `work`; None where Ctrl-C came first, once the work has put things in order."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
