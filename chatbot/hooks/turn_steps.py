"""The two steps of a turn that have a place among the hooks, so that they can be moved, timed and switched off.

The turn does the work itself; see `Step` in `chatbot.chat.events`.
"""

from __future__ import annotations

from typing import Any

from chatbot.chat.events import EXCHANGE, PROMPT_SUBMIT, TURN_END
from chatbot.hooks.hook import Hook, HookContext


class TurnStep(Hook):
    """A place in the order of hooks for a step of the turn."""

    timeout_s = 60.0

    async def handle(self, event: Any) -> None:
        """Do nothing: an event that no turn publishes has no step."""


class InjectStep(TurnStep):
    """Puts what is remembered about a message into its prompt."""

    topics = (PROMPT_SUBMIT,)
    priority = 50


class ExchangeStep(TurnStep):
    """Remembers each exchange, word for word: the user's words before the model is asked, the reply at the end."""

    topics = (TURN_END,)
    priority = 50

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        context.capabilities.provide(EXCHANGE, True)  # noqa: FBT003 - that words are kept is all that a turn asks
