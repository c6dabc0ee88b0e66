"""`chatbot serve`: the HTTP server."""

from __future__ import annotations

import argparse
import logging
import sys
from importlib.util import find_spec

from chatbot.cli.exits import Exit
from chatbot.cli.output import say
from chatbot.errors import ConfigError
from chatbot.runtime import Options

_NEEDED = ("fastapi", "markdown_it", "nh3", "uvicorn")


async def run(args: argparse.Namespace) -> Exit:
    """Serve until Ctrl-C or SIGTERM."""
    check_extra()
    from chatbot.server.identities import Identities
    from chatbot.server.serve import serve

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    options = Options(
        config=args.config,
        identity=args.identity,
        agent=args.agent,
        model=args.model,
        ephemeral=args.ephemeral,
        host=args.host,
        port=args.port,
        namespace=args.namespace,
    )
    async with Identities(options) as identities:
        await serve(identities, ready=_tell)
    return Exit.OK


def _tell(address: str) -> None:
    say(f"{address} (Ctrl-C stops)")


def check_extra() -> None:
    """Raise `ConfigError` if the packages of the extra `web` are not installed."""
    if not all(_is_installed(name) for name in _NEEDED):
        raise ConfigError("chatbot serve needs the extra `web`: pip install 'chatbot-runtime[web]'")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # a module without a spec is loaded
        return False
