"""Limits on request bodies: JSON for the API and MCP, forms for the page, bounded in size and time.

The app gets a body only when it is complete.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatbot.server.errors import Problem

_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_MEDIA_TYPES = {"/v1/": _JSON, "/mcp": _JSON, "/i/": _FORM, "/log": _FORM}
"""Required media types by start of the path."""
_WITH_FILES = re.compile(r"/v1/(chat/completions|responses|sync|sessions/[^/]+/chat)|/i/[^/]+/(say|c/[^/]+/say)")
"""Paths to which files may be sent."""
_FILE = re.compile(rb"data(?::|%3A)[\w.+/%;= -]{0,200}?base64(?:,|%2C)[\w+/=%-]*", re.IGNORECASE)
"""A `data:` URL in JSON or in a form; text that only begins like one counts as text."""
_READ_ON = 4
"""A request with files that is up to this many times the limit is read to its end before it is refused."""
_PER_TIMEOUT = 1 << 20
"""Bytes for which a request gets its time limit once more."""


class Bodies:
    """ASGI middleware that reads the bodies of requests to the API, to the page and over MCP."""

    def __init__(self, app: ASGIApp, *, most_bytes: int, timeout_s: float, attached_bytes: int = 0) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._attached_bytes = attached_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read and check the body of one request."""
        media_type = next(
            (kind for begin, kind in _MEDIA_TYPES.items() if scope.get("path", "").startswith(begin)), None
        )
        if media_type is None or scope["type"] != "http":
            return await self._app(scope, receive, send)
        body = await self._read(scope, receive, media_type)
        if body is None:
            return None
        if isinstance(body, Problem):
            return await body.response()(scope, receive, send)
        scope["state"]["body"] = body
        return await self._app(scope, replay_body(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive, media_type: str) -> bytes | Problem | None:  # noqa: PLR0911 - one for each fault
        """Return the whole body, or why it is refused; None if the client left before its end."""
        headers = Headers(scope=scope)
        takes_files = _WITH_FILES.fullmatch(scope["path"]) is not None
        most = self._most_bytes + (self._attached_bytes if takes_files else 0)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            if takes_files and length.isdecimal() and int(length) < _READ_ON * most:
                await self._read_on(receive)
            return self._too_large(takes_files=takes_files)
        body = bytearray()
        timeout_s = self._timeout_s * (1 + int(length) // _PER_TIMEOUT)
        try:
            async with asyncio.timeout(timeout_s):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > most:
                        return self._too_large(takes_files=takes_files)
                    if not message.get("more_body"):
                        break
                else:  # the client left
                    return None
        except TimeoutError:
            return _closing_refusal(408, "request_timeout", f"the request did not arrive within {timeout_s:g} s")
        if len(body) > self._most_bytes and len(_FILE.sub(b"", body)) > self._most_bytes:
            return self._too_large(takes_files=False)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and scope["method"] not in _WITHOUT_BODY and kind != media_type:
            return Problem(415, "unsupported_media_type", f"the body must be sent as {media_type}")
        return bytes(body)

    async def _read_on(self, receive: Receive) -> None:
        """Read and discard the rest: a client that is still sending would not see the answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                while (message := await receive())["type"] == "http.request" and message.get("more_body"):
                    pass

    def _too_large(self, *, takes_files: bool) -> Problem:
        files = f", and {self._attached_bytes:,} bytes of files in base64: see attachments_kb" if takes_files else ""
        most = f"a request may hold at most {self._most_bytes:,} bytes: see body_kb{files}"
        return _closing_refusal(413, "body_too_large", most)


def _closing_refusal(status: int, code: str, message: str) -> Problem:
    """Return a refusal that closes the connection, as the rest of the request is unread."""
    return Problem(status, code, message, headers={"connection": "close"})


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives the body, and then later messages."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
