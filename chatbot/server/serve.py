"""Run the server until it is stopped."""

from __future__ import annotations

from collections.abc import Callable

import uvicorn

from chatbot.server.app import create_app
from chatbot.server.identities import Identities
from chatbot.server.listening import address_of, check_doors, listening, uvicorn_config

_FAREWELL_S = 10


async def serve(house: Identities, *, ready: Callable[[str], None] = lambda _: None) -> None:
    """Listen on the configured address, and pass it to `ready` once a turn needs to load nothing more.

    Earlier requests wait. Stops cleanly on SIGTERM and Ctrl-C.

    Raises `ConfigError` if the address is not available, or other machines can reach it and no token exists.
    """
    settings = house.settings
    check_doors(settings.host, house.tokens)
    with listening(settings.host, settings.port) as sock:
        await house.warm()
        ready(address_of(settings.host, sock))
        await server_of(house).serve(sockets=[sock])


def server_of(house: Identities) -> uvicorn.Server:
    """The server, ready to `serve` on a socket; it stops once `should_exit` is set."""
    return uvicorn.Server(uvicorn_config(create_app(house), house.settings, farewell_s=_FAREWELL_S))
