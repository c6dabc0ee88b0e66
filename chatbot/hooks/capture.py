"""Hooks that capture tool runs, decide what is worth remembering, and maintain memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from chatbot.chat.dialogue import is_memory_tool
from chatbot.chat.events import MEMORABILITY, SESSION_END, SESSION_START, TOOL_POST, SessionEnd, SessionStart, ToolPost
from chatbot.chat.turn_memory import AUTO
from chatbot.config import Config
from chatbot.hooks.hook import Hook, HookContext, per_session, plan_hook
from chatbot.hooks.tool_run import ToolRun
from chatbot.memory import Memory, SessionHandle
from chatbot.memory.memorability import GATE, TYPE_WEIGHTS, Memorability
from chatbot.memory.policy import MaintenanceReport, Part
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import InvalidValue, did_you_mean
from chatbot.stores.fields import is_observation_id
from chatbot.stores.observation import TYPES

_COMPARED = 5
"""Last captures of a session that a new one is compared with."""


class Capture(Hook):
    """Remembers tool results that are worth it, except those of memory's own tools, and checkpoints at milestones."""

    topics = (TOOL_POST,)
    priority = 100
    background = True

    def __init__(self, context: HookContext, *, checkpoints: bool = True) -> None:
        super().__init__(context)
        self._checkpoints = checkpoints
        self._captured = per_session(dict[str, str])

    async def handle(self, event: ToolPost) -> None:
        """Keep the run, then the milestones that it reaches."""
        session = event.session
        if not (session.supports(ObservationStore) and can_write(session)):
            return
        run = ToolRun.of(event.result)
        if not is_memory_tool(run.tool):
            gate: Memorability | None = self.context.capabilities.find(MEMORABILITY)
            before, checkpoints = self._captured(session.id), self._checkpoints
            await keep_run(session.memory, run, gate=gate, before=before, checkpoints=checkpoints)
        elif self._checkpoints:
            await _mark_milestones(session.memory, run, await _tasks(session, run))


async def keep_run(
    memory: Memory, run: ToolRun, *, gate: Memorability | None, before: dict[str, str], checkpoints: bool
) -> str | None:
    """Remember a run if it is worth it, and its milestones with `checkpoints`; return its id.

    Without a gate every run is. `before` has the text of the last kept runs by id; this one is added to it.
    """
    kept = None
    if gate is None or await _is_new(memory, run, gate, before):
        remembered = await memory.remember(
            type=run.type,
            title=run.title,
            subtitle=run.subtitle,
            narrative=run.narrative,
            facts=run.facts,
            tags=("tool", run.tool),
            concepts=run.concepts,
            importance=run.importance,
            source=AUTO,
            files_read=() if run.writes else run.files,
            files_modified=run.files if run.writes else (),
        )
        kept = remembered.id
        before[kept] = run.substance
        while len(before) > _COMPARED:
            before.pop(next(iter(before)))
    if checkpoints:
        await _mark_milestones(memory, run, [kept] if kept else [])
    return kept


async def _is_new(memory: Memory, run: ToolRun, gate: Memorability, before: dict[str, str]) -> bool:
    there = {row.id for row in await memory.get(list(before), ask=SENSITIVITIES, count_use=False)}
    known = [said for captured, said in before.items() if captured in there]
    return gate.passes(gate.of_text(run.substance, run.type, known=known))


async def _mark_milestones(memory: Memory, run: ToolRun, sources: Sequence[str]) -> None:
    """Remember each milestone that a run reaches, derived from `sources`."""
    for kind, what in run.milestones():
        await memory.remember(
            type="event",
            title=f"Checkpoint: {kind}: {what}"[:200],
            tags=("checkpoint", kind),
            importance=0.4,
            source=AUTO,
            derived_from=tuple(sources),
        )


async def _tasks(session: SessionHandle, run: ToolRun) -> list[str]:
    """Return the task that a run of memory's tools was about: a checkpoint is as strict as its task."""
    asked = str(run.arguments.get("task_id", ""))
    if not is_observation_id(asked):
        return []
    return [row.id for row in await session.memory.get([asked], ask=SENSITIVITIES, count_use=False)]


def can_write(session: SessionHandle) -> bool:
    """Return whether the holder of the session may remember anything."""
    return session.caller.clearance != "public"


Share = Annotated[float, Meta(ge=0, le=1)]


class Memorable(Hook):
    """Decides what is worth remembering: `memory.memorability`. Without it, everything is."""

    topics = ()

    def __init__(
        self, context: HookContext, *, threshold: Share = GATE, type_weights: Mapping[str, Share] = TYPE_WEIGHTS
    ) -> None:
        super().__init__(context)
        context.capabilities.provide(MEMORABILITY, _gate(threshold, type_weights))

    async def handle(self, event: Any) -> None:
        """Do nothing: this hook only provides a capability."""


def exchange_gate(config: Config, agent: str, *, beside: Path | None = None) -> Memorability | None:
    """Return the gate for exchanges of an agent; None if none are kept. Raises `ConfigError`."""
    keeps, judges = [plan_hook(name, config.hooks.get(name), beside=beside) for name in ("exchange", "memorability")]
    if not (keeps.enabled and config.agents[agent].remember_exchanges):
        return None
    return _gate(**judges.all_settings()) if judges.enabled else Memorability(gate=0)


def _gate(threshold: float, type_weights: Mapping[str, float]) -> Memorability:
    for name in type_weights:
        if name not in TYPES:
            raise InvalidValue(f"type_weights: no type of memory is called {name!r}{did_you_mean(name, TYPES)}")
    return Memorability(threshold, {**TYPE_WEIGHTS, **type_weights})


class Maintenance(Hook):
    """Does one part of maintenance, as `[maintenance]` says, unless that was done a short while ago."""

    topics = (SESSION_START, SESSION_END)
    timeout_s = 60.0
    background = True
    part: ClassVar[Part]
    every: ClassVar[str]
    """Setting that says how many hours after a run the next one is due."""

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        settings = context.config.maintenance
        self._policy = settings
        self._every = timedelta(hours=getattr(settings, self.every))
        context.capabilities.provide(f"memory.{self.part}", self.run)

    async def handle(self, event: SessionStart | SessionEnd) -> Any:
        """Maintain the memory that the session uses, if it uses one."""
        if event.session.supports(ObservationStore):
            await self.run(event.session.record.store_types)

    async def run(self, stores: tuple[str, ...]) -> MaintenanceReport:
        """Maintain the first of these stores that keeps observations."""
        return await self.context.memory.maintain(
            self._policy, part=self.part, stores=stores, unless_within=self._every
        )


class Consolidation(Maintenance):
    """Lets memory fade with time and grow stronger with use, every few days, as [maintenance] says."""

    priority = 200
    part = "consolidation"
    every = "consolidate_every_hours"


class Compression(Maintenance):
    """Merges memories that are alike and retires old ones, every few days, as [maintenance] says."""

    priority = 300
    part = "compression"
    every = "compress_every_hours"
