"""All servers of the configuration, started side by side when they are first wanted, and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from chatbot.config import McpServerSettings
from chatbot.stores.lifecycle import AsyncResource
from chatbot.tools.mcp.server import Judge, Server
from chatbot.tools.toolbox import Tool, ToolSource

HOW_TO_INSTALL = "the package mcp is not installed: pip install 'chatbot-runtime[mcp]'"


class McpServers(ToolSource, AsyncResource):
    """The tools of the servers in `settings` that `judge` lets pass. Relative paths start from `folder`."""

    def __init__(self, settings: Mapping[str, McpServerSettings], folder: Path, judge: Judge) -> None:
        self._servers = [Server(name, each, folder, judge) for name, each in settings.items()]
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
