"""What is used grows stronger, and what is not fades."""

from __future__ import annotations

from chatbot.config import MaintenanceSettings
from chatbot.pipeline.upkeep import Maintaining


class Consolidation(Maintaining):
    """Lets memory fade with time and grow stronger with use, every few days, as [maintenance] says."""

    priority = 200
    part = "consolidation"

    @staticmethod
    def hours(settings: MaintenanceSettings) -> float:
        """See `Maintaining`."""
        return settings.consolidate_every_hours
