"""One run of a tool server, from its start to its end: its child process, and the lines of JSON in both directions.

The SDK's own standard streams read in threads, which cannot be cancelled: a server would hang on an open pipe after
SIGTERM. These can be cancelled at once; a line that is not a message is skipped. `json` reads lone surrogates, too.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from chatbot.config import McpServerSettings, from_variable
from chatbot.errors import ToolError
from chatbot.stores.base import AsyncResource

logger = logging.getLogger(__name__)

LONGEST_LINE = 16 * 1024 * 1024
"""Maximum bytes of a message; a peer that sends a longer one is considered broken, and the streams end."""


class LineWriter(Protocol):
    """The half of `asyncio.StreamWriter` that is used."""

    def write(self, data: bytes, /) -> None:
        """Accept some bytes."""

    async def drain(self) -> None:
        """Wait until more may be written."""


Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def message_streams(
    reader: asyncio.StreamReader, writer: LineWriter, *, on_end: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Yield the streams of an SDK session. The first ends with the peer; then `on_end` is called."""
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
        with anyio.move_on_after(1.0):
            await all_written.wait()
        group.cancel_scope.cancel()


async def _read(reader: asyncio.StreamReader, arriving: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    async with arriving:
        with suppress(ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while line := await _next_line(reader):
                try:
                    message = jsonrpc_message_adapter.validate_python(json.loads(line), by_name=False)
                except (ValueError, RecursionError):
                    logger.debug("skipped a line that is not a message: %.80r", line)
                    continue
                await arriving.send(SessionMessage(message))


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """Return a line with its end; empty at the end of the stream."""
    try:
        return await reader.readline()
    except ValueError:
        logger.warning("a message of more than %d bytes arrived: its sender is considered broken", LONGEST_LINE)
        return b""


async def _write(leaving: MemoryObjectReceiveStream[SessionMessage], writer: LineWriter) -> None:
    async with leaving:
        with suppress(OSError):
            async for sent in leaving:
                message = sent.message.model_dump(by_alias=True, exclude_unset=True, mode="json")
                writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
                await writer.drain()


_SHARED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Variables passed to a child: no keys."""
_ON_ITS_OWN_S = 1.0
"""Time for a child to end after its input is closed, and again after SIGTERM."""
_STDERR_BYTES = 2_000


@asynccontextmanager
async def running(
    command: Sequence[str], env: Mapping[str, str], folder: Path, stderr_end: bytearray
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Start a command in `folder` with `env` and a minimal environment; its whole group is ended afterwards.

    Its standard error is read to the end, so that it never waits for us; `stderr_end` holds the end of it. Raises
    `OSError` if it cannot be started.
    """
    shared = {name: os.environ[name] for name in _SHARED if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=shared | dict(env),
        cwd=folder,
        start_new_session=True,
        limit=LONGEST_LINE,
    )

    async def listen() -> None:
        with suppress(OSError):
            while process.stderr and (data := await process.stderr.read(_STDERR_BYTES)):
                stderr_end[:] = (stderr_end + data)[-_STDERR_BYTES:]

    try:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a child is started with pipes")
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            yield process.stdout, process.stdin
            group.cancel_scope.cancel()
    finally:
        try:
            with anyio.CancelScope(shield=True):
                await _end(process)
        finally:
            _signal_all(process.pid, signal.SIGKILL)  # even if the line above was cancelled
            with anyio.CancelScope(shield=True):
                await _becomes_true(lambda: process.returncode is not None)  # the event loop is notified a moment later
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - nothing public closes the pipes that an escaped grandchild holds


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input, then terminate the group, then kill it."""
    if process.stdin is not None:
        process.stdin.close()
    await _becomes_true(lambda: process.returncode is not None)
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_all(process.pid, number)
        if await _becomes_true(lambda: not _signal_all(process.pid, 0)):
            break


async def _becomes_true(is_true: Callable[[], bool]) -> bool:
    """Wait for the condition. `process.wait` also waits for pipes, which a grandchild may hold."""
    with anyio.move_on_after(_ON_ITS_OWN_S):
        while not is_true():  # noqa: ASYNC110 - there is no event for the end of a group
            await anyio.sleep(0.01)
        return True
    return False


def _signal_all(group: int, number: int) -> bool:
    """Send a signal to a group; return whether any process is left in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS raises this for a group of zombies
        return True
    return True


async def _read_bounded(response: httpx2.Response) -> None:
    """Read an answer that is no stream of events: the SDK bounds the events, but would read this to any length."""
    stream, data = response.stream, bytearray()
    if "content-encoding" in response.headers or not isinstance(stream, httpx2.AsyncByteStream):
        raise httpx2.DecodingError("the answer is compressed, which was not asked for")
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        async for part in stream:
            data += part
            if len(data) > LONGEST_LINE:
                raise httpx2.ReadError(f"the answer has more than {LONGEST_LINE:,} bytes")
        await stream.aclose()
        response.stream = httpx2.ByteStream(bytes(data))


_CLOSING_S = 5.0


class Connection(AsyncResource):
    """A running server, kept open by its own task: the SDK's scopes must end in the task that began them."""

    def __init__(self, name: str, settings: McpServerSettings, folder: Path) -> None:
        self._name = name
        self._settings = settings
        self._folder = folder
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stderr_end = bytearray()
        self.broken = asyncio.Event()

    async def open(self) -> Client:
        """Start the server. Raises `ToolError` if it does not start in time; nothing is left running."""
        self._task = asyncio.create_task(self._hold(), name=f"MCP server {self._name}")
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                return await asyncio.shield(self._opened)
        except TimeoutError:
            why = f"it did not start within {self._settings.start_timeout_s:g} s"
        except Exception as error:  # noqa: BLE001 - a foreign program and its transport may raise anything
            why = _innermost(error)
        except asyncio.CancelledError:
            await self.aclose()
            raise
        await self.aclose()
        said = self._stderr_end.decode(errors="replace").strip()
        raise ToolError(
            f"the server {self._name!r} cannot be used: {why}{f'; its output: {said[-300:]}' if said else ''}"
        )

    async def aclose(self) -> None:
        """End the server and its child processes."""
        self._closing.set()
        if self._task is None:
            return
        try:
            if not self._opened.cancel():
                await asyncio.wait([self._task], timeout=_CLOSING_S)
        finally:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.shield(asyncio.wait([self._task]))

    async def _hold(self) -> None:
        try:
            async with Client(self._http() if self._settings.url else self._stdio(), cache=None) as client:
                if not self._opened.done():
                    self._opened.set_result(client)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - `open` raises it
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            self.broken.set()
            self._opened.cancel()

    @asynccontextmanager
    async def _stdio(self) -> AsyncIterator[Any]:
        env = {name: self._value(value, f"env {name}") for name, value in self._settings.env.items()}
        folder = self._folder if self._folder.is_dir() else Path.home()
        async with (
            running([self._settings.command, *self._settings.args], env, folder, self._stderr_end) as (reader, writer),
            message_streams(reader, writer, on_end=self.broken.set) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        headers = {name: self._value(value, f"header {name}") for name, value in self._settings.headers.items()}
        timeout = httpx2.Timeout(self._settings.start_timeout_s, read=self._settings.timeout_s + 1)
        headers = {"Accept-Encoding": "identity", **headers}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [_read_bounded]}) as client,
            streamable_http_client(self._settings.url, http_client=client) as streams,
        ):
            yield streams

    def _value(self, text: str, what: str) -> str:
        return from_variable(text, f"the {what} of [mcp.servers.{self._name}]")


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    named = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
    text = " ".join(named.split()) or type(error).__name__
    return f"{text[:1].lower()}{text[1:300]}"
