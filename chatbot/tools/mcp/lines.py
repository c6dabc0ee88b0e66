"""Messages of the Model Context Protocol as JSON lines on a pair of byte streams.

The SDK's own standard streams read in threads, which cannot be cancelled: a server would hang on an open pipe after
SIGTERM. These can be cancelled at once; a line that is not a message is skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

logger = logging.getLogger(__name__)

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one message; a peer that sends a longer one is taken for broken, and the streams end."""
_LAST_WORDS_S = 1.0


class LineWriter(Protocol):
    """The half of `asyncio.StreamWriter` that is used."""

    def write(self, data: bytes, /) -> None:
        """Take in some bytes."""

    async def drain(self) -> None:
        """Wait until more may be written."""


Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def message_streams(
    reader: asyncio.StreamReader, writer: LineWriter, *, on_end: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Return the streams of an SDK session. The first ends with the peer, which calls `on_end`."""
    arriving, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    all_written = anyio.Event()

    async def read() -> None:
        await _read(reader, arriving)
        on_end()

    async def write() -> None:
        await _write(leaving, writer)
        all_written.set()
        arriving.close()  # a request that cannot be sent has no answer

    async with incoming, outgoing, arriving, leaving, anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        yield incoming, outgoing
        outgoing.close()
        with anyio.move_on_after(_LAST_WORDS_S):
            await all_written.wait()
        group.cancel_scope.cancel()


async def _read(reader: asyncio.StreamReader, arriving: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    async with arriving:
        with suppress(ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while line := await _next_line(reader):
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    logger.debug("skipped a line that is not a message: %.80r", line)
                    continue
                await arriving.send(SessionMessage(message))


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """A line with its end; empty at the end of the stream."""
    try:
        return await reader.readline()
    except ValueError:
        logger.warning("a message of more than %d bytes arrived: its sender is taken for broken", LONGEST_LINE)
        return b""


async def _write(leaving: MemoryObjectReceiveStream[SessionMessage], writer: LineWriter) -> None:
    async with leaving:
        with suppress(OSError):
            async for sent in leaving:
                writer.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()
