"""Serve the app, or the MCP server, over HTTP: sockets, uvicorn, graceful shutdown."""

import asyncio
import logging
import math
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from chatbot.config import ServerSettings
from chatbot.errors import ConfigError
from chatbot.options import SERVER
from chatbot.server.access_checks import IS_SURPLUS, LONGEST_HEAD, AccessChecks, RateLimits, RequestBodies
from chatbot.server.callers import TOKENS, Tokens
from chatbot.trust import is_loopback

if TYPE_CHECKING:
    from mcp.server import Server

    from chatbot.options import Setup
    from chatbot.server.identities import Identities

logger = logging.getLogger(__name__)

_BACKLOG = 2048
"""Connections that wait to be accepted."""
_MOST_FILES = 10_240
"""Files that a server may have open: a connection and a journal are one each. macOS allows no more."""


def require_token(host: str, tokens: Tokens, setup: "Setup") -> None:
    """Raise `ConfigError` without a token, if other machines can reach the server, or the storage before had tokens.

    A database begins without tokens: behind a proxy, a server that was moved to it would be open to everyone.
    """
    if tokens.all():
        return
    if not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, which requires a token: create one with "
            "`chatbot token add LABEL --clearance familiar`, or listen on 127.0.0.1"
        )
    if Tokens(folder := setup.identities / SERVER).all():
        raise ConfigError(
            f"the database has no tokens, but {folder} has: without one, every request from this machine would be the "
            f"owner's; copy them with `chatbot storage copy {folder} URL#.server`, or delete {folder / TOKENS} to need "
            "none"
        )


def listen_on(host: str, port: int) -> socket.socket:
    """Return a socket that listens on that address. Raises `ConfigError`."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.create_server(address, family=family, backlog=_BACKLOG)  # with the zone of IPv6
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "this cannot be the name of a host"
        raise ConfigError(f"{host} port {port} is not available: {why}; choose others by --host and --port") from error
    # Head and body are sent separately: without this, the body would wait 40 ms for an acknowledgement.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)  # noqa: FBT003 - its only argument
    return sock


def address_of(host: str, sock: socket.socket) -> str:
    """Return the URL of the socket, with the host as given."""
    port = sock.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def uvicorn_config(app: ASGIApp, settings: ServerSettings, *, grace_s: int) -> uvicorn.Config:
    """Return uvicorn's configuration; running requests get `grace_s` seconds at shutdown."""
    logging.getLogger("uvicorn.error").addFilter(_is_not_cut_off)
    return uvicorn.Config(
        app,
        http=_ImpatientProtocol,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # forwarded addresses are not trusted
        limit_concurrency=settings.connections,
        timeout_keep_alive=math.ceil(settings.request_timeout_s),
        backlog=_BACKLOG,
        timeout_graceful_shutdown=grace_s,
        h11_max_incomplete_event_size=LONGEST_HEAD,
    )


@lru_cache(maxsize=2)
def _report(text: str, _minute: float) -> None:
    """Log a text, once in a minute as it is cached: the log must not fill the disk."""
    logger.error(text)


