"""Run the server until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from chatbot.server.app import create_app
from chatbot.server.identities import Identities
from chatbot.server.listening import address_of, check_doors, listening, uvicorn_config

_FAREWELL_S = 10
"""Seconds that running requests get at shutdown."""


async def serve(identities: Identities, *, ready: Callable[[str], None] = lambda _: None) -> None:
    """Listen on the configured address, and pass it to `ready` once a turn needs to load nothing more.

    Earlier requests wait. Stops cleanly on SIGTERM and Ctrl-C.

    Raises `ConfigError` if the address is not available, or other machines can reach it and no token exists.
    """
    settings = identities.settings
    check_doors(settings.host, identities.tokens)
    with listening(settings.host, settings.port) as sock:
        await identities.warm()
        ready(address_of(settings.host, sock))
        await server_of(identities).serve(sockets=[sock])


def server_of(identities: Identities) -> uvicorn.Server:
    """The server, ready to `serve` on a socket; it stops once `should_exit` is set."""
    return _Server(identities)


class _Server(uvicorn.Server):
    """Lets go of those who follow changes when it stops: they would never end by themselves."""

    def __init__(self, identities: Identities) -> None:
        super().__init__(uvicorn_config(create_app(identities), identities.settings, farewell_s=_FAREWELL_S))
        self._identities = identities

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Override `uvicorn.Server`."""
        self._identities.followers.end()
        await super().shutdown(sockets)
