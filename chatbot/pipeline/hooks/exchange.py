"""Keeping what was said."""

from __future__ import annotations

from chatbot.chat.events import TURN_END, Kept, TurnEnd
from chatbot.memory.memorability import Memorability
from chatbot.pipeline.hook import Hook


class Exchange(Hook):
    """Remembers each exchange, word for word, before the turn returns."""

    topics = (TURN_END,)
    priority = 50
    timeout_s = 60.0

    async def handle(self, event: TurnEnd) -> Kept | None:
        """The observation that keeps the exchange, where it is worth keeping."""
        memorability: Memorability | None = self.context.capabilities.find("memory.memorability")
        return await event.keep(memorability or Memorability(gate=0))
