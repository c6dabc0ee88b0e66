"""Summarise by a model what the window left out, and sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from chatbot.chat.events import TURN_END, TurnEnd
from chatbot.errors import ChatbotError
from chatbot.hooks.extraction.extraction_model import ExtractionModel
from chatbot.hooks.hook import Hook, HookContext, uncancelled
from chatbot.memory import SessionHandle
from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import StoreError
from chatbot.stores.records import TranscriptEntry

if TYPE_CHECKING:
    from chatbot.hooks.extraction.summaries import SessionSummary

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
        self._model = ExtractionModel(context)
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
        # Loaded late: the governor's patterns take long to compile.
        from chatbot.hooks.extraction.summaries import entries_left, summarize_left

        left = await entries_left(session)
        if left is None or self._tried.get(session.id) == left.until:
            return  # a failure is tried again when the window has moved, not at each turn
        self._tried[session.id] = left.until
        calls = self._model.calls(session)
        notices: list[str] = []
        try:
            notices += await summarize_left(session, calls, left)
        except (ChatbotError, StoreError) as error:
            notices.append(f"the summary made by rule stands: {error}")
            raise
        finally:
            if calls.made or notices:
                await uncancelled(calls.note("episode", after=event.turn, notices=notices))

    async def summarize(self, session: SessionHandle, entries: Sequence[TranscriptEntry]) -> SessionSummary | None:
        """Return a model's summary of the session; None where it cannot be used, which the receipts say."""
        from chatbot.hooks.extraction.summaries import SessionSummary, summarize_by_model

        calls = self._model.calls(session)
        rule, notice = SessionSummary(""), ""
        try:
            summary, notice = await summarize_by_model(entries, calls, rule)
        finally:
            await uncancelled(calls.note("summary", notices=[notice] if notice else []))
        return None if notice else summary

    async def aclose(self) -> None:
        """Close the model if it is not the chat's."""
        await self._model.aclose()
