"""Remember what tools answered, and checkpoints at milestones."""

from __future__ import annotations

from collections.abc import Sequence

from chatbot.chat.events import MEMORABILITY, TOOL_POST, ToolPost
from chatbot.chat.tool_names import is_memory_tool
from chatbot.chat.turn_memory import AUTO
from chatbot.hooks.hook import Hook, HookContext, PerSession
from chatbot.hooks.tool_run import ToolRun
from chatbot.memory import Memory, SessionHandle
from chatbot.memory.memorability import Memorability
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import ObservationStore
from chatbot.stores.fields import is_observation_id

_COMPARED = 5
"""Last captures of a session that a new one is compared with."""


class Capture(Hook):
    """Remembers what tools answered, where it is worth it, and checkpoints at milestones; memory's own tools never."""

    topics = (TOOL_POST,)
    priority = 100
    background = True

    def __init__(self, context: HookContext, *, checkpoints: bool = True) -> None:
        super().__init__(context)
        self._checkpoints = checkpoints
        self._captured: PerSession[dict[str, str]] = PerSession(dict)

    async def handle(self, event: ToolPost) -> None:
        """Keep the run, then the milestones that it reaches."""
        session = event.session
        if not (session.supports(ObservationStore) and can_write(session)):
            return
        run = ToolRun.of(event.result)
        if is_memory_tool(run.tool):
            sources = await _tasks(session, run)
        else:
            gate: Memorability | None = self.context.capabilities.find(MEMORABILITY)
            kept = await keep_run(session.memory, run, gate=gate, before=self._captured[session.id])
            sources = [kept] if kept else []
        if self._checkpoints:
            await mark_milestones(session.memory, run, sources)


async def keep_run(memory: Memory, run: ToolRun, *, gate: Memorability | None, before: dict[str, str]) -> str | None:
    """Remember a run if it is worth it; return its id. Without a gate every run is.

    `before` holds the substance of the runs kept last, by their ids; this one joins them.
    """
    if gate is not None:
        if run.only_lists:
            return None
        there = {row.id for row in await memory.get(list(before), ask=SENSITIVITIES, count_use=False)}
        known = [said for captured, said in before.items() if captured in there]
        if not gate.passes(gate.of_text(run.substance, run.type, known=known)):
            return None
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
    before[remembered.id] = run.substance
    while len(before) > _COMPARED:
        before.pop(next(iter(before)))
    return remembered.id


async def mark_milestones(memory: Memory, run: ToolRun, sources: Sequence[str]) -> None:
    """Remember each milestone that a run reaches, derived from `sources`."""
    for milestone in run.milestones():
        await memory.remember(
            type="event",
            title=f"Checkpoint: {milestone.kind}: {milestone.what}"[:200],
            tags=("checkpoint", milestone.kind),
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
