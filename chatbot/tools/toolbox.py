"""Running what a model asks for. What goes wrong in a tool becomes text that the model can read, never a lost turn."""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from chatbot.errors import ChatbotError, ConfigError, ToolError, without_folders
from chatbot.messages import ToolCall, ToolSpec
from stores.errors import StoreError, did_you_mean

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Effect:
    """What a call may do to the world, in the words of the Model Context Protocol. The defaults assume the worst."""

    reads_only: bool = False
    """It changes nothing."""
    destroys: bool = True
    """It may change or take away what is there, and not only add to it."""
    repeats_safely: bool = False
    """A second call with the same arguments changes nothing more."""
    reaches_out: bool = True
    """It deals with an open world, such as the web, and not only with what is kept here."""


class Tool(ABC):
    """Something that a model may do. `spec` is what the model is told of it."""

    spec: ToolSpec
    effect: Effect = Effect()
    asks_first: bool = False
    """Whether the user is asked before each call."""
    timeout_s: float | None = None
    """How long a call may take; None leaves it to the toolbox."""

    @abstractmethod
    async def run(self, arguments: dict[str, Any]) -> str:
        """Do it, and return what the model shall read. A `ToolError` tells it what was wrong: `{"error": …}`."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of one call."""

    call: ToolCall
    content: str
    is_error: bool = False


class ToolSource(ABC):
    """Where tools come from that take a while to be there, such as those of another process."""

    @abstractmethod
    async def tools(self) -> Sequence[Tool]:
        """Those that are to be had, as soon as that is known. Never fails: what is wrong is a complaint."""

    @abstractmethod
    def complaints(self) -> list[str]:
        """What the user should know of; each is told once."""


Confirm = Callable[[ToolCall], Awaitable[bool]]
"""Asks the user whether a call may be made."""


class Toolbox:
    """The tools of one agent, their names unlike. Each call may take `timeout_s` seconds.

    Those that are made `later`, and those of the `sources`, join when `complete` is awaited. Without `confirm` no tool
    that asks first can be called.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        later: Callable[[], Iterable[Tool]] | None = None,
        sources: Iterable[ToolSource] = (),
        confirm: Confirm | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._tools: dict[str, Tool] = {}
        self._add(tools)
        self._later = later
        self._sources = list(sources)
        self._confirm = confirm
        self._timeout_s = timeout_s

    async def complete(self) -> list[str]:
        """Wait for the tools that were not there yet; returns what the user should know about them."""
        later, self._later = self._later, None
        self._add(later() if later else ())
        complaints = []
        while self._sources:
            complaints += [
                f"two tools are called {tool.spec.name!r}: the second is left out"
                for tool in await self._sources[0].tools()
                if self._tools.setdefault(tool.spec.name, tool) is not tool
            ]
            complaints += self._sources.pop(0).complaints()
        return complaints

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told."""
        return tuple(tool.spec for tool in self._tools.values())

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run all calls side by side; the results stand in the order of the calls."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_one(call)) for call in calls]
        return [task.result() for task in tasks]

    def _add(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            if tool.spec.name in self._tools:
                raise ConfigError(f"two tools are called {tool.spec.name!r}: leave one out, or rename it")
            self._tools[tool.spec.name] = tool

    async def _run_one(self, call: ToolCall) -> ToolResult:
        try:
            tool, arguments = self._tool(call), _arguments(call)
            if tool.asks_first:
                await self._ask(call)
            return await self._within_time(tool, call, arguments)
        except ChatbotError as error:
            return _failed(call, str(error))
        except StoreError as error:
            return _failed(call, without_folders(str(error)))
        except (Exception, SystemExit) as error:  # a stranger's tool may raise anything; the model shall know it
            logger.exception("the tool %s failed", call.name)
            return _failed(call, f"the tool {call.name!r} failed: {without_folders(str(error))}")

    async def _within_time(self, tool: Tool, call: ToolCall, arguments: dict[str, Any]) -> ToolResult:
        limit = tool.timeout_s or self._timeout_s
        try:
            async with asyncio.timeout(limit):
                return ToolResult(call, await tool.run(arguments))
        except TimeoutError:
            return _failed(call, f"the tool {call.name!r} did not finish within {limit:g} s")

    async def _ask(self, call: ToolCall) -> None:
        if self._confirm is None:
            raise ToolError(
                f"{call.name!r} needs the user's consent, and there is nobody to ask: "
                "call it in a chat in the terminal, or change `confirm` of its server"
            )
        if not await self._confirm(call):
            raise ToolError(f"the user did not allow this call of {call.name!r}: do not try it again unasked")

    def _tool(self, call: ToolCall) -> Tool:
        if call.name not in self._tools:
            raise ToolError(f"there is no tool {call.name!r}{did_you_mean(call.name, self._tools)}")
        return self._tools[call.name]


def _failed(call: ToolCall, why: str) -> ToolResult:
    return ToolResult(call, json.dumps({"error": why}, ensure_ascii=False), is_error=True)


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError as error:
        raise ToolError(f"the arguments of {call.name!r} are no valid JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise ToolError(f"the arguments of {call.name!r} should be an object")
    return arguments
