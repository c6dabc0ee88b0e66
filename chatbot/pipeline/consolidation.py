"""What is used grows stronger, and what is not fades."""

from __future__ import annotations

from chatbot.pipeline.upkeep import Maintaining


class Consolidation(Maintaining):
    """Lets memory fade with time and grow stronger with use, at most once a day, as [maintenance] says."""

    priority = 200
    part = "consolidation"
