"""Recall into the prompt."""

from __future__ import annotations

from chatbot.chat.events import PROMPT_SUBMIT, PromptSubmit
from chatbot.chat.remembrance import Choose, Recalled
from chatbot.pipeline.hook import Hook


class Inject(Hook):
    """Puts what is remembered about a message into its prompt."""

    topics = (PROMPT_SUBMIT,)
    priority = 50
    timeout_s = 60.0

    async def handle(self, event: PromptSubmit) -> Recalled | None:
        """The memory block, and how it was chosen."""
        choose: Choose | None = self.context.capabilities.find("memory.temporal")
        return await event.recall(choose)
