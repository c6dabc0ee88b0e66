"""Server-sent events: their format, feeds with several readers, and buffered streams."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Generic, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chatbot.server.errors import Problem

PING_S = 15.0
ENCODE_ERROR = "encode_error"
"""Entry of a request's state: the function that makes the last events of its stream from an error."""
_MOST_WAITING = 64 * 1024
_LEAST_PAUSE_S = 1 / 30
"""Pause between two sends, too short to notice: fewer sends cost less."""
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}  # else nginx buffers it


def event(data: Any, name: str | None = None) -> bytes:
    """Format one event; `data` that is not text becomes JSON."""
    head = f"event: {name}\n" if name else ""
    return head.encode() + (_lines(data) if isinstance(data, str) else b"data: " + encoded(data) + b"\n") + b"\n"


def describe_stream(description: str) -> dict[str, Any]:
    """Return the entry of the OpenAPI document for a response that may be a stream."""
    return {"content": {EventStream.media_type: {"itemSchema": {"type": "object"}}}, "description": description}


def _lines(text: str) -> bytes:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "".join(f"data: {line}\n" for line in lines).encode("utf-8", "replace")


def encoded(data: Any) -> bytes:
    """Return data as JSON, which is one line, whatever a client sent: a lone surrogate becomes a question mark."""
    try:
        return msgspec.json.encode(data)
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot encode
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class EventStream(Response):
    """Response that streams events, with periodic comments that keep proxies from closing the connection.

    Events that arrive while a piece is being sent go together into the next one, so that a burst or a slow client takes
    fewer pieces. The source is closed when sending ends; `encode_error` makes the last event if the server stops.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        encode_error: Callable[[Problem], bytes] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers={**_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._events = events
        self._encode_error = encode_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        scope["state"][ENCODE_ERROR] = self._encode_error
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with suppress(OSError):
            await while_wanted(self._send_all(send), until_left(receive), _ping(send))

    async def _send_all(self, send: Send) -> None:
        waiting = _Buffer()
        reading = asyncio.create_task(waiting.read(self._events))
        try:
            while data := await waiting.take():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            await cancel_all([reading])
        if not reading.cancelled() and (error := reading.exception()):
            raise error
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Buffer:
    """Events that were read and not sent yet; beyond `_MOST_WAITING` bytes no more are read."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._size = 0
        self._sent_at = 0.0
        self._has_ended = False
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()

    async def read(self, events: AsyncGenerator[bytes, None]) -> None:
        """Read all events; wait while the buffer is full."""
        try:
            async with aclosing(events):
                async for data in events:
                    self._events.append(data)
                    self._size += len(data)
                    self._changed.set()
                    if self._size > _MOST_WAITING:
                        self._has_room.clear()
                        await self._has_room.wait()
        finally:
            self._has_ended = True
            self._changed.set()

    async def take(self) -> bytes:
        """Return all waiting events, or wait for one; empty at the end. A full buffer is sent without a pause."""
        while not self._events and not self._has_ended:
            self._changed.clear()
            await self._changed.wait()
        pause = self._sent_at + _LEAST_PAUSE_S - time.monotonic()
        if pause > 0 and not self._has_ended and self._size <= _MOST_WAITING:
            await asyncio.sleep(pause)
        self._sent_at = time.monotonic()
        data = b"".join(self._events)
        self._events.clear()
        self._size = 0
        self._has_room.set()
        return data


async def until_left(receive: Receive) -> None:
    """Wait until the client leaves, once its request is read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ping(send: Send) -> None:
    while True:
        await asyncio.sleep(PING_S)
        await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})


Item = TypeVar("Item")


async def while_wanted(work: Awaitable[Item], *others: Awaitable[None]) -> Item | None:
    """Return the result of the work. If one of the others ends first, the work is cancelled and None is returned."""
    tasks = [working := asyncio.ensure_future(work), *map(asyncio.ensure_future, others)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(tasks)
    return None if working.cancelled() else working.result()


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> int:
    """Cancel the tasks, wait until all end, and return how many there were."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(tasks)


class Feed(Generic[Item]):
    """A growing list that can be read while it grows, until it ends."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        """All items so far; `add` adds one."""
        self.readers: int | None = None
        """Number of readers; None before the first."""
        self._has_ended = False
        self._grown = asyncio.Event()

    def add(self, item: Item) -> None:
        """Add an item for every reader."""
        self.items.append(item)
        self._wake()

    def end(self) -> None:
        """End the feed."""
        self._has_ended = True
        self._wake()

    async def read(self) -> AsyncIterator[Item]:
        """Yield every item, from the first on; ends when the feed does."""
        at = 0
        self.readers = (self.readers or 0) + 1
        try:
            while at < len(self.items) or not self._has_ended:
                if at == len(self.items):
                    await self._grown.wait()
                else:
                    yield self.items[at]
                    at += 1
        finally:
            self.readers -= 1

    def _wake(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()
