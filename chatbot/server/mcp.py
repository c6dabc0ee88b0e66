"""The MCP server over streamable HTTP, with the access checks of `chatbot serve`: tokens, hosts, origins, limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from chatbot.config import ServerSettings
from chatbot.options import Setup
from chatbot.server.access_checks import AccessChecks, RateLimits, RequestBodies
from chatbot.server.callers import Tokens
from chatbot.server.serve import address_of, listen_on, require_token, uvicorn_config

PATH = "/mcp"
_GRACE_S = 2


async def serve_http(
    server: Server[Any], setup: Setup, settings: ServerSettings, announce: Callable[[str], None]
) -> None:
    """Serve until the task is cancelled; `announce` gets the URL once it can be called. Raises `ConfigError`."""
    tokens = Tokens(setup.server_home)
    require_token(settings.host, tokens, setup)
    most_bytes = settings.body_kb * 1024
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,  # no session that another caller could continue
        max_request_body_size=most_bytes,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # `AccessChecks` does it
    )
    app = RequestBodies(_NoServerStream(app), most_bytes=most_bytes, timeout_s=settings.request_timeout_s)
    if setup.config.telemetry.endpoint:
        from chatbot.telemetry.telemetry import TraceparentMiddleware  # needs the extra

        app = TraceparentMiddleware(app)
    app = AccessChecks(app, settings=settings, tokens=tokens, rates=RateLimits(), identity=setup.identity.name)
    running = _Uvicorn(uvicorn_config(app, settings, grace_s=_GRACE_S))
    with listen_on(settings.host, settings.port) as sock:
        serving = asyncio.create_task(running.serve([sock]), name="MCP over HTTP")
        try:
            announce(f"{address_of(settings.host, sock)}{PATH}")
            await asyncio.shield(serving)
        finally:
            running.should_exit = True
            await asyncio.wait([serving], timeout=2 * _GRACE_S)


class _NoServerStream:
    """Refuses the optional stream of messages from the server (GET) with 405: this server sends none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == PATH:
            return await Response(status_code=405, headers={"allow": "POST"})(scope, receive, send)
        return await self._app(scope, receive, send)


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the command line."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
