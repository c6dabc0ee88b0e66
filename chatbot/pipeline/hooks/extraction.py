"""Taking facts out of what was said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatbot.chat.events import TURN_END, TurnEnd
from chatbot.errors import ChatbotError
from chatbot.pipeline.by_model.errands import ClerkOf
from chatbot.pipeline.hook import Hook, HookContext
from stores.errors import StoreError

if TYPE_CHECKING:
    from chatbot.pipeline.by_model.facts import Extracted
    from chatbot.pipeline.by_model.learning import Learned


class Extraction(Hook):
    """Lets a model take facts out of each exchange after the turn, where `[extraction]` is enabled."""

    topics = (TURN_END,)
    priority = 150
    timeout_s = 90.0
    background = True

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._clerks = ClerkOf(context)

    async def handle(self, event: TurnEnd) -> None:
        """Take them out and remember them; what became of them stands in the session's receipts."""
        if not self.context.config.extraction.enabled or event.remembrance is None:
            return
        from chatbot.pipeline.by_model.exchange_facts import Said, learn_from, whole  # with the rules of the governor

        errand = self._clerks.clerk().errand(event.session)
        said = Said(event.at, event.text, event.reply, event.recalled.rows)
        record: dict[str, object] = {"facts": [], "notices": []}
        try:
            record["facts"] = _told(*await learn_from(said, event.session, errand))
        except (ChatbotError, StoreError) as error:
            record["notices"] = [f"nothing was extracted: {error}"]
            raise
        finally:
            if errand.calls or record["notices"]:
                await whole(errand.note("extraction", after=event.turn, **record))

    async def aclose(self) -> None:
        """Close the model, where it is another than the one that chats."""
        await self._clerks.aclose()


def _told(extracted: Extracted, learned: Sequence[Learned]) -> list[dict[str, object]]:
    """What the receipts hold: no texts, for what is purged shall not stand here still."""
    dropped = [{"outcome": "dropped", "reason": reason} for _, reason in extracted.dropped]
    return [*(each.as_json() for each in learned), *dropped]
