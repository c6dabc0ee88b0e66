"""The server on standard input and output, on which nothing but the protocol is ever written."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import IO, Any

from mcp.server import Server

from chatbot.tools.mcp.connection import LONGEST_LINE, LineWriter, message_streams


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until its end of the pipe is closed, or the task is cancelled."""
    sys.stdout.flush()
    with _exclusive(0, "rb") as stdin, _exclusive(1, "wb") as stdout:
        async with (
            _reading(stdin) as reader,
            _writing(stdout) as writer,
            message_streams(reader, writer) as (incoming, outgoing),
        ):
            await server.run(incoming, outgoing, server.create_initialization_options())


@contextmanager
def _exclusive(number: int, mode: str) -> Iterator[IO[bytes]]:
    """Yield a standard stream for us alone: other code writes to standard error instead, and reads nothing."""
    private = os.dup(number)
    other = os.open(os.devnull, os.O_RDONLY) if mode == "rb" else os.dup(2)
    os.dup2(other, number)
    os.close(other)
    try:
        with os.fdopen(os.dup(private), mode, buffering=0) as file:
            yield file
    finally:
        os.set_blocking(private, True)
        os.dup2(private, number)
        os.close(private)


@asynccontextmanager
async def _reading(file: IO[bytes]) -> AsyncIterator[asyncio.StreamReader]:
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    mode = os.fstat(file.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty()):  # a file, or /dev/null: it ends
        reader.feed_data(file.read())
        reader.feed_eof()
        yield reader
        return
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        yield reader
    finally:
        transport.close()


@asynccontextmanager
async def _writing(file: IO[bytes]) -> AsyncIterator[LineWriter]:
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, file)
    except (ValueError, OSError):
        yield _FileWriter(file)
        return
    try:
        yield asyncio.StreamWriter(transport, protocol, None, loop)
    finally:
        transport.close()


class _FileWriter:
    """Writes to a file, which needs no waiting."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes, /) -> None:
        self._file.write(data)

    async def drain(self) -> None:
        """Do nothing: no output is buffered."""
