"""Tools by name, and how their calls run. A failing tool becomes text for the model, never a failed turn.

A name is an entry point of the group `chatbot.tools`, or `package.module:name`. It refers to a plain async function,
which is one tool, to a `Tool`, or to a function that takes the context of a session and returns any number of both.
"""

import asyncio
import inspect
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct

from chatbot.errors import ChatbotError, ConfigError, ToolError, without_folders
from chatbot.messages import ToolCall, ToolSpec, json_in
from chatbot.stores.errors import StoreError, did_you_mean
from chatbot.stores.loops import in_own_task, is_cancelled
from chatbot.stores.plugins import PluginPoint
from chatbot.stores.records import reason_of, well_formed
from chatbot.stores.span import span

logger = logging.getLogger(__name__)


class Effect(Struct, frozen=True):
    """Effect of a call, in the terms of the Model Context Protocol. The defaults assume the worst."""

    reads_only: bool | None = None
    """Changes nothing; None if that is not declared."""
    destroys: bool = True
    """May change or delete existing data, not only add."""
    repeats_safely: bool = False
    """A second call with the same arguments changes nothing more."""
    reaches_out: bool = True
    """Accesses the outside world, such as the web, not only data kept here."""


class Tool(ABC):
    """Tool that a model can call; `spec` is its description for the model."""

    spec: ToolSpec
    effect: Effect = Effect()
    asks_first: bool = False
    """Ask the user before each call."""
    timeout_s: float | None = None
    """Time limit of a call; None: the toolbox's."""
    is_offered: bool = True
    """Describe it to the model; it can be called either way."""

    def without(self, names: Collection[str]) -> "Tool | None":
        """Return the tool without inner tools of these names; None if it has such a name itself."""
        return None if self.spec.name in names else self

    def unwrapped(self, call: ToolCall) -> ToolCall:
        """Return the inner call that a call of this tool requests; for most tools the call itself."""
        return call

    @abstractmethod
    async def run(self, arguments: dict[str, Any]) -> str:
        """Run the tool and return the text for the model. A `ToolError` is passed to it as `{"error": …}`."""


Permission = Literal["once", "session", "denied"]
"""The call is allowed once, allowed with similar calls for this session, or denied."""


class ToolResult(Struct, frozen=True):
    """Result of one call."""

    call: ToolCall
    content: str
    is_error: bool = False
    asked: Permission | None = None
    """The user's answer, if the tool asks first."""
    refusal: str = ""
    """How the user could allow the call, if nobody could be asked."""
    writes: bool | None = None
    """True if it changed something, False if it only read; None if that is not known."""


ToolSource = Callable[[], Awaitable[tuple[Sequence[Tool], Sequence[str]]]]
"""Returns tools that take time to make, such as those of another process, with the problems to report."""
Confirm = Callable[[ToolCall], Awaitable["bool | Permission"]]
"""Asks the user whether a call may be made; True is "once", False "denied"."""


