"""The server on streamable HTTP: loopback by default, a token for anything else, Host and Origin always checked."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from chatbot.errors import ConfigError

PATH = "/mcp"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_GRACE_S = 2


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, and who may come in. Port 0 takes one that is free."""

    host: str
    port: int
    token: str = ""
    names: Sequence[str] = ()
    """Names of the server beside those of loopback and `host`."""

    def check(self) -> None:
        """Raise `ConfigError` where others than this machine could come in without a token."""
        if not self.token and not _is_loopback(self.host):
            raise ConfigError(
                f"{self.host} can be reached by others: set a token, in CHATBOT_MCP__TOKEN or with --token, "
                "or listen on 127.0.0.1"
            )

    def security(self) -> TransportSecuritySettings:
        """The hosts and origins that the SDK lets in: pages of other sites are never among them."""
        own = f"[{self.host}]" if ":" in self.host else self.host
        hosts = [*_LOOPBACK, own, *self.names]
        return TransportSecuritySettings(
            allowed_hosts=[form for host in hosts for form in (host, f"{host}:*")],
            allowed_origins=[
                f"{scheme}://{form}" for host in hosts for scheme in ("http", "https") for form in (host, f"{host}:*")
            ],
        )


async def serve_http(server: Server[Any], address: Address, announce: Callable[[str], None]) -> None:
    """Serve until the task is cancelled; `announce` is told the URL once it can be called. Raises `ConfigError`."""
    address.check()
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH, host=address.host, transport_security=address.security()
    )
    listening = _listen(address)
    door = _Door(app, address.token) if address.token else app
    config = uvicorn.Config(door, log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE_S)
    running = _Uvicorn(config)
    host, port = listening.getsockname()[:2]
    serving = asyncio.create_task(running.serve([listening]), name="MCP over HTTP")
    try:
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")
        await asyncio.shield(serving)
    finally:
        running.should_exit = True
        await asyncio.wait([serving], timeout=2 * _GRACE_S)
        listening.close()


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the command line."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Door:
    """Lets in who sends the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            given = Headers(scope=scope).get("authorization", "")
            if not hmac.compare_digest(given.encode("latin-1"), self._expected):
                app = PlainTextResponse("a bearer token is needed", 401, {"www-authenticate": "Bearer"})
        await app(scope, receive, send)


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(
            f"port {address.port} of {address.host} cannot be listened on: {error.strerror or error}: "
            "give another with --port"
        ) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
