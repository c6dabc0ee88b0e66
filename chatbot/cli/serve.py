"""`chatbot serve`: the HTTP server; `chatbot mcp`: memory for other agents over the Model Context Protocol."""

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from chatbot.cli.from_arguments import options_of, setup_of
from chatbot.cli.output import say, warn
from chatbot.cli.run import TerminalFormatter
from chatbot.errors import ConfigError
from chatbot.options import Setup
from chatbot.stores.errors import InvalidValue
from chatbot.telemetry import open_telemetry
from chatbot.tools.mcp.server import HOW_TO_INSTALL

if TYPE_CHECKING:
    from mcp.server import Server


async def run(args: argparse.Namespace) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    try:
        import chatbot.server.app  # noqa: F401 - it needs all that the extra brings
        from chatbot.server.identities import Identities
        from chatbot.server.serve import serve
    except ModuleNotFoundError as error:
        raise ConfigError("chatbot serve needs the extra `web`: pip install 'chatbot-runtime[web]'") from error

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_name_request)
        handler.setFormatter(TerminalFormatter(_LINE, "%Y-%m-%dT%H:%M:%S%z"))
    options = replace(options_of(args), host=args.host, port=args.port, namespace=args.namespace)
    async with Identities(options) as identities:
        # each token has its own setting
        remembers = identities.settings.memory == "on" or bool(identities.tokens.all())
        await serve(identities, ready=partial(_say_ready, remembers=remembers))


_LINE = "%(asctime)s %(levelname)s %(name)s%(request)s: %(message)s"


def _name_request(record: logging.LogRecord) -> bool:
    """Let a line of the log name the request that it is about: a filter that drops none."""
    from chatbot.server.errors import REQUEST

    vars(record)["request"] = REQUEST.get()
    return True


def _say_ready(address: str, *, remembers: bool) -> None:
    if not remembers:
        warn('clients that name no session are not remembered: set memory = "on" in [server] to change that')
    say(f"{address} (Ctrl-C stops)")
    sys.stdout.flush()  # also to a pipe or a file: the server keeps running


HOST, PORT = "127.0.0.1", 8808
"""The usual address of `chatbot mcp --http`."""


async def run_mcp(args: argparse.Namespace) -> None:
    """Serve until the client leaves, or until a signal."""
    if find_spec("mcp") is None:
        raise ConfigError(HOW_TO_INSTALL)
    given = [f"--{name}" for name in ("host", "port") if getattr(args, name) is not None]
    if given and not args.http:
        raise InvalidValue(f"{' and '.join(given)} can only be used with --http")
    setup = setup_of(args, project=args.project)
    setup.check()
    with suppress(asyncio.CancelledError):  # a signal ended it, and everything is closed
        async with opened(setup, args) as server:
            await _serve(server, setup, args)


@asynccontextmanager
async def opened(setup: Setup, args: argparse.Namespace) -> "AsyncIterator[Server[Any]]":
    """Open the memory that these arguments name, and yield its MCP server."""
    from chatbot.mcp.surface import server_for

    observations, clearance = setup.observation_store(), setup.clearance(args.clearance)
    telemetry = open_telemetry(setup.config.telemetry)
    observer = telemetry.observer if telemetry else None
    async with (
        telemetry or nullcontext(),
        setup.open_memory(
            observations=observations,
            clearance=clearance,
            observer=observer,
            namespace=args.namespace,
            project=setup.project,
        ) as memory,
    ):
        yield server_for(memory, setup.agent)


async def _serve(server: "Server[Any]", setup: Setup, args: argparse.Namespace) -> None:
    if args.http:
        name = setup.identity.name
        await listen(server, setup, args, lambda url: warn(f"serving {name} at {url}"))
        return
    from chatbot.mcp.stdio import serve_stdio

    if sys.stdin.isatty():
        warn("waiting for an MCP client on standard input, see docs/mcp.md; Ctrl-D ends it")
    await serve_stdio(server)


async def listen(server: "Server[Any]", setup: Setup, args: argparse.Namespace, ready: Callable[[str], None]) -> None:
    """Serve over HTTP until it is cancelled; `ready` is called with the URL."""
    from chatbot.server.serve import serve_mcp

    port = PORT if args.port is None else args.port
    await serve_mcp(server, setup, replace(setup.owners.server, host=args.host or HOST, port=port), ready)
