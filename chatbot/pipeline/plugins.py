"""From a name in the configuration to a hook.

A name is that of an entry point in the group `chatbot.hooks`, or `package.module:Class`. Our own are on unless they say
otherwise; a stranger's is on where `[hooks.<name>]` names it, so that installing a package alone runs nothing.
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
from chatbot.pipeline.hook import Hook, HookContext
from stores.errors import StoreError, did_you_mean
from stores.plugin_point import PluginPoint, told
from stores.plugin_settings import checked_settings, settings_of

HOOKS = PluginPoint(
    group="chatbot.hooks",
    own={
        "boundaries": "chatbot.pipeline.hooks.boundaries:Boundaries",
        "capture": "chatbot.pipeline.hooks.capture:Capture",
        "compression": "chatbot.pipeline.hooks.compression:Compression",
        "consolidation": "chatbot.pipeline.hooks.consolidation:Consolidation",
        "episode": "chatbot.pipeline.hooks.episode:Episodes",
        "exchange": "chatbot.pipeline.hooks.exchange:Exchange",
        "extraction": "chatbot.pipeline.hooks.extraction:Extraction",
        "inject": "chatbot.pipeline.hooks.inject:Inject",
        "memorability": "chatbot.pipeline.hooks.memorability:Memorable",
        "summarize": "chatbot.pipeline.hooks.summarize:Summarize",
        "temporal": "chatbot.pipeline.hooks.temporal:Temporal",
    },
    noun="hook",
    unknown=ConfigError,
    broken=ConfigError,
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A hook and how it shall run."""

    name: str
    hook: type[Hook]
    enabled: bool
    priority: int
    timeout_s: float
    settings: Mapping[str, Any]

    def all_settings(self) -> dict[str, Any]:
        """Its own settings, as they stand or by default."""
        return {name: self.settings.get(name, found.default) for name, found in settings_of(self.hook).items()}

    def make(self, context: HookContext) -> Hook:
        """The hook itself. Raises `ConfigError`."""
        try:
            return self.hook(context, **self.settings)
        except (ChatbotError, StoreError) as error:
            raise ConfigError(f"[hooks.{self.name}]: {error}") from error
        except (Exception, SystemExit) as error:  # a stranger's constructor may raise anything
            raise ConfigError(f"the hook {self.name!r} cannot be made: {told(error)}") from error


def load(name: str, *, beside: Path | None = None) -> type[Hook]:
    """The hook class of that name. Raises `ConfigError`."""
    found = HOOKS.load(name, beside=beside)
    if not (inspect.isclass(found) and issubclass(found, Hook)):
        raise ConfigError(f"the hook {name!r} is {found!r:.80}: it should be a class that inherits pipeline.Hook")
    if not isinstance(getattr(found, "topics", None), tuple):
        raise ConfigError(f"the hook {name!r} does not say what it hears: its topics should be a tuple of names")
    return found


def planned(tables: Mapping[str, Table], *, beside: Path | None = None) -> list[Planned]:
    """Every hook that is our own or configured, in the order in which hooks are called. Raises `ConfigError`."""
    names = dict.fromkeys([*HOOKS.own, *tables])
    plans = [plan(name, tables.get(name), beside=beside) for name in names]
    return sorted(plans, key=lambda each: (each.priority, each.name))


def plan(name: str, table: Table | None, *, beside: Path | None = None) -> Planned:
    """How the hook of that name shall run, by its table in the configuration. Raises `ConfigError`."""
    hook = load(name, beside=beside)
    where = f"[hooks.{name}]"
    given = dict(table or {})
    for key in given:
        if key not in (known := {**settings_of(_Common), **settings_of(hook)}):
            raise ConfigError(f"{where} has no setting {key!r}{did_you_mean(key, known)}")
    common = {key: given.pop(key) for key in settings_of(_Common) if key in given}
    chosen = checked_settings(where, _Common, common, invalid=ConfigError, broken=ConfigError)
    return Planned(
        name,
        hook,
        enabled=chosen.get("enabled", hook.enabled if name in HOOKS.own else table is not None),
        priority=chosen.get("priority", hook.priority),
        timeout_s=chosen.get("timeout_s", hook.timeout_s),
        settings=checked_settings(where, hook, given, invalid=ConfigError, broken=ConfigError),
    )


class _Common:
    """What can be set for every hook."""

    def __init__(self, *, enabled: bool, priority: int, timeout_s: Annotated[float, Meta(gt=0)]) -> None:
        """Never called: its annotations are what counts."""
