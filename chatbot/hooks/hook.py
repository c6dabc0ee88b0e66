"""The hook contract: what a plug-in inherits, and the context that it is given."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from chatbot.chat.events import Publisher
from chatbot.chat.ledger import Ledger
from chatbot.config import Config, ModelSettings
from chatbot.memory import MemorySystem
from chatbot.models import open_model
from chatbot.models.model import Model

Result = TypeVar("Result")
State = TypeVar("State")
_MOST_SESSIONS = 1_000


class Capabilities:
    """Functions that hooks provide to each other, by name."""

    def __init__(self) -> None:
        self._provided: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._provided)

    def provide(self, name: str, what: Any) -> None:
        """Provide something under a name, in place of an earlier one."""
        self._provided[name] = what

    def find(self, name: str) -> Any | None:
        """Return the capability of that name, or None. Call it when it is needed: hooks are made in any order."""
        return self._provided.get(name)


@dataclass(frozen=True, slots=True)
class HookContext:
    """The identity that a hook is made for, and what the hook may use."""

    config: Config
    identity: str
    agent: str
    memory: MemorySystem
    """The identity's memory, with its clearance. In a session use the session's own handle: it may see less."""
    model: Model
    ledger: Ledger
    """The identity's bill: a hook that calls a model writes the call down here, with a purpose of its own."""
    clock: Callable[[], datetime]
    capabilities: Capabilities
    publisher: Publisher
    """The bus, for events of one's own: anything with a `topic`, a `session` and an `at`."""
    open_model: Callable[[ModelSettings], Model] = open_model
    """Opens a model of the hook's own, which the hook closes."""


class Hook(ABC):
    """Code that runs at one or more topics.

    Its settings are the keyword-only arguments of its constructor, checked against their annotations. An exception in
    `handle`, or a run that takes longer than `timeout_s`, is logged and reported, and the turn goes on.
    """

    topics: ClassVar[tuple[str, ...]]
    """The topics that it listens to; `*` matches any text: `memory.*.update`. Empty for one that only provides."""
    priority: ClassVar[int] = 100
    """Lower ones run first; equal ones in the order of their names."""
    timeout_s: ClassVar[float] = 10.0
    background: ClassVar[bool] = False
    """True for a hook that runs in the background, after the others, one event of a session after another."""
    enabled: ClassVar[bool] = True
    """True if it is on by default; a plug-in is off until `[hooks.<name>]` names it."""

    def __init__(self, context: HookContext) -> None:
        self.context = context

    @abstractmethod
    async def handle(self, event: Any) -> object:
        """Handle an event. A return value other than None is an answer to the publisher of the event."""

    async def aclose(self) -> None:  # noqa: B027 - most hooks hold nothing
        """Release everything. Called once, after the last event."""


class PerSession(Generic[State]):
    """A hook's state for each session, made when first asked for.

    Bounded, for a server may see any number of sessions: past a thousand, the one used longest ago is dropped.
    """

    def __init__(self, begin: Callable[[], State]) -> None:
        self._begin = begin
        self._states: OrderedDict[str, State] = OrderedDict()

    def __getitem__(self, session_id: str) -> State:
        if session_id not in self._states:
            self._states[session_id] = self._begin()
        self._states.move_to_end(session_id)
        while len(self._states) > _MOST_SESSIONS:
            self._states.popitem(last=False)
        return self._states[session_id]

    def __setitem__(self, session_id: str, state: State) -> None:
        self._states[session_id] = state

    def pop(self, session_id: str) -> State | None:
        """Return the session's state and drop it."""
        return self._states.pop(session_id, None)


async def uncancelled(work: Coroutine[Any, Any, Result]) -> Result:
    """Await work that is done to its end once it has begun, even where the hook is cancelled."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
