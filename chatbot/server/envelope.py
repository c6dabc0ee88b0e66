"""Headers of every answer, on all routes: an id, and a note that private content must not be stored on the way.

It also answers `HEAD` where there is a `GET`: the same head, and no body.
"""

from __future__ import annotations

import uuid

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = "x-request-id"
_PRIVATE = ("/v1/", "/mcp")


class Envelope:
    """ASGI middleware, the outermost: what others refuse carries the same."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI request with these headers."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        is_head = scope["method"] == "HEAD"
        request_id = f"req_{uuid.uuid4().hex}"
        is_private = scope["path"].startswith(_PRIVATE)

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault(REQUEST_ID, request_id)
                if is_private:
                    headers.setdefault("cache-control", "no-store")
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        return await self._app({**scope, "method": "GET", "is_head": True} if is_head else scope, receive, send_marked)
