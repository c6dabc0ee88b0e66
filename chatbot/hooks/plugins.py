"""Load hooks by their names in the configuration.

A name is that of an entry point in the group `chatbot.hooks`, or `package.module:Class`. Built-in hooks are on by
default; a plug-in is on where `[hooks.<name>]` names it, so that installing a package alone runs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from chatbot.config import Table
from chatbot.errors import ChatbotError, ConfigError
from chatbot.hooks.hook import Hook, HookContext
from chatbot.stores.errors import StoreError, did_you_mean
from chatbot.stores.plugins import PluginPoint, checked_settings, settings_of, told

HOOKS = PluginPoint(
    group="chatbot.hooks",
    own={
        "boundaries": "chatbot.hooks.boundaries:Boundaries",
        "capture": "chatbot.hooks.capture:Capture",
        "compression": "chatbot.hooks.maintenance:Compression",
        "consolidation": "chatbot.hooks.maintenance:Consolidation",
        "episode": "chatbot.hooks.episode:Episodes",
        "exchange": "chatbot.hooks.turn_steps:ExchangeStep",
        "extraction": "chatbot.hooks.extraction.extraction_model:Extraction",
        "inject": "chatbot.hooks.turn_steps:InjectStep",
        "memorability": "chatbot.hooks.memorability:Memorable",
        "summarize": "chatbot.hooks.summarize:Summarize",
        "temporal": "chatbot.hooks.temporal:Temporal",
    },
    noun="hook",
    unknown=ConfigError,
    broken=ConfigError,
)


@dataclass(frozen=True, slots=True)
class HookPlan:
    """A hook class with its settings, before it is made."""

    name: str
    hook: type[Hook]
    enabled: bool
    priority: int
    timeout_s: float
    settings: Mapping[str, Any]

    def all_settings(self) -> dict[str, Any]:
        """Return its own settings, set or by default; those of a table key by key."""
        defaults = {name: found.default for name, found in settings_of(self.hook).items()}
        return {name: _over(default, self.settings.get(name, default)) for name, default in defaults.items()}

    def make(self, context: HookContext) -> Hook:
        """Make the hook. Raises `ConfigError`."""
        try:
            return self.hook(context, **self.settings)
        except (ChatbotError, StoreError) as error:
            raise ConfigError(f"[hooks.{self.name}]: {error}") from error
        except (Exception, SystemExit) as error:  # the constructor of a plug-in may raise anything
            raise ConfigError(f"the hook {self.name!r} cannot be made: {told(error)}") from error


def load(name: str, *, beside: Path | None = None) -> type[Hook]:
    """Load the hook class of that name. Raises `ConfigError`."""
    found = HOOKS.load(name, beside=beside)
    if not (inspect.isclass(found) and issubclass(found, Hook)):
        raise ConfigError(f"the hook {name!r} is {found!r:.80}: it should be a class that inherits chatbot.hooks.Hook")
    if not isinstance(getattr(found, "topics", None), tuple):
        raise ConfigError(f"the hook {name!r} has invalid topics: use a tuple of names")
    return found


def planned_hooks(tables: Mapping[str, Table], *, beside: Path | None = None) -> list[HookPlan]:
    """Return the built-in and the configured hooks, in the order in which they are called. Raises `ConfigError`."""
    names = dict.fromkeys([*HOOKS.own, *tables])
    plans = [plan_hook(name, tables.get(name), beside=beside) for name in names]
    return sorted(plans, key=lambda each: (each.priority, each.name))


def plan_hook(name: str, table: Table | None, *, beside: Path | None = None) -> HookPlan:
    """Plan the hook of that name by its table in the configuration. Raises `ConfigError`."""
    hook = load(name, beside=beside)
    where = f"[hooks.{name}]"
    given = dict(table or {})
    for key in given:
        if key not in (known := {**settings_of(_Common), **settings_of(hook)}):
            raise ConfigError(f"{where} has no setting {key!r}{did_you_mean(key, known)}")
    common = {key: given.pop(key) for key in settings_of(_Common) if key in given}
    chosen = checked_settings(where, _Common, common, invalid=ConfigError, broken=ConfigError)
    return HookPlan(
        name,
        hook,
        enabled=chosen.get("enabled", hook.enabled if name in HOOKS.own else table is not None),
        priority=chosen.get("priority", hook.priority),
        timeout_s=chosen.get("timeout_s", hook.timeout_s),
        settings=checked_settings(where, hook, given, invalid=ConfigError, broken=ConfigError),
    )


def _over(default: Any, value: Any) -> Any:
    return {**default, **value} if isinstance(default, Mapping) and isinstance(value, Mapping) else value


class _Common:
    """The settings of every hook."""

    def __init__(self, *, enabled: bool, priority: int, timeout_s: Annotated[float, Meta(gt=0)]) -> None:
        """Never called: only its annotations are read."""
