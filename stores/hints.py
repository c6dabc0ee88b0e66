"""Hints that something was written elsewhere. What it was is read where it is kept: a hint may be late, or lost."""

from __future__ import annotations

import asyncio

MEMORIES = "memories"
"""The topic of the log of observations; that of lines is their name."""


class Hint:
    """A wait between two looks, which a hint may cut short. This one has no hints."""

    async def wait(self, poll_s: float, longest_s: float) -> None:  # noqa: ARG002 - for those that have hints
        """Wait until a hint comes, at most `longest_s` seconds; `poll_s` while none can come."""
        await asyncio.sleep(poll_s)
