"""Runs the server of a house until it is told to stop."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable

import uvicorn

from chatbot.errors import ConfigError
from chatbot.server.app import create_app
from chatbot.server.doors import is_loopback
from chatbot.server.house import House
from chatbot.server.protocol import impatient

_FAREWELL_S = 10
_LONGEST_HEAD = 32 * 1024


async def serve(house: House, *, ready: Callable[[str], None] = lambda _: None) -> None:
    """Listen as the settings say, and tell `ready` the address. Stops in order on SIGTERM and Ctrl-C.

    Raises `ConfigError` where the address cannot be listened on, or where others could reach it and nobody has a token.
    """
    check_doors(house)
    settings = house.settings
    with listening(settings.host, settings.port) as sock:
        ready(_address(settings.host, sock.getsockname()[1]))
        await server_of(house).serve(sockets=[sock])


def server_of(house: House) -> uvicorn.Server:
    """The server, ready to `serve` on a socket; it stops once `should_exit` is set."""
    settings = house.settings
    return uvicorn.Server(
        uvicorn.Config(
            create_app(house),
            http=impatient(settings.request_timeout_s),
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nobody may claim to come from elsewhere
            limit_concurrency=settings.connections,
            timeout_keep_alive=math.ceil(settings.request_timeout_s),
            timeout_graceful_shutdown=_FAREWELL_S,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )
    )


def check_doors(house: House) -> None:
    """Raise `ConfigError` where others could reach the server and nobody has a token."""
    host = house.settings.host
    if not is_loopback(host) and not house.tokens.all():
        raise ConfigError(
            f"{host} can be reached from other machines, so whoever comes needs a token: make one with "
            "`chatbot token add LABEL --clearance familiar`, or listen on 127.0.0.1"
        )


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises `ConfigError`."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"{host} port {port} cannot be listened on: {error.strerror or error}") from error
    sock.setblocking(False)  # noqa: FBT003 - that is its name
    return sock


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
