"""Limits on request bodies: JSON for the API and MCP, forms for the page, bounded in size and time.

The app gets a body when it is complete.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatbot.server.errors import INVALID, Problem

_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_TAKEN = {"/v1/": _JSON, "/mcp": _JSON, "/i/": _FORM, "/log": _FORM}
"""Required media types by start of the path."""


class Bodies:
    """ASGI middleware that reads the bodies of requests to the API, to the page and over MCP."""

    def __init__(self, app: ASGIApp, *, most_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read and check the body of one request."""
        taken = _taken(scope["path"]) if scope["type"] == "http" else None
        if taken is None:
            return await self._app(scope, receive, send)
        body = await self._read(scope, receive, taken)
        if isinstance(body, Problem):
            return await body.response()(scope, receive, send)
        scope["state"]["body"] = body
        return await self._app(scope, _replaying(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive, taken: str) -> bytes | Problem:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._most_bytes:
            return self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self._timeout_s):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > self._most_bytes:
                        return self._too_large()
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            return _last(408, "request_timeout", f"the request did not arrive within {self._timeout_s:g} s")
        if body and scope["method"] not in _WITHOUT_BODY and _media_type(headers) != taken:
            return Problem(415, INVALID, "unsupported_media_type", f"the body must be sent as {taken}")
        return bytes(body)

    def _too_large(self) -> Problem:
        return _last(413, "body_too_large", f"a request may hold at most {self._most_bytes:,} bytes: see body_kb")


def _last(status: int, code: str, message: str) -> Problem:
    """A refusal with the rest of the request unread: the connection cannot be used again."""
    return Problem(status, INVALID, code, message, headers={"connection": "close"})


def _taken(path: str) -> str | None:
    return next((media_type for begin, media_type in _TAKEN.items() if path.startswith(begin)), None)


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _replaying(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
