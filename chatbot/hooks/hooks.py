"""The hooks of one identity, from the first turn in this process to the end of its sessions.

Nothing is loaded before the first turn. A session begins with its first turn in this process and ends once, when its
owner leaves it or everything is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from chatbot.chat.events import Publisher, SessionEnd, SessionStart, Step
from chatbot.chat.ledger import Ledger
from chatbot.config import Config
from chatbot.errors import ConfigError
from chatbot.hooks.bus import Bus, Subscription
from chatbot.hooks.failure_log import Failures
from chatbot.hooks.hook import Capabilities, Hook, HookContext
from chatbot.hooks.plugins import HookPlan, planned_hooks
from chatbot.hooks.requests import Retrieve, Update, answered
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.record import utc_now
from chatbot.memory.scope import MemoryEvent
from chatbot.models import open_model
from chatbot.models.model import Model
from chatbot.stores.home import Home
from chatbot.stores.lifecycle import AsyncResource
from chatbot.stores.span import Observer, observed

logger = logging.getLogger(__name__)

MEMORY_STORE = "memory.store"


class Hooks(Publisher, AsyncResource):
    """The hooks of an identity. `home` is where failures are kept; None keeps them in memory.

    `observer` watches hooks that run outside of a turn.
    """

    def __init__(
        self,
        *,
        config: Config,
        identity: str,
        agent: str,
        memory: MemorySystem,
        model: Model,
        ledger: Ledger,
        home: Home | None,
        plugins_beside: Path | None = None,
        clock: Callable[[], datetime] = utc_now,
        observer: Observer | None = None,
    ) -> None:
        self._clock = clock
        self._beside = plugins_beside
        self.failures = Failures(home)
        self.bus = Bus(self.failures, clock)
        self.capabilities = Capabilities()
        self.capabilities.provide(MEMORY_STORE, memory)
        self._observer = observer
        self._context = HookContext(
            config,
            identity,
            agent,
            memory,
            model,
            ledger,
            clock,
            self.capabilities,
            self,
            partial(open_model, providers=config.providers),
        )
        self._hooks: list[tuple[Hook, float]] | None = None
        """Each with its time-out; None before the first event."""
        self._sessions: dict[str, tuple[SessionHandle, datetime]] = {}

    async def publish(self, event: Any, step: Step | None = None) -> Sequence[object]:
        """Call the hooks and the turn's own step, and return their answers. Raises nothing.

        A request to memory is answered by memory alone; hooks hear of what it did as of any other operation.
        """
        with observed(self._observer):
            if self._hooks is None:
                for name, why in self._open():
                    await self.bus.note_failure(name, _Making(), why)
            if isinstance(event, Retrieve | Update):
                return [await answered(event)]
            return await self.bus.publish(event, step)

    def find(self, capability: str) -> Any | None:
        """Return the capability of that name, or None."""
        return self.capabilities.find(capability)

    async def settle(self, session: SessionHandle) -> None:
        """Wait for what runs in the background in that session."""
        await self.bus.drain(session.id)

    def is_settled(self, session: SessionHandle) -> bool:
        """Return whether nothing runs in the background in that session."""
        return self.bus.is_idle(session.id)

    @property
    def is_at_rest(self) -> bool:
        """Return whether nothing runs in the background in any session."""
        return self.bus.is_at_rest

    def tell(self, event: MemoryEvent) -> None:
        """Call the hooks in the background for an operation on memory; none before the first turn."""
        if self._hooks is not None:
            with observed(self._observer):
                self.bus.tell(event)

    async def begin(self, session: SessionHandle) -> None:
        """Publish that a session begins, unless it has begun."""
        if session.id not in self._sessions:
            at = self._clock()
            self._sessions[session.id] = (session, at)
            await self.publish(SessionStart(session=session, at=at))

    async def end(self, session_id: str) -> None:
        """Publish that a session is left, once its background work is done; nothing where it never began."""
        session, began = self._sessions.pop(session_id, (None, None))
        if session is None or began is None:
            return
        await self.bus.drain(session_id)
        await self.publish(SessionEnd(session=session, began=began, at=self._clock()))
        self.bus.forget(session_id)

    async def aclose(self) -> None:
        """End all sessions, wait for what is under way, and close the hooks. May be called twice."""
        for session_id in list(self._sessions):
            await self.end(session_id)
        await self.bus.drain()
        while self._hooks:
            hook, timeout_s = self._hooks.pop()
            try:
                async with asyncio.timeout(timeout_s):
                    await hook.aclose()
            except (Exception, SystemExit):  # a plug-in may raise anything, and the others still close
                logger.exception("the hook %s could not be closed", type(hook).__name__)

    def _open(self) -> list[tuple[str, str]]:
        """Make the hooks; return the names of those that could not be made, and why."""
        self._hooks = []
        failed = []
        for plan in planned_hooks(self._context.config.hooks, beside=self._beside):
            try:
                if plan.enabled:
                    self._subscribe(plan, plan.make(self._context))
            except ConfigError as error:
                failed.append((plan.name, str(error)))
        return failed

    def _subscribe(self, plan: HookPlan, hook: Hook) -> None:
        self._hooks = [*(self._hooks or []), (hook, plan.timeout_s)]
        self.bus.subscribe(
            Subscription(plan.name, hook.topics, hook.handle, plan.priority, plan.timeout_s, hook.background)
        )


class _Making:
    """The event at which a hook failed that could not be made."""

    topic = "start"
