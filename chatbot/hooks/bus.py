"""Hooks of a chat: the bus calls them by topic and order.

A hook never receives events caused by its own run, directly or through others. So a chain of hooks that write to
memory, or publish events that they listen to, ends after at most as many steps as there are hooks.

Nothing is loaded before the first turn. A session begins with its first message in this process and ends once, when its
owner leaves it or everything is closed.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chatbot.chat.events import SESSION_START, OwnHook, Publisher, SessionEnd, SessionStart
from chatbot.errors import ConfigError
from chatbot.hooks.hook import HOOKS, Failure, Failures, Hook, HookContext, HookPlan, planned_hooks
from chatbot.memory import SessionHandle
from chatbot.memory.scope import MemoryEvent
from chatbot.stores.base import AsyncResource
from chatbot.stores.errors import StoreError
from chatbot.stores.loops import in_own_task, is_cancelled
from chatbot.stores.records import format_time, reason_of
from chatbot.stores.span import observed, span
from chatbot.stores.text.redaction import redact

logger = logging.getLogger(__name__)

_running: ContextVar[tuple[str, ...]] = ContextVar("_running", default=())
"""The hooks that called the current code, outermost first."""


class Subscription(Struct, frozen=True):
    """A hook with its topics and limits."""

    name: str
    topics: tuple[str, ...]
    handle: Callable[[Any], Awaitable[object]]
    priority: int = 100
    timeout_s: float = 10.0
    background: bool = False

    def listens_to(self, topic: str) -> bool:
        """Return whether it listens to that topic."""
        return any(topic == each or ("*" in each and fnmatchcase(topic, each)) for each in self.topics)


class Bus(Publisher):
    """Calls hooks in the order of their priorities, then of their names."""

    def __init__(self, failures: Failures, clock: Callable[[], datetime]) -> None:
        self.failures = failures
        self._clock = clock
        self._subscriptions: list[Subscription] = []
        self._last_tasks: dict[str, asyncio.Task[None]] = {}
        self._reported: set[tuple[str, str]] = set()
        """Sessions, with the hooks whose failure was reported to their user."""
        self._unreported: dict[str, list[str]] = {}
        """Notices that no event could carry yet, by session."""

    def subscribe(self, *subscriptions: Subscription) -> None:
        """Call hooks for their topics from now on."""
        self._subscriptions = sorted([*self._subscriptions, *subscriptions], key=attrgetter("priority", "name"))

    def listeners(self, topic: str) -> list[Subscription]:
        """Return the hooks that listen to the topic, in order, without those that called the current code."""
        running = _running.get()
        return [each for each in self._subscriptions if each.name not in running and each.listens_to(topic)]

    async def publish(self, event: Any, own: OwnHook | None = None) -> list[object]:
        """Call the listeners, wait for those in the foreground, and return their answers. Raises only cancellation.

        `own` is the work of the publisher at this event: it runs in the place of the hook of its name, by that hook's
        priority and time-out, and not at all if the hook is off.
        """
        listeners = self.listeners(event.topic)
        answers = [await self._call(each, event, own) for each in listeners if not each.background]
        answers = [answer for answer in answers if answer is not None]
        if in_background := [each for each in listeners if each.background]:
            takes_answers = isinstance(event, Struct) and hasattr(event, "answers")
            self._follow_up(replace(event, answers=tuple(answers)) if takes_answers else event, in_background)
        self._report(event)
        return answers

    def notify(self, event: Any) -> None:
        """Call the listeners in the background."""
        if listeners := self.listeners(event.topic):
            self._follow_up(event, listeners)

    async def wait_idle(self, session_id: str | None = None) -> None:
        """Wait for background hooks of one session, or of all. Each hook has its time-out."""
        while waiting := [task for key, task in self._last_tasks.items() if session_id in {None, key}]:
            await asyncio.wait(waiting)

    def is_idle(self, session_id: str | None = None) -> bool:
        """Return whether no background hook runs, for that session or at all."""
        return not self._last_tasks if session_id is None else session_id not in self._last_tasks

    def forget(self, session_id: str) -> list[str]:
        """End a session, and return its failures that no event has reported; each may be reported again in the next."""
        self._reported = {each for each in self._reported if each[0] != session_id}
        return self._unreported.pop(session_id, [])

    def _follow_up(self, event: Any, listeners: list[Subscription]) -> None:
        """Call the listeners in the background, after the running work of that session."""
        key = _session_of(event)
        task = asyncio.create_task(self._run(event, listeners, self._last_tasks.get(key)))
        self._last_tasks[key] = task
        task.add_done_callback(partial(self._drop_task, key))

    def _drop_task(self, key: str, task: asyncio.Task[None]) -> None:
        if self._last_tasks.get(key) is task:
            del self._last_tasks[key]

    async def _run(self, event: Any, listeners: list[Subscription], before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        for each in listeners:
            await self._call(each, event)

    async def _call(self, subscription: Subscription, event: Any, own: OwnHook | None = None) -> object:
        token = _running.set((*_running.get(), subscription.name))
        began = time.monotonic()
        limit = asyncio.timeout(subscription.timeout_s)
        answer, failure = None, ""
        try:
            work = partial(_answer, subscription, event, own, limit)
            answer = await (work() if subscription.name in HOOKS.own else in_own_task(work))
        except TimeoutError as error:
            failure = f"it did not finish within {subscription.timeout_s:g} s" if limit.expired() else reason_of(error)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            failure = "it cancelled itself"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything, and the turn goes on
            failure = reason_of(error)
        finally:
            _running.reset(token)
        if failure:
            await self.note_failure(subscription.name, event, failure)
        elif (took := time.monotonic() - began) > subscription.timeout_s:  # a time-out cannot end what never awaits
            slow = f"slow: it blocked everything for {took:.1f} s; its limit is {subscription.timeout_s:g} s"
            await self.note_failure(subscription.name, event, slow, verb="is")
        return answer

    async def note_failure(self, hook: str, event: Any, message: str, *, verb: str = "failed and was skipped:") -> None:
        """Log a failure, keep it for `doctor`, and report it to the user once a session."""
        message, _ = redact(message)
        session = _session_of(event)
        logger.warning("the hook %s failed at %s: %s", hook, event.topic, message)
        if (session, hook) not in self._reported:
            self._reported.add((session, hook))
            self._unreported.setdefault(session, []).append(f"the hook {hook!r} {verb} {message}")
        try:
            await self.failures.add(Failure(format_time(self._clock()), hook, event.topic, session, message))
        except StoreError as error:
            logger.warning("the failure of the hook %s could not be recorded: %s", hook, error)

    def _report(self, event: Any) -> None:
        """Report failures with the first event that carries notices to the user."""
        notice: Callable[[str], None] | None = getattr(event, "notice", None)
        if notice is not None:
            for session in ("", _session_of(event)):
                for text in self._unreported.pop(session, ()):
                    notice(text)


async def _answer(subscription: Subscription, event: Any, own: OwnHook | None, limit: asyncio.Timeout) -> object:
    topic = f"memory.{event.action}" if isinstance(event, MemoryEvent) else str(event.topic)  # without a session's id
    with span("hook", hook=subscription.name, topic=topic):
        async with limit:
            if own is not None and own.name == subscription.name:
                return await own.run()
            return await subscription.handle(event)


def _session_of(event: Any) -> str:
    session = getattr(event, "session", None)
    return str(getattr(session, "id", "") or getattr(event, "session_id", "") or "")


class Hooks(Bus, AsyncResource):
    """The hooks of an identity, all made for one context. Failures are kept with its memory."""

    def __init__(self, context: HookContext, *, plugins_beside: Path | None = None) -> None:
        super().__init__(Failures(context.memory.backend), context.clock)
        self._beside = plugins_beside
        self.capabilities = context.capabilities
        self.capabilities["memory.store"] = context.memory
        self._observer = context.memory.caller.observer
        self._context = replace(context, publisher=self)
        self._hooks: list[tuple[Hook, HookPlan]] | None = None
        """None before the first event."""
        self._sessions: dict[str, tuple[SessionHandle, datetime]] = {}
        self.last_failures: list[str] = []
        """After `aclose`, the failures that no event has reported, of the sessions that it ended."""

    async def publish(self, event: Any, own: OwnHook | None = None) -> list[object]:
        """Call the hooks and the turn's own hook, and return their answers. Raises only cancellation."""
        with observed(self._observer):
            if self._hooks is None:
                for name, why in self._open():
                    await self.note_failure(name, SimpleNamespace(topic="start"), why)
            return await super().publish(event, own)

    def find(self, capability: str) -> Any | None:
        """Return the capability of that name, or None."""
        return self.capabilities.get(capability)

    def notify(self, event: MemoryEvent) -> None:
        """Call the hooks in the background for an operation on memory; none before the first turn."""
        with observed(self._observer):
            super().notify(event)

    async def begin_session(self, session: SessionHandle, at: datetime) -> None:
        """Publish that a session begins, unless it has begun."""
        if session.id not in self._sessions:
            self._sessions[session.id] = (session, at)
            await self.publish(SessionStart(session=session, at=at))

    async def end_session(self, session_id: str) -> list[str]:
        """Publish the end of a begun session after its background work; return failures that no event has reported."""
        session, began = self._sessions.pop(session_id, (None, None))
        if session is None or began is None:
            return []
        await self.wait_idle(session_id)
        await self.publish(SessionEnd(session=session, began=began, at=self._clock()))
        return self.forget(session_id)

    async def aclose(self) -> None:
        """End all sessions, wait for running hooks, and close all. May be called twice."""
        try:
            for session_id in list(self._sessions):
                self.last_failures += await self.end_session(session_id)
            await self.wait_idle()
        except asyncio.CancelledError:  # memory closes next, and each would fail
            for task in self._last_tasks.values():
                task.cancel()
            raise
        while self._hooks:
            hook, plan = self._hooks.pop()
            try:
                async with asyncio.timeout(plan.timeout_s):
                    await (hook.aclose() if plan.name in HOOKS.own else in_own_task(hook.aclose))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - of a plug-in, and the others still close
                at = SimpleNamespace(topic="close")
                await self.note_failure(plan.name, at, reason_of(error), verb="could not be closed:")
        self.last_failures += self._unreported.pop("", ())

    def _open(self) -> list[tuple[str, str]]:
        """Make the hooks; return the names of those that could not be made, and why."""
        self._hooks, failed, subscriptions = [], list[tuple[str, str]](), list[Subscription]()
        if self._context.config.sessions.ttl_days:
            subscriptions.append(Subscription("ttl_days", (SESSION_START,), self._expire_sessions, timeout_s=60.0))
        for plan in filter(attrgetter("enabled"), planned_hooks(self._context.config.hooks, beside=self._beside)):
            try:
                hook = plan.make(self._context)
            except ConfigError as error:
                failed.append((plan.name, str(error)))
            else:
                self._hooks.append((hook, plan))
                subscriptions.append(
                    Subscription(plan.name, hook.topics, hook.handle, plan.priority, plan.timeout_s, hook.background)
                )
        self.subscribe(*subscriptions)
        return failed

    async def _expire_sessions(self, _: SessionStart) -> None:
        """Erase expired sessions before anything is recalled; commands that only read erase none."""
        keep_memory = self._context.config.sessions.ttl_keeps_memory
        await self._context.memory.expire_sessions(keep_memory=keep_memory)
