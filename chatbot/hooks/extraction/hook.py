"""Extract facts from exchanges, after the turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatbot.chat.events import TURN_END, TurnEnd
from chatbot.errors import ChatbotError
from chatbot.hooks.extraction.extraction_model import ExtractionModel
from chatbot.hooks.hook import Hook, HookContext, uncancelled
from chatbot.stores.errors import StoreError

if TYPE_CHECKING:
    from chatbot.hooks.extraction.facts import FactList
    from chatbot.hooks.extraction.learning import FactOutcome


class Extraction(Hook):
    """Lets a model take facts out of each exchange after the turn, where `[extraction]` is enabled."""

    topics = (TURN_END,)
    priority = 150
    timeout_s = 90.0
    background = True

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._model = ExtractionModel(context)

    async def handle(self, event: TurnEnd) -> None:
        """Extract facts and remember them; their outcomes are in the session's receipts."""
        settings = self.context.config.extraction
        if not settings.enabled or event.remembrance is None:
            return
        # Loaded late: the governor's rules take long to compile.
        from chatbot.hooks.extraction.learning import TurnText, learn_from

        calls = self._model.calls(event.session)
        turn = TurnText(event.at, event.text, event.reply, event.recalled.rows)
        record: dict[str, object] = {"facts": [], "notices": []}
        try:
            record["facts"] = _outcomes(*await learn_from(turn, event.session, calls, settings))
        except (ChatbotError, StoreError) as error:
            record["notices"] = [f"nothing was extracted: {error}"]
            raise
        finally:
            if calls.made or record["notices"]:
                await uncancelled(calls.note("extraction", after=event.turn, **record))

    async def aclose(self) -> None:
        """Close the model if it is not the chat's."""
        await self._model.aclose()


def _outcomes(extracted: FactList, learned: Sequence[FactOutcome]) -> list[dict[str, object]]:
    """Return the outcomes for the receipt: without texts, for a receipt would outlive a purge."""
    dropped = [{"outcome": "dropped", "reason": reason} for _, reason in extracted.dropped]
    return [*(each.as_json() for each in learned), *dropped]
