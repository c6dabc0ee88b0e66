"""`chatbot mcp` in this process: what it imports takes a process of its own a second."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from mcp import Client
from mcp.server import Server

from chatbot.cli.arguments import build_parser
from chatbot.cli.serve import listen, opened
from chatbot.runtime import Options, Setup


@asynccontextmanager
async def connected(*arguments: str) -> AsyncIterator[Client]:
    """The official client of the server that `chatbot mcp` would be, without a process or a wire between them."""
    async with _opened(*arguments) as (server, _, _), Client(server) as client:
        yield client


@asynccontextmanager
async def _opened(*arguments: str) -> AsyncIterator[tuple[Server[Any], Setup, argparse.Namespace]]:
    words = ["mcp", *arguments]
    args = build_parser(words).parse_args(words)
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    async with opened(setup, args) as server:
        yield server, setup, args


@asynccontextmanager
async def listening(*arguments: str) -> AsyncIterator[str]:
    """The URL of the server on a free port, in this process."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with _opened("--http", "--port", "0", *arguments) as (server, setup, args):
        task = asyncio.create_task(listen(server, setup, args, url.set_result))
        try:
            waited: list[asyncio.Future[Any]] = [task, url]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            yield url.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
