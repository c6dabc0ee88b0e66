"""Noticing where one stretch of a session ends and another begins."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from chatbot.chat.events import SESSION_END, TOOL_POST, TURN_END, SessionEnd, ToolPost, TurnEnd
from chatbot.memory import SessionHandle
from chatbot.pipeline.hook import Hook, HookContext
from chatbot.pipeline.hooks.capture import can_write
from chatbot.pipeline.segments import Interaction, Window
from chatbot.pipeline.sittings import Sittings
from chatbot.pipeline.tool_run import ToolRun
from stores.base import ObservationStore
from stores.errors import InvalidValue
from stores.records import format_time, parse_time

PREDICATE = "boundary_at"


class Boundaries(Hook):
    """Detects where a session turns to something else, and keeps it as a fact: `memory.boundaries`."""

    topics = (TOOL_POST, TURN_END, SESSION_END)
    priority = 90
    background = True

    def __init__(
        self,
        context: HookContext,
        *,
        window: Annotated[int, Meta(ge=1, le=20)] = 3,
        threshold: Annotated[float, Meta(ge=0, le=1)] = 0.06,
    ) -> None:
        super().__init__(context)
        self._windows: Sittings[Window] = Sittings(lambda: Window(window, threshold))
        self._latest: Sittings[list[datetime | None]] = Sittings(list)
        context.capabilities.provide("memory.boundaries", self.latest)

    async def handle(self, event: ToolPost | TurnEnd | SessionEnd) -> None:
        """Take in a tool run or an exchange, and keep the boundary that it reveals."""
        session = event.session
        if isinstance(event, SessionEnd):
            self._windows.pop(session.id)
            return
        if not (session.supports(ObservationStore) and can_write(session)):
            return
        self._windows[session.id], boundary = self._windows[session.id].extended(_interaction(event))
        if boundary is not None:
            moment = format_time(boundary.at)
            await session.store_fact(
                f"session:{session.id}", PREDICATE, f"{moment} {', '.join(boundary.about)}".strip()
            )
            self._latest[session.id] = [boundary.at]

    async def latest(self, session: SessionHandle) -> datetime | None:
        """When the present stretch of the session began; None where it has had only one. Reads the store once."""
        known = self._latest[session.id]
        if not known:
            facts = await session.query_facts(subject=f"session:{session.id}", predicate=PREDICATE, limit=1)
            known.append(_moment(facts[0].object) if facts else None)
        return known[0]


def _interaction(event: ToolPost | TurnEnd) -> Interaction:
    if isinstance(event, TurnEnd):
        return Interaction.of(event.at, event.text, event.reply)
    run = ToolRun.of(event.result)
    return Interaction.of(event.at, run.tool, run.substance)


def _moment(text: str) -> datetime | None:
    """The time at the beginning of a fact; None for one that somebody wrote otherwise."""
    try:
        return parse_time(text.partition(" ")[0])
    except InvalidValue:
        return None
