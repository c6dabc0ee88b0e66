"""Maintain memory as a session ends, and as one begins where maintenance is overdue. Runs in the background."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from typing import Any, ClassVar

from chatbot.chat.events import SESSION_END, SESSION_START, SessionEnd, SessionStart
from chatbot.config import MaintenanceSettings
from chatbot.hooks.hook import Hook, HookContext
from chatbot.memory.maintenance.policy import MaintenanceReport, Part, configured
from chatbot.stores.base import ObservationStore


class Maintenance(Hook):
    """Does one part of maintenance, as `[maintenance]` says, unless that was done a short while ago."""

    topics = (SESSION_START, SESSION_END)
    timeout_s = 60.0
    background = True
    part: ClassVar[Part]

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        settings = context.config.maintenance
        self._policy = configured(settings)
        self._every = timedelta(hours=self.hours(settings))
        context.capabilities.provide(f"memory.{self.part}", self.run)

    @staticmethod
    @abstractmethod
    def hours(settings: MaintenanceSettings) -> float:
        """Return how many hours after a run the next one is due."""

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

    @staticmethod
    def hours(settings: MaintenanceSettings) -> float:
        """Return `consolidate_every_hours`."""
        return settings.consolidate_every_hours


class Compression(Maintenance):
    """Merges memories that are alike and retires old ones, every few days, as [maintenance] says."""

    priority = 300
    part = "compression"

    @staticmethod
    def hours(settings: MaintenanceSettings) -> float:
        """Return `compress_every_hours`."""
        return settings.compress_every_hours