def _handle_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an error of the loop; asyncio reports 2,048 times a second that it cannot accept a connection."""
    if context["message"].startswith("socket.accept() out of"):
        why = f"{context['exception'].strerror}: raise the limit of open files, as with `ulimit -n`"
        _report(f"no connection can be accepted: {why}", loop.time() // 60)
    else:
        loop.default_exception_handler(context)


class _ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, which also disconnects clients that send no complete head, or do not read.

    uvicorn waits for both forever: it stops its timer at the first byte, and has none before the first request.
    """

    _abort: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request. Above the limit of connections `AccessChecks` refuses it."""
        super().connection_made(transport)
        most, self.limit_concurrency = self.limit_concurrency, None  # uvicorn would refuse those of all connections
        if most is not None and len(self.connections) > most:
            self.app_state = self.app_state | {IS_SURPLUS: lambda: len(self.connections) > most}
            _report(f"requests over more than [server] connections = {most} are refused", self.loop.time() // 60)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Leave the timer running until `handle_events` has a complete head, and stops it."""
        self.conn.receive_data(data)
        self.handle_events()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._abort = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer."""
        self._abort.cancel()
        super().resume_writing()


async def serve(identities: "Identities", *, ready: Callable[[str], None] = lambda _: None) -> None:
    """Listen on the configured address, and pass its URL to `ready` once the default identity is warm.

    Requests wait until then. Stops in order when the task is cancelled.

    Raises `ConfigError` if the address is not available, or a token is required and none exists.
    """
    settings = identities.settings
    require_token(settings.host, identities.tokens, identities.setup)
    _allow_many_files()
    with listen_on(settings.host, settings.port) as sock:
        await identities.warm()
        ready(address_of(settings.host, sock))
        await _until_cancelled(server_of(identities), sock)


def _is_not_cut_off(record: logging.LogRecord) -> bool:
    """Return False for the traceback of a request cut off by shutdown: uvicorn logs their number in one line."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def server_of(identities: "Identities") -> uvicorn.Server:
    """Return the server, ready to `serve` on a socket; it stops once `should_exit` is set."""
    from chatbot.server.app import create_app  # needs the extra `web`, unlike MCP over HTTP

    settings = identities.settings
    return _Uvicorn(uvicorn_config(create_app(identities), settings, grace_s=settings.shutdown_s))


_MCP_PATH = "/mcp"
_MCP_GRACE_S = 2


async def serve_mcp(
    server: "Server[Any]", setup: "Setup", settings: ServerSettings, ready: Callable[[str], None]
) -> None:
    """Serve MCP over streamable HTTP, with the access checks of `serve`: tokens, hosts, origins, limits.

    Ends when the task is cancelled; `ready` gets the URL once it can be called. Raises `ConfigError`.
    """
    from mcp.server.transport_security import TransportSecuritySettings  # needs the extra `mcp`

    tokens = Tokens(setup.server_home)
    require_token(settings.host, tokens, setup)
    most_bytes = settings.body_kb * 1024
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=_MCP_PATH,
        stateless_http=True,  # no session that another caller could continue
        max_request_body_size=most_bytes,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # `AccessChecks` does it
    )
    app = RequestBodies(_NoServerStream(app), most_bytes=most_bytes, timeout_s=settings.request_timeout_s)
    if setup.config.telemetry.endpoint:
        from chatbot.telemetry.telemetry import TraceparentMiddleware  # needs the extra

        app = TraceparentMiddleware(app)
    app = AccessChecks(app, settings=settings, tokens=tokens, rates=RateLimits(), identity=setup.identity.name)
    running = _Uvicorn(uvicorn_config(app, settings, grace_s=_MCP_GRACE_S))
    with listen_on(settings.host, settings.port) as sock:
        ready(f"{address_of(settings.host, sock)}{_MCP_PATH}")
        await _until_cancelled(running, sock, longest_s=2 * _MCP_GRACE_S)


async def _until_cancelled(server: uvicorn.Server, sock: socket.socket, *, longest_s: float | None = None) -> None:
    """Serve until the task is cancelled; then wait for its end, or so long at most, or for `_cut_off` by Ctrl-C."""
    asyncio.get_running_loop().set_exception_handler(_handle_error)
    serving = asyncio.create_task(server.serve([sock]), name="HTTP server")
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        loop = asyncio.get_running_loop()  # a handler of the loop itself would be called for the first Ctrl-C, too
        signal.signal(signal.SIGINT, lambda *_: loop.is_closed() or loop.call_soon_threadsafe(_cut_off, server))
        await asyncio.wait([serving], timeout=longest_s)


def _cut_off(server: uvicorn.Server) -> None:
    """Cut off the running requests. The next Ctrl-C ends the process, as closing may still take a minute."""
    for request in server.server_state.tasks:
        request.cancel()
    logger.warning("still closing: Ctrl-C again ends at once")
    signal.signal(signal.SIGINT, _end)


def _end(*_: object) -> None:
    logger.warning("ended at once: everything that was said is kept; what hooks had still to do is lost")
    os._exit(128 + signal.SIGINT)


class _NoServerStream:
    """Refuses the optional stream of messages from the server (GET) with 405: this server sends none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == _MCP_PATH:
            return await Response(status_code=405, headers={"allow": "POST"})(scope, receive, send)
        return await self._app(scope, receive, send)


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the command line."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
