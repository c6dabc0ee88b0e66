"""The identity's bill: `memory/usage.jsonl`, one line a model call, across all of its sessions.

Days are UTC. Calls of ephemeral sessions stand here too, without a session: they leave no trace but their cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from chatbot.chat.usage import Bill, Call, bill_of, parse_calls
from stores import json_lines
from stores.files import locked, make_folder, opened

NAME = "usage.jsonl"


class Ledger:
    """Appends calls, and sums up a day by reading that day alone."""

    def __init__(self, home: Path) -> None:
        self._home = home

    async def add(self, call: Call) -> None:
        """Write a call down. Durable on return."""
        await asyncio.to_thread(self._add, call)

    async def since(self, moment: datetime) -> Bill:
        """The bill of all calls from `moment` on."""
        return await asyncio.to_thread(self._sum_while, lambda call: call.at >= moment)

    async def calls_since(self, moment: datetime) -> list[Call]:
        """Every call from `moment` on, newest first; reads no further back."""
        return await asyncio.to_thread(self._calls_while, lambda call: call.at >= moment)

    async def total(self) -> Bill:
        """The bill of all calls there ever were."""
        return await asyncio.to_thread(self._sum_while, lambda _: True)

    def _add(self, call: Call) -> None:
        make_folder(self._home)
        with locked(self._home) as folder:
            folder.append(NAME, json_lines.encode(call.as_json()))

    def _sum_while(self, counts: Callable[[Call], bool]) -> Bill:
        return bill_of(self._calls_while(counts))

    def _calls_while(self, counts: Callable[[Call], bool]) -> list[Call]:
        if not self._home.is_dir():
            return []
        with opened(self._home) as folder:
            return list(takewhile(counts, parse_calls(json_lines.read_backwards(folder, NAME))))
