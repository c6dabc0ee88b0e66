"""What a hook is, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from chatbot.chat.events import Publisher
from chatbot.chat.ledger import Ledger
from chatbot.config import Config, ModelSettings
from chatbot.memory import MemorySystem
from chatbot.models import open_model
from chatbot.models.base import Model


class Capabilities:
    """What hooks can do for each other, by name. Where one is absent, whoever looks it up goes without."""

    def __init__(self) -> None:
        self._provided: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._provided)

    def provide(self, name: str, what: Any) -> None:
        """Offer something under a name; the later of two offers holds."""
        self._provided[name] = what

    def find(self, name: str) -> Any | None:
        """What is offered under that name, or None. Look it up when it is needed: hooks are made in any order."""
        return self._provided.get(name)


@dataclass(frozen=True, slots=True)
class HookContext:
    """Whose hooks are to be made, and what they may use."""

    config: Config
    identity: str
    agent: str
    memory: MemorySystem
    """The identity's memory, with its clearance. In a session use the session's own handle: it may see less."""
    model: Model
    ledger: Ledger
    """The identity's bill: who calls a model writes it down there, with a purpose of their own."""
    clock: Callable[[], datetime]
    capabilities: Capabilities
    publisher: Publisher
    """The bus, for events of one's own: anything with a `topic`, a `session` and an `at`."""
    open_model: Callable[[ModelSettings], Model] = open_model
    """For a model of one's own, which is one's own to close."""


class Hook(ABC):
    """Something that happens at one or more topics.

    Its settings are the keyword-only arguments of its constructor, checked against their annotations. What is raised in
    `handle` is logged and told, and disturbs nobody; so is what takes longer than `timeout_s`.
    """

    topics: ClassVar[tuple[str, ...]]
    """What it hears; `*` stands for any text: `memory.*.update`. None for one that only has something to offer."""
    priority: ClassVar[int] = 100
    """Lower ones come first; of equals the one whose name comes first."""
    timeout_s: ClassVar[float] = 10.0
    background: ClassVar[bool] = False
    """Whether nobody waits for it: then it runs after the others, in order, one event of a session after another."""
    enabled: ClassVar[bool] = True
    """Whether it is on where nothing is configured; a stranger's hook is off until `[hooks.<name>]` names it."""

    def __init__(self, context: HookContext) -> None:
        self.context = context

    @abstractmethod
    async def handle(self, event: Any) -> object:
        """Do it. What is returned, unless it is None, is an answer to whoever published the event."""

    async def aclose(self) -> None:  # noqa: B027 - most hooks hold nothing
        """Let go of everything. Called once, after the last event."""
