"""Server-sent events: text that arrives as it comes into being."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PING_S = 15.0
_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_HEADERS = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # else nginx keeps it all back
}


def event(data: Any, name: str | None = None) -> bytes:
    """One event; `data` is JSON unless it is text."""
    text = data if isinstance(data, str) else _encoded(data)
    head = f"event: {name}\n" if name else ""
    lines = "".join(f"data: {line}\n" for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return f"{head}{lines}\n".encode("utf-8", "replace")


def described(**events: tuple[dict[str, Any], str]) -> dict[str, Any]:
    """The content of a stream, for the document: of each event the schema of its data, which is JSON, and a word."""
    one_of = [
        {
            "type": "object",
            "description": about,
            "required": ["event", "data"],
            "properties": {"event": {"const": name}, "data": in_json(schema)},
        }
        for name, (schema, about) in events.items()
    ]
    return {EventStream.media_type: {"itemSchema": {"oneOf": one_of}}}


def in_json(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a text that is JSON of that schema."""
    return {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}


def data(**properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that has these properties, all of them."""
    return {"type": "object", "required": list(properties), "properties": properties}


class EventStream(Response):
    """Sends events as they come, and a comment now and then, lest someone on the way hangs up.

    The source is closed whenever sending ends.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers={**_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - its contract
        """See ASGI."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send_all(send))
        others = [asyncio.create_task(_left(receive)), asyncio.create_task(_ping(send))]
        try:
            await asyncio.wait([sending, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, *others):
                task.cancel()
            await asyncio.gather(sending, *others, return_exceptions=True)
        if not sending.cancelled() and (error := sending.exception()) and not isinstance(error, OSError):
            raise error

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for data in events:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ping(send: Send) -> None:
    while True:
        await asyncio.sleep(PING_S)
        await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
