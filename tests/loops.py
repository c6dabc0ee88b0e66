"""Several event loops at once, one a thread, with a bound that tells a hang from work."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

HANG_S = 60.0
"""Far more than anything takes here, also on a busy machine."""


def run_in_threads(count: int, work: Callable[[int], Awaitable[None]]) -> None:
    """Run `work(0)`, `work(1)`, … each with a loop and a thread of its own; raises the first error."""

    async def bounded(number: int) -> None:
        async with asyncio.timeout(HANG_S):
            await work(number)

    with ThreadPoolExecutor(count) as threads:
        for done in [threads.submit(asyncio.run, bounded(number)) for number in range(count)]:
            done.result(2 * HANG_S)
