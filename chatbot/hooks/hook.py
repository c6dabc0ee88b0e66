"""Hooks: topics and steps, plug-ins, and the log of failures; see docs/hooks.md."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import count, islice
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from chatbot.chat.events import KEEPS_MESSAGES, PROMPT_SUBMIT, TOPICS, TURN_END, Publisher
from chatbot.chat.ledger import Ledger
from chatbot.config import Config, ModelSettings, Table
from chatbot.errors import ChatbotError, ConfigError
from chatbot.memory import MemorySystem
from chatbot.memory.session_catalog import FAILURES
from chatbot.models import Model, open_model
from chatbot.stores.backend import Place
from chatbot.stores.errors import StoreError, nearest_hint
from chatbot.stores.home import Home
from chatbot.stores.loops import in_thread
from chatbot.stores.plugins import PluginPoint, open_place, settings_of, table_name
from chatbot.stores.records import reason_of

State = TypeVar("State")


class HookContext(Struct, frozen=True):
    """The identity that a hook is made for, and the objects that it may use."""

    config: Config
    identity: str
    agent: str
    memory: MemorySystem
    """The identity's memory, with its clearance. In a session use the session's own handle: it may see less."""
    model: Model
    ledger: Ledger
    """The identity's bill: a hook records its model calls here, with its own purpose."""
    clock: Callable[[], datetime]
    capabilities: dict[str, Any] = field(default_factory=dict)
    """Functions and values that hooks provide to each other, by name. Look one up only to use it: hooks are made in any
    order."""
    publisher: Publisher = field(default_factory=Publisher)
    """The bus, to publish events: any object with a `topic`, a `session` and an `at`."""

    def open_model(self, settings: ModelSettings) -> Model:
        """Open another model for the hook, which the hook closes."""
        return open_model(settings, self.config.providers)


class Hook(ABC):
    """Code that runs at one or more topics.

    Its settings are the keyword-only arguments of its constructor, checked against their annotations. An exception in
    `handle`, or a run that takes longer than `timeout_s`, is logged and reported, and the turn goes on.
    """

    topics: ClassVar[tuple[str, ...]]
    """The topics that it listens to; `*` matches any text: `memory.*.update`. Empty: it only provides capabilities."""
    priority: ClassVar[int] = 100
    """Lower ones run first; equal ones in the order of their names."""
    timeout_s: ClassVar[float] = 10.0
    background: ClassVar[bool] = False
    """True for a hook that runs in the background, after the others, one event of a session after another."""

    def __init__(self, context: HookContext) -> None:
        self.context = context

    @abstractmethod
    async def handle(self, event: Any) -> object:
        """Handle an event. A return value other than None is an answer to the publisher of the event."""

    async def aclose(self) -> None:  # noqa: B027 - most hooks hold nothing
        """Release everything. Called once, after the last event."""


def per_session(begin: Callable[[], State]) -> Callable[[str], State]:
    """Return a function that returns a hook's state for a session, made when first asked for.

    Bounded, as a server may see any number of sessions: past a thousand, the least recently used is dropped.
    """
    return lru_cache(maxsize=1_000)(lambda _: begin())


class PassiveHook(Hook):
    """A hook that only provides a capability, or sets when work of the turn runs among the hooks."""

    topics: ClassVar[tuple[str, ...]] = ()

    async def handle(self, event: Any) -> None:
        """Do nothing."""


class InjectHook(PassiveHook):
    """Sets when the turn puts the memories about a message into its prompt."""

    topics = (PROMPT_SUBMIT,)
    priority = 50
    timeout_s = 60.0


class ExchangeHook(PassiveHook):
    """Sets when the turn remembers the exchange; while enabled, the user's message is remembered at once."""

    topics = (TURN_END,)
    priority = 50
    timeout_s = 60.0

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        context.capabilities[KEEPS_MESSAGES] = True


_MOST_KEPT = 50
_DROPPED_AT_ONCE = 50
"""Number of surplus failures that are dropped together, as each drop rewrites the file."""
_LONGEST_MESSAGE = 500


class Failure(Struct, frozen=True):
    """One failure: its time in ISO 8601, hook, topic, session, and message."""

    at: str
    hook: str
    topic: str
    session: str
    message: str


