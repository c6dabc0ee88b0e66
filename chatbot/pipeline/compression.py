"""What is alike becomes one, and what was kept for long enough goes."""

from __future__ import annotations

from chatbot.pipeline.upkeep import Maintaining


class Compression(Maintaining):
    """Merges memories that are alike and retires old ones, at most once a day, as [maintenance] says."""

    priority = 300
    part = "compression"