class Toolbox:
    """The tools of one agent, under different names. Each call may take `timeout_s` seconds.

    Those of the `sources` are added by `complete`. Without `confirm` no tool that asks first can be called.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        sources: Iterable[ToolSource] = (),
        confirm: Confirm | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.spec.name in self._tools:
                raise ConfigError(f"two tools are called {tool.spec.name!r}: leave one out, or rename it")
            self._tools[tool.spec.name] = tool
        self._sources = list(sources)
        self._confirm = confirm
        self._timeout_s = timeout_s

    async def complete(self) -> list[str]:
        """Wait for tools that are still starting; return problems to report."""
        complaints = []
        while self._sources:
            tools, problems = await self._sources[0]()
            complaints += [
                f"two tools are called {tool.spec.name!r}: the second is left out"
                for tool in tools
                if self._tools.setdefault(tool.spec.name, tool) is not tool
            ]
            complaints += problems
            del self._sources[0]
        return complaints

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The descriptions for the model."""
        return tuple(tool.spec for tool in self._tools.values() if tool.is_offered)

    def without(self, is_left_out: Callable[[str], bool]) -> "Toolbox":
        """Return these tools without some, by their names."""
        tools = [tool for name, tool in self._tools.items() if not is_left_out(name)]
        return Toolbox(tools, confirm=self._confirm, timeout_s=self._timeout_s)

    def unwrapped(self, call: ToolCall) -> ToolCall:
        """Return the inner call of a tool that calls other tools; any other call unchanged."""
        return self._tools[call.name].unwrapped(call) if call.name in self._tools else call

    async def run(self, calls: Sequence[ToolCall], ended: list[ToolResult] | None = None) -> list[ToolResult]:
        """Run all calls at once, results in their order; `ended` gets each as it comes, so that a stop loses none."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_one(call, [] if ended is None else ended)) for call in calls]
        return [task.result() for task in tasks]

    async def _run_one(self, call: ToolCall, ended: list[ToolResult]) -> ToolResult:
        known = call.name if call.name in self._tools else "unknown"  # any other name is the model's own text
        with span("tool", tool=known, call=call.id) as work:
            result = await self._result_of(call)
            if result.is_error:
                work.fail("ToolError")
            ended.append(result)
            return result

    async def _result_of(self, call: ToolCall) -> ToolResult:
        """Run a call, with the user's consent if the tool asks first; a failure becomes a result, too."""
        answer: Permission | None = None
        refusal = ""
        try:
            tool = self._tools.get(call.name)
            if tool is None:
                raise ToolError(f"unknown tool {call.name!r:.80}{did_you_mean(call.name, self._tools)}")
            arguments = _arguments(call)
            if tool.asks_first:
                try:
                    answer = await self._ask(call)
                except ToolError as error:
                    refusal = str(error)
                    raise
            if answer == "denied":
                raise ToolError(f"the user did not allow this call of {call.name!r}: do not retry it unless asked to")
            content = well_formed(await self._within_limit(tool, arguments))
            reads = tool.effect.reads_only
            return ToolResult(call, content, asked=answer, writes=None if reads is None else not reads)
        except ChatbotError as error:
            why = str(error)
        except StoreError as error:
            why = without_folders(str(error))
        except (Exception, SystemExit) as error:  # a plug-in's tool may raise anything; the model must get an answer
            logger.exception("the tool %s failed", call.name)
            why = f"the tool {call.name!r} failed: {without_folders(reason_of(error))}"
        content = json.dumps({"error": well_formed(why)}, ensure_ascii=False)
        return ToolResult(call, content, is_error=True, asked=answer, refusal=refusal)

    async def _within_limit(self, tool: Tool, arguments: dict[str, Any]) -> str:
        """Run the tool. Raises `ToolError` if it takes too long or cancels itself, and what it raises."""
        seconds = tool.timeout_s or self._timeout_s
        limit = asyncio.timeout(seconds)

        async def run() -> str:
            async with limit:
                return await tool.run(arguments)

        try:
            return await in_own_task(run)
        except TimeoutError:
            if not limit.expired():
                raise  # the tool's own
            why = f"did not finish within {seconds:g} s"
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            why = "cancelled itself"
        raise ToolError(f"the tool {tool.spec.name!r} {why}")

    async def _ask(self, call: ToolCall) -> Permission:
        """Return the user's answer. Raises `ToolError` if nobody can be asked."""
        if self._confirm is None:
            raise ToolError(
                f"{call.name!r} needs the user's consent, which cannot be asked for here: "
                "call it in a chat in the terminal, or name it in `trust` of its server"
            )
        answer = await self._confirm(call)
        if not isinstance(answer, bool) and answer not in get_args(Permission):
            raise TypeError(f"confirm returned {answer!r:.80}: it must be a bool, or {', '.join(get_args(Permission))}")
        return ("once" if answer else "denied") if isinstance(answer, bool) else answer


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the arguments of {call.name!r} are not valid JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise ToolError(f"the arguments of {call.name!r} must be an object")
    return arguments


_KINDS: dict[object, Any] = {"integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict}


def coerce(value: Any, kind: object) -> Any:
    """Return a text parsed as JSON if that gives the type `kind`; else the value, for an array as its only item."""
    if not isinstance(value, str) or kind not in _KINDS:
        return value
    read = json_in(value.lower() if kind == "boolean" else value)
    if isinstance(read, _KINDS[kind]) and isinstance(read, bool) == (kind == "boolean"):
        return read
    return [value] if kind == "array" else value


def result_text(answer: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return the text for the model: text as it is, anything else as JSON; `default` converts what JSON has not."""
    if isinstance(answer, str):
        return answer
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"), default=default)


def shorten(text: str, limit: int) -> str:
    """Return the text; a longer one is cut, with a note."""
    left = len(text) - limit
    return text if left <= 0 else f"{text[:limit]}… [cut: {left:,} characters more]"


TOOLS = PluginPoint(
    group="chatbot.tools",
    own={"memory": "chatbot.chat.memory_tools:session_tools"},
    noun="tools",
    unknown=ConfigError,
    broken=ConfigError,
    invalid=ConfigError,
)


def load(name: str, *, beside: Path | None = None) -> Any:
    """Load the object of that name, also from the folder `beside`. Raises `ConfigError` unless it can be called."""
    found = TOOLS.load(name, beside=beside)
    if not (isinstance(found, Tool) or callable(found)):
        raise ConfigError(
            f"the tools {name!r} are {found!r:.80}: they must be an async function, or a function of a context"
        )
    return found


def tools_of(names: Sequence[str], context: object, *, beside: Path | None = None) -> list[Tool]:
    """Return the tools of the named plug-ins, made for `context`. Raises `ConfigError` with the faulty plug-in."""
    return [tool for name in dict.fromkeys(names) for tool in _tools_of(name, load(name, beside=beside), context)]


def _tools_of(name: str, found: Any, context: object) -> list[Tool]:
    try:
        made = found if _is_one(found) else found(context)
        several = [made] if _is_one(made) else made
        if isinstance(several, str) or not isinstance(several, Iterable):
            raise TypeError(f"{several!r:.80} was returned instead of tools: is `async` missing?")
        return [_tool(each) for each in several]
    except (ChatbotError, StoreError) as error:
        raise ConfigError(f"the tools {name!r} cannot be made: {error}") from error
    except (Exception, SystemExit) as error:  # a plug-in may raise anything
        raise ConfigError(f"the tools {name!r} cannot be made: {reason_of(error)}") from error


def _is_one(found: object) -> bool:
    return isinstance(found, Tool) or inspect.iscoroutinefunction(found)


def _tool(found: Any) -> Tool:
    if isinstance(found, Tool):
        return found
    from chatbot.tools.function import FunctionTool

    return FunctionTool(found)
