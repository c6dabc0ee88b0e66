"""LiteLLM's connections, which it keeps for a process: closed when the last model of an event loop is closed.

They belong to the loop in which they were opened, so they must be closed before it ends, and never while another model
of the same loop still uses them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from contextlib import suppress
from types import ModuleType
from typing import Any

_users: Counter[int] = Counter()
"""Number of models that use LiteLLM, by the id of their event loop."""


class Connections:
    """Use of the shared connections of an event loop by one model."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._litellm: ModuleType | None = None

    def use(self, litellm: ModuleType) -> None:
        """Register calls in this loop. A second call changes nothing."""
        if self._loop is None:
            self._litellm, self._loop = litellm, asyncio.get_running_loop()
            _users[id(self._loop)] += 1

    async def aclose(self) -> None:
        """Give up the share, and close the connections if it was the last."""
        if self._loop is None:
            return
        key, self._loop = id(self._loop), None
        _users[key] -= 1
        if _users[key] == 0:
            del _users[key]
            await _close_clients(self._litellm, key)


async def _close_clients(litellm: Any, loop_id: int) -> None:
    """Take the clients of this loop out of LiteLLM's cache, which names them by it, and close them."""
    clients = litellm.in_memory_llm_clients_cache.cache_dict
    for name in [name for name in clients if str(name).endswith(f"-{loop_id}")]:
        client = clients.pop(name)
        close = getattr(client, "aclose", None) or getattr(client, "close", None)
        if close is not None:
            with suppress(Exception):  # errors of a closing connection do not matter
                outcome = close()
                if inspect.isawaitable(outcome):
                    await outcome
