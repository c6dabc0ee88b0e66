"""The server on standard input and output, on which nothing but the protocol is ever written."""

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import IO, Any

from mcp.server import Server

from chatbot.messages import json_in
from chatbot.tools.mcp.connection import LONGEST_LINE, LineWriter, message_streams


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until its end of the pipe is closed and its requests are answered, or the task is cancelled."""
    sys.stdout.flush()
    with _exclusive(0, "rb") as stdin, _exclusive(1, "wb") as stdout:
        async with (
            _reading(stdin) as reader,
            _writing(stdout) as writer,
            message_streams(client := _Client(reader, writer), client) as (incoming, outgoing),
        ):
            await server.run(incoming, outgoing, server.create_initialization_options())


_LONGEST_WAIT_S = 60.0


class _Client(asyncio.StreamReader):
    """The pipes of the client. The end of the input is held back while requests are open: the SDK would drop them."""

    def __init__(self, reader: asyncio.StreamReader, writer: LineWriter) -> None:
        super().__init__()
        self._input, self._output = reader, writer
        self._open: set[str | int] = set()

    async def readline(self) -> bytes:
        """Return the next line; at the end of the input, once the requests are answered, an empty one."""
        line = await self._input.readline()
        match json_in(line.decode(errors="replace")):
            case {"jsonrpc": "2.0", "method": str(), "id": str() | int() as request}:
                self._open.add(request)
            case {"method": "notifications/cancelled", "params": {"requestId": str() | int() as request}}:
                self._open.discard(request)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_WAIT_S):
                while not line and self._open:  # noqa: ASYNC110 - `write` has no task to wait for
                    await asyncio.sleep(0.01)
        return line

    def write(self, data: bytes, /) -> None:
        """Write a message."""
        self._open.discard(json.loads(data).get("id"))
        self._output.write(data)

    async def drain(self) -> None:
        """Wait until more may be written."""
        await self._output.drain()


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
