"""From a name in the configuration to tools.

A name is that of an entry point in the group `chatbot.tools`, where our own stand like any stranger's, or
`package.module:name`. Either leads to a plain async function, which is one tool, to a `Tool`, or to a function that is
called with the context of a session and returns any number of both. Listing names imports nothing.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from chatbot.errors import ChatbotError, ConfigError
from chatbot.tools.function import FunctionTool
from chatbot.tools.toolbox import Tool
from stores.errors import StoreError, did_you_mean

GROUP = "chatbot.tools"
OWN_PLUGINS = {"memory": "chatbot.chat.memory_tools:offered"}
"""Ours, which are registered like any stranger's, and found even where the registration is out of date."""


def installed() -> dict[str, EntryPoint]:
    """Every installed plug-in by name, none of them imported."""
    found = {name: EntryPoint(name, where, GROUP) for name, where in OWN_PLUGINS.items()}
    return found | {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def load(name: str, *, beside: Path | None = None) -> Any:
    """What the name leads to. Modules that are not installed are also looked for in the folder `beside`.

    Raises `ConfigError` where there is nothing, or nothing that can be called.
    """
    found = _import(name, beside) if ":" in name else _load_installed(name)
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
    except Exception as error:  # a stranger's function may raise anything
        raise ConfigError(f"the tools {name!r} cannot be made: {_told(error)}") from error


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
        return FunctionTool(found)
    raise TypeError(f"{found!r:.80} is no tool and no async function")


def _load_installed(name: str) -> object:
    point = installed().get(name)
    if point is None:
        raise ConfigError(f"no tools are called {name!r}{did_you_mean(name, installed())}")
    try:
        return point.load()
    except Exception as error:  # a stranger's module may raise anything
        raise ConfigError(f"the tools {name!r} ({point.value}) cannot be loaded: {_told(error)}") from error


def _import(name: str, beside: Path | None) -> object:
    module, _, attribute = name.partition(":")
    if beside is not None and str(beside) not in sys.path:
        sys.path.append(str(beside))
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a stranger's module may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(f"there is no module {module!r} to load the tools {name!r} from") from error
        raise ConfigError(f"the tools {name!r} cannot be loaded: {_told(error)}") from error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
