"""One configured server: its tools, its calls, and its restart after it died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatbot.config import McpServerSettings
from chatbot.errors import ToolError
from chatbot.messages import ToolSpec
from chatbot.stores.errors import did_you_mean
from chatbot.stores.lifecycle import AsyncResource
from chatbot.tools.mcp.connection import Connection
from chatbot.tools.mcp.tool import Clean, RemoteTool
from chatbot.tools.toolbox import Tool, ToolSource

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as Listed

Judge = Callable[[ToolSpec], str | None]
"""Function that returns what is wrong with a tool's description, if anything."""
_MOST_TOOLS = 200
_MOST_PAGES = 20


class Server(AsyncResource):
    """A server that is started when its tools are asked for. One that died is started again once, by the next call."""

    def __init__(self, name: str, settings: McpServerSettings, folder: Path, judge: Judge, clean: Clean) -> None:
        self.name = name
        self._judge = judge
        self._clean = clean
        self._known: list[Listed] = []
        """The tools as they were listed when they were offered."""
        self._changed: set[str] = set()
        """Those that are not listed so since a restart."""
        self.complaints: list[str] = []
        self._settings = settings
        self._folder = folder
        self._connection: Connection | None = None
        self._client: Client | None = None
        self._changing = asyncio.Lock()
        self._is_restarted = False
        """True if the server was restarted since the last successful call."""

    async def tools(self) -> list[Tool]:
        """Return the listed tools that the settings allow. Errors become complaints."""
        try:
            async with asyncio.timeout(self._settings.start_timeout_s * 2):
                listed = self._known = await self._listed(await self._connected())
        except TimeoutError:
            self.complaints.append(f"the server {self.name!r} cannot be used: it did not list its tools in time")
        except ToolError as error:
            self.complaints.append(str(error))
        else:
            return await asyncio.to_thread(self._offered, listed)
        await self.aclose()
        return []

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call the tool and return its result. Raises `ToolError`."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        client = await self._connected()
        connection = self._connection
        if tool in self._changed:
            raise ToolError(
                f"{tool!r} of {self.name!r} describes itself otherwise since its server was restarted: "
                "begin a new chat, which offers it anew and asks again"
            )
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                result = await client.call_tool(tool, arguments)
        except TimeoutError:
            raise ToolError(f"{tool!r} of {self.name!r} did not answer within {self._settings.timeout_s:g} s") from None
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise ToolError(f"{self.name!r} refused the call: {error.message:.500}") from error
            raise self._died(connection, tool) from error
        except Exception as error:  # a transport, or an answer that does not keep to its own schema
            if self._settings.url:
                raise self._died(connection, tool) from error
            raise ToolError(f"the answer of {tool!r} of {self.name!r} cannot be used: {error!s:.300}") from error
        self._is_restarted = False
        return result

    async def aclose(self) -> None:
        """End it. May be called twice."""
        connection, self._connection, self._client = self._connection, None, None
        if connection is not None:
            await connection.aclose()

    async def _connected(self) -> Client:
        """The server, started where it is not there. Raises `ToolError`."""
        async with self._changing:
            if self._connection is not None and self._connection.is_broken:
                if self._is_restarted:
                    raise ToolError(f"the server {self.name!r} failed repeatedly and was disabled")
                self._is_restarted = True
                await self.aclose()
            if self._client is None:
                self._connection = Connection(self.name, self._settings, self._folder)
                self._client = await self._connection.open()
                if self._known:
                    again = await self._listed(self._client)
                    self._changed = {tool.name for tool in self._known if tool not in again}
            return self._client

    def _died(self, connection: Connection | None, tool: str) -> ToolError:
        if connection is not None:
            connection.is_broken = True
        return ToolError(f"the server {self.name!r} ended during {tool!r}: it may or may not have been done")

    async def _listed(self, client: Client) -> list[Listed]:
        listed: list[Listed] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            try:
                page = await client.list_tools(cursor=cursor)
            except Exception as error:  # a foreign server may send anything
                raise ToolError(f"the tools of {self.name!r} cannot be listed: {error!s:.300}") from error
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return listed

    def _offered(self, listed: list[Listed]) -> list[Tool]:
        allowed = self._settings.allow
        names = [tool.name for tool in listed]
        for name in (each for each in allowed or () if each not in names):
            self.complaints.append(
                f"{self.name!r} has no tool {name!r}, which `allow` names{did_you_mean(name, names)}"
            )
        wanted = [tool for tool in listed if allowed is None or tool.name in allowed]
        if len(wanted) > _MOST_TOOLS:
            self.complaints.append(f"{self.name!r} has {len(wanted)} tools: the first {_MOST_TOOLS} are offered")
        tools: dict[str, Tool] = {}
        for each in wanted[:_MOST_TOOLS]:
            try:
                tool = RemoteTool(self.name, each, self._settings, self.call, self._clean)
                self._check(each.name, tool.spec)
            except ToolError as error:
                self.complaints.append(str(error))
                continue
            if tools.setdefault(tool.spec.name, tool) is not tool:
                self.complaints.append(f"{self.name!r} has two tools called {tool.spec.name!r}: the second is left out")
        return list(tools.values())

    def _check(self, name: str, spec: ToolSpec) -> None:
        rule = None if name in self._settings.unjudged else self._judge(spec)
        if rule is not None:
            raise ToolError(
                f"the tool {name!r:.80} of {self.name!r} is left out: its description reads like an instruction "
                f"({rule}); list it in `unjudged` to offer it anyway"
            )


HOW_TO_INSTALL = "the package mcp is not installed: pip install 'chatbot-runtime[mcp]'"


class McpServers(ToolSource, AsyncResource):
    """The tools of the servers in `settings` that `judge` lets pass, once their texts went through `clean`.

    Relative paths start from `folder`.
    """

    def __init__(self, settings: Mapping[str, McpServerSettings], folder: Path, judge: Judge, clean: Clean) -> None:
        self._servers = [Server(name, each, folder, judge, clean) for name, each in settings.items()]
        self._complaints: list[str] = []
        self._starting: asyncio.Task[list[Tool]] | None = None

    def begin(self) -> None:
        """Start them in the background, if that was not done."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="MCP servers")

    async def tools(self) -> Sequence[Tool]:
        """Return the tools of all started servers in the order of the configuration."""
        self.begin()
        return await asyncio.shield(self._starting) if self._starting else []

    def complaints(self) -> list[str]:
        """Return the problems of all servers."""
        told, self._complaints = self._complaints, []
        for server in self._servers:
            told += server.complaints
            server.complaints = []
        return told

    async def aclose(self) -> None:
        """End them all, and everything that they started. May be called twice."""
        try:
            if self._starting is not None and not self._starting.done():
                self._starting.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(asyncio.wait([self._starting]))
        finally:
            async with asyncio.TaskGroup() as group:
                for server in self._servers:
                    group.create_task(server.aclose())

    async def _start(self) -> list[Tool]:
        if not self._servers:
            return []
        if find_spec("mcp") is None:
            self._complaints.append(f"no server of tools can be used: {HOW_TO_INSTALL}")
            return []
        await asyncio.to_thread(__import__, "mcp")  # takes half a second, in which someone may be typing
        async with asyncio.TaskGroup() as group:
            offers = [group.create_task(server.tools()) for server in self._servers]
        return [tool for offer in offers for tool in offer.result()]
