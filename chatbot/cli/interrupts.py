"""Ctrl-C while a turn runs: the turn ends in order, and what was said stays."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
