"""One run of a server, from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatbot.config import McpServerSettings, from_variable
from chatbot.errors import ConfigError, ToolError
from chatbot.stores.lifecycle import AsyncResource

if TYPE_CHECKING:
    from mcp import Client

_CLOSING_S = 5.0

Transport = AbstractAsyncContextManager[Any]


class Connection(AsyncResource):
    """A task of its own holds the server, because the SDK's scopes end in the task that began them."""

    def __init__(self, name: str, settings: McpServerSettings, folder: Path) -> None:
        self._name = name
        self._settings = settings
        self._folder = folder
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._said: Callable[[], bytes] = lambda: b""
        self.is_broken = False

    async def open(self) -> Client:
        """Start the server. Raises `ToolError` if it does not start in time; nothing is left running."""
        self._task = asyncio.create_task(self._hold(), name=f"MCP server {self._name}")
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                return await asyncio.shield(self._opened)
        except TimeoutError:
            why = f"it did not start within {self._settings.start_timeout_s:g} s"
        except ConfigError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - a foreign program and its transport may raise anything
            why = _innermost(error)
        except asyncio.CancelledError:
            await self.aclose()
            raise
        await self.aclose()
        said = self._said().decode(errors="replace").strip()
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
        from mcp import Client

        try:
            async with Client(self._transport(), cache=None) as client:
                if not self._opened.done():
                    self._opened.set_result(client)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - `open` raises it
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            self.is_broken = True
            self._opened.cancel()

    def _transport(self) -> Transport:
        return self._http() if self._settings.url else self._stdio()

    @asynccontextmanager
    async def _stdio(self) -> AsyncIterator[Any]:
        from chatbot.tools.mcp.lines import message_streams, running

        settings = self._settings
        env = {name: self._value(value, f"env {name}") for name, value in settings.env.items()}
        folder = self._folder if self._folder.is_dir() else Path.home()
        async with running(_command(settings, self._folder), env, folder) as child:
            self._said = lambda: child.last_words
            async with message_streams(child.stdout, child.stdin, on_end=self._break) as streams:
                yield streams

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        headers = {name: self._value(value, f"header {name}") for name, value in self._settings.headers.items()}
        timeout = httpx2.Timeout(self._settings.start_timeout_s, read=self._settings.timeout_s + 1)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=timeout))
            yield await stack.enter_async_context(streamable_http_client(self._settings.url, http_client=client))

    def _value(self, text: str, what: str) -> str:
        return from_variable(text, f"the {what} of [mcp.servers.{self._name}]")

    def _break(self) -> None:
        self.is_broken = True


def _command(settings: McpServerSettings, folder: Path) -> Sequence[str]:
    """The command line; a program named with a folder is looked for from the configuration's folder."""
    program = Path(settings.command).expanduser()
    is_path = len(program.parts) > 1
    return [str(folder / program) if is_path else settings.command, *settings.args]


def _innermost(error: BaseException) -> str:
    """Return the innermost error of exception groups in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text[:1].lower()}{text[1:300]}"
