"""Tools by their name in the configuration.

A name is an entry point of the group `chatbot.tools`, or `package.module:name`. It refers to a plain async function,
which is one tool, to a `Tool`, or to a function that takes the context of a session and returns any number of both.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from chatbot.errors import ChatbotError, ConfigError
from chatbot.stores.errors import StoreError
from chatbot.stores.plugins import PluginPoint, told
from chatbot.tools.toolbox import Tool

TOOLS = PluginPoint(
    group="chatbot.tools",
    own={"memory": "chatbot.chat.memory_tools:offered"},
    noun="tools",
    unknown=ConfigError,
    broken=ConfigError,
    plural=True,
)


def load(name: str, *, beside: Path | None = None) -> Any:
    """Load the object of that name; the folder `beside` is searched for modules that are not installed.

    Raises `ConfigError` if nothing is found, or nothing callable.
    """
    found = TOOLS.load(name, beside=beside)
    if not (isinstance(found, Tool) or callable(found)):
        raise ConfigError(
            f"the tools {name!r} are {found!r:.80}: they should be an async function, or one of a context"
        )
    return found


def tools_of(names: Sequence[str], context: object, *, beside: Path | None = None) -> list[Tool]:
    """The tools that the names lead to, made for `context`. Raises `ConfigError` naming the plug-in that is wrong."""
    return [tool for name in dict.fromkeys(names) for tool in _made(name, load(name, beside=beside), context)]


def _made(name: str, found: Any, context: object) -> list[Tool]:
    try:
        if isinstance(found, Tool) or inspect.iscoroutinefunction(found):
            return [_tool(found)]
        return [_tool(each) for each in _several(found(context))]
    except (ChatbotError, StoreError) as error:
        raise ConfigError(f"the tools {name!r} cannot be made: {error}") from error
    except (Exception, SystemExit) as error:  # a plug-in may raise anything
        raise ConfigError(f"the tools {name!r} cannot be made: {told(error)}") from error


def _several(made: object) -> Iterable[object]:
    if isinstance(made, Tool) or inspect.iscoroutinefunction(made):
        return [made]
    if isinstance(made, str) or not isinstance(made, Iterable):
        raise TypeError(f"{made!r:.80} was returned, and not tools: is an `async` missing?")
    return made


def _tool(found: Any) -> Tool:
    if isinstance(found, Tool):
        return found
    if inspect.iscoroutinefunction(found):
        from chatbot.tools.function import FunctionTool

        return FunctionTool(found)
    raise TypeError(f"{found!r:.80} is neither a tool nor an async function")