class Failures:
    """The last failures of an identity's hooks; `place` may be a folder or an address."""

    def __init__(self, place: Place | Home) -> None:
        self._lines = open_place(place).lines(FAILURES)

    def acknowledge(self) -> None:
        """Delete all failures."""
        self._lines.rewrite(lambda _: None)

    @in_thread
    def add(self, failure: Failure) -> None:
        """Write a failure. Raises a `StoreError` if that fails."""
        with self._lines.alone() as writer:
            writer.append([asdict(failure) | {"message": failure.message[:_LONGEST_MESSAGE]}])
            surplus = sum(1 for _ in self._lines.newest_first()) - _MOST_KEPT
            if surplus > _DROPPED_AT_ONCE:
                number = count()
                writer.rewrite(lambda line: line if next(number) >= surplus else None)

    def read(self) -> list[Failure]:
        """Return the last failures, oldest first. Unreadable lines are left out."""
        lines = list(islice(self._lines.newest_first(), _MOST_KEPT))[::-1]
        return [Failure(**{name: str(line.get(name, "")) for name in Failure.__struct_fields__}) for line in lines]


HOOKS = PluginPoint(
    group="chatbot.hooks",
    own={
        "boundaries": "chatbot.hooks.temporal:Boundaries",
        "capture": "chatbot.hooks.capture:Capture",
        "compression": "chatbot.hooks.capture:Compression",
        "consolidation": "chatbot.hooks.capture:Consolidation",
        "episode": "chatbot.hooks.summarize:Episodes",
        "exchange": "chatbot.hooks.hook:ExchangeHook",
        "extraction": "chatbot.hooks.extraction.structured:Extraction",
        "inject": "chatbot.hooks.hook:InjectHook",
        "memorability": "chatbot.hooks.capture:MemorabilityHook",
        "summarize": "chatbot.hooks.summarize:Summarize",
        "temporal": "chatbot.hooks.temporal:Temporal",
    },
    noun="hook",
    unknown=ConfigError,
    broken=ConfigError,
    invalid=ConfigError,
)


class HookPlan(Struct, frozen=True):
    """A hook class with its settings, before it is made."""

    name: str
    hook: type[Hook]
    enabled: bool
    priority: int
    timeout_s: float
    settings: Mapping[str, Any]

    def all_settings(self) -> dict[str, Any]:
        """Return all of its own settings, defaults included."""
        return {name: self.settings.get(name, found.default) for name, found in settings_of(self.hook).items()}

    def make(self, context: HookContext) -> Hook:
        """Make the hook. Raises `ConfigError`."""
        try:
            return self.hook(context, **self.settings)
        except (ChatbotError, StoreError) as error:
            raise ConfigError(f"{table_name('hooks', self.name)}: {error}") from error
        except (Exception, SystemExit) as error:  # the constructor of a plug-in may raise anything
            raise ConfigError(f"the hook {self.name!r} cannot be made: {reason_of(error)}") from error


def planned_hooks(tables: Mapping[str, Table], *, beside: Path | None = None) -> list[HookPlan]:
    """Return the built-in and the configured hooks, in the order in which they are called. Raises `ConfigError`."""
    plans = (plan_hook(name, tables.get(name), beside=beside) for name in dict.fromkeys([*HOOKS.own, *tables]))
    return sorted(plans, key=attrgetter("priority", "name"))


def plan_hook(name: str, table: Table | None, *, beside: Path | None = None) -> HookPlan:
    """Plan the hook of that name by its table in the configuration. Raises `ConfigError`."""
    hook = HOOKS.load_class(name, Hook, beside=beside)
    if not isinstance(getattr(hook, "topics", None), tuple):
        raise ConfigError(f"the hook {name!r} has invalid topics: use a tuple of names")
    for topic in {*hook.topics} - TOPICS:
        if near := nearest_hint(topic, TOPICS):
            raise ConfigError(f"the hook {name!r} listens to {topic!r}, which no chat publishes{near}")
    given = dict(table or {})
    if name not in HOOKS.own:
        given = {"priority": hook.priority, "timeout_s": hook.timeout_s} | given
    own = HOOKS.convert_settings(table_name("hooks", name), (_Common, hook), given) if given else {}
    chosen = {key: own.pop(key) for key in settings_of(_Common) if key in own}
    return HookPlan(
        name,
        hook,
        enabled=chosen.get("enabled", name in HOOKS.own or table is not None),
        priority=chosen.get("priority", hook.priority),
        timeout_s=chosen.get("timeout_s", hook.timeout_s),
        settings=own,
    )


class _Common:
    """The settings of every hook."""

    def __init__(
        self,
        *,
        enabled: bool = True,
        priority: int = Hook.priority,
        timeout_s: Annotated[float, Meta(gt=0)] = Hook.timeout_s,
    ) -> None:
        """Never called: its parameters are the settings."""
