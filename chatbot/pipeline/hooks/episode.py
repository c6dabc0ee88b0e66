"""Summing up by a model what the window left out, and sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from chatbot.chat.events import TURN_END, TurnEnd
from chatbot.errors import ChatbotError
from chatbot.memory import SessionHandle
from chatbot.pipeline.by_model.errands import ClerkOf
from chatbot.pipeline.hook import Hook, HookContext
from stores.base import KeyValueStore, TranscriptStore
from stores.errors import StoreError
from stores.records import TranscriptEntry

if TYPE_CHECKING:
    from chatbot.pipeline.by_model.summarizing import SessionSummary

SUMMARY = "session.summary_by_model"


class Episodes(Hook):
    """Lets a model sum up what the window left out, where `[extraction]` asks for summaries.

    Provides `session.summary_by_model` then: `await it(session, entries)` gives a `SessionSummary`, or None.
    """

    topics = (TURN_END,)
    priority = 160
    timeout_s = 60.0
    background = True

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._clerks = ClerkOf(context)
        self._tried: dict[str, datetime] = {}
        if context.config.extraction.summaries:
            context.capabilities.provide(SUMMARY, self.summarize)

    async def handle(self, event: TurnEnd) -> None:
        """Ask for a summary, where enough has left the window since the last one."""
        session = event.session
        if not self.context.config.extraction.summaries:
            return
        if not (session.supports(TranscriptStore) and session.supports(KeyValueStore)):
            return
        from chatbot.pipeline.by_model.exchange_facts import whole
        from chatbot.pipeline.by_model.summarizing import tell_episode, what_left  # with the rules of the governor

        left = await what_left(session)
        if left is None or self._tried.get(session.id) == left.until:
            return  # what failed is tried again when the window has moved, not at each turn
        self._tried[session.id] = left.until
        errand = self._clerks.clerk().errand(session)
        notices: list[str] = []
        try:
            notices += await tell_episode(session, errand, left)
        except (ChatbotError, StoreError) as error:
            notices.append(f"the summary made by rule stands: {error}")
            raise
        finally:
            if errand.calls or notices:
                await whole(errand.note("episode", after=event.turn, notices=notices))

    async def summarize(self, session: SessionHandle, entries: Sequence[TranscriptEntry]) -> SessionSummary | None:
        """A summary of the session by a model; None where it is of no use, which the receipts tell. On its bill."""
        from chatbot.pipeline.by_model.exchange_facts import whole
        from chatbot.pipeline.by_model.summarizing import SessionSummary, summarize_by_model

        errand = self._clerks.clerk().errand(session)
        rule, notice = SessionSummary(""), ""
        try:
            summary, notice = await summarize_by_model(entries, errand, rule)
        finally:
            await whole(errand.note("summary", notices=[notice] if notice else []))
        return None if notice else summary

    async def aclose(self) -> None:
        """Close the model, where it is another than the one that chats."""
        await self._clerks.aclose()
