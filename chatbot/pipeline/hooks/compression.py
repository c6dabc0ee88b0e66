"""What is alike becomes one, and what was kept for long enough goes."""

from __future__ import annotations

from chatbot.config import MaintenanceSettings
from chatbot.pipeline.upkeep import Maintaining


class Compression(Maintaining):
    """Merges memories that are alike and retires old ones, every few days, as [maintenance] says."""

    priority = 300
    part = "compression"

    @staticmethod
    def hours(settings: MaintenanceSettings) -> float:
        """See `Maintaining`."""
        return settings.compress_every_hours
