"""The open runtimes of a server: unused ones are closed, and opened again on demand."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from chatbot.runtime import Runtime
from chatbot.server.identity_access import IDLE_S
from chatbot.stores.base import AsyncResource

MOST = 256
"""Number of open runtimes above which unused ones are closed; each takes 80 kB, and 10,000 memories a few MB."""
SPARED_S = 60.0
"""A runtime that was used within this time stays open: work after a turn may still need it."""

_used_by_request: ContextVar[set[str] | None] = ContextVar("_used_by_request", default=None)


@dataclass(slots=True)
class OpenRuntime:
    """A runtime, and when it was last used."""

    runtime: Runtime
    used_at: float


class OpenRuntimes(AsyncResource):
    """The open runtimes, the longest unused first. `open_one` opens one by the name of its identity.

    `is_busy` returns whether an identity must stay open. `on_close` is called before a runtime is closed, to drop other
    references to it.
    """

    def __init__(
        self,
        open_one: Callable[[str], Coroutine[Any, Any, Runtime]],
        *,
        is_busy: Callable[[str], bool],
        on_close: Callable[[str], Awaitable[None]],
    ) -> None:
        self._open_one = open_one
        self._is_busy = is_busy
        self._on_close = on_close
        self._all: OrderedDict[str, OpenRuntime] = OrderedDict()
        self._opening: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()

    async def get(self, identity: str) -> Runtime:
        """Return the runtime of an identity. It stays open until the current request is answered."""
        self._note_use(identity)
        while (opened := self._all.get(identity)) is None:
            async with self._opening.setdefault(identity, asyncio.Lock()):
                if identity not in self._all:
                    await self._open(identity)
        self._note_time(identity)
        return opened.runtime

    async def reopen(self, identity: str) -> None:
        """Open an identity again, and close its former runtime. If opening raises an error, nothing changes."""
        async with self._opening.setdefault(identity, asyncio.Lock()):
            former = self._all.get(identity)
            await self._open(identity)
            await self._on_close(identity)
        if former is not None:
            await former.runtime.aclose()

    async def close_unused(self) -> int:
        """Close runtimes unused for `IDLE_S`, and the longest unused above `MOST`; return how many."""
        now, surplus, closed = monotonic(), len(self._all) - MOST, 0
        for at, (identity, opened) in enumerate(list(self._all.items())):
            unused_s = now - opened.used_at
            if unused_s >= SPARED_S and (unused_s >= IDLE_S or at < surplus):
                closed += await self._close(identity, opened)
        return closed

    @contextmanager
    def request(self) -> Iterator[None]:
        """Keep runtimes that are used in the block open until it ends."""
        used: set[str] = set()
        token = _used_by_request.set(used)
        try:
            yield
        finally:
            _used_by_request.reset(token)
            for identity in used:
                self._release(identity)

    async def aclose(self) -> None:
        """Close all runtimes."""
        while self._all:
            _, opened = self._all.popitem()
            await opened.runtime.aclose()

    async def _open(self, identity: str) -> None:
        # The runtime outlives this request: it must not join its trace.
        runtime = await asyncio.create_task(self._open_one(identity), context=Context())
        self._all[identity] = OpenRuntime(runtime, monotonic())

    async def _close(self, identity: str, opened: OpenRuntime) -> bool:
        if self._all.get(identity) is not opened or self._opening[identity].locked():
            return False  # it was reopened meanwhile, or is being reopened
        if self._users[identity] or self._is_busy(identity) or not opened.runtime.is_at_rest:
            self._note_time(identity)
            return False
        del self._all[identity]
        del self._opening[identity]
        await self._on_close(identity)
        await opened.runtime.aclose()
        return True

    def _note_use(self, identity: str) -> None:
        used = _used_by_request.get()
        if used is not None and identity not in used:
            used.add(identity)
            self._users[identity] += 1

    def _release(self, identity: str) -> None:
        self._users[identity] -= 1
        if not self._users[identity]:
            del self._users[identity]
        self._note_time(identity)

    def _note_time(self, identity: str) -> None:
        if (opened := self._all.get(identity)) is not None:
            opened.used_at = monotonic()
            self._all.move_to_end(identity)


class IdentityUse:
    """Innermost ASGI middleware: the runtimes of a request stay open until its whole answer is sent."""

    def __init__(self, app: ASGIApp, *, runtimes: OpenRuntimes) -> None:
        self._app = app
        self._runtimes = runtimes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        with self._runtimes.request():
            return await self._app(scope, receive, send)
