"""The identity's bill: `memory/usage.jsonl`, one line a model call, across all of its sessions.

Days are UTC. Calls of ephemeral sessions stand here too, without a session: they leave no trace but their cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from threading import Lock

from chatbot.chat.usage import Bill, Call, bill_of, merged, parse_calls
from stores import json_lines
from stores.files import Folder, locked, make_folder, opened

NAME = "usage.jsonl"
_AT_A_TIME = 4 * 1024 * 1024
"""Bytes; a line is shorter."""


class Ledger:
    """Appends calls, and sums up a day by reading that day alone."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._summed: dict[str, Bill] = {}
        self._end = 0
        self._inode = 0
        self._summing = Lock()

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

    async def by_session(self) -> Mapping[str, Bill]:
        """What each session has cost, by its id; what was spent for none stands under "".

        Reads, after the first time, only what was added since.
        """
        return await asyncio.to_thread(self._sum_what_is_new)

    def _sum_what_is_new(self) -> dict[str, Bill]:
        with self._summing:
            if self._home.is_dir():
                with opened(self._home) as folder:
                    self._take_in(folder)
            return {session: merged([bill]) for session, bill in self._summed.items()}

    def _take_in(self, folder: Folder) -> None:
        now = folder.stamp(NAME)
        if now is None or now.inode != self._inode or now.size < self._end:
            self._summed, self._end, self._inode = {}, 0, now.inode if now else 0
        size = now.size if now else 0
        while self._end < size:
            began = self._end
            records, self._end = json_lines.read_since(folder, NAME, began, min(size, began + _AT_A_TIME))
            for call in parse_calls(records):
                self._summed.setdefault(call.session, Bill()).take_in(bill_of([call]))
            if self._end == began:  # a line that is not whole yet
                return

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
