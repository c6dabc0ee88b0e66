"""The hooks that summarise sessions and episodes.

The request is the most informative sentence of the first message that says more than a greeting. The outcome is that of
the last reply that does. Decisions and open items are the rows of type `decision`, and the open tasks, of the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from chatbot.attachments import readable
from chatbot.chat.events import SESSION_END, TURN_END, SessionEnd, TurnEnd
from chatbot.chat.titles import says_little
from chatbot.hooks.capture import can_write
from chatbot.hooks.extraction.structured import ExtractionModel, note_work
from chatbot.hooks.hook import Hook, HookContext, per_session
from chatbot.memory import SessionHandle
from chatbot.memory.episode import READ_AT_ONCE, exchanges_in, without_forgotten
from chatbot.memory.memorability import content
from chatbot.memory.people import OPEN, TASK, task_of
from chatbot.messages import sentences_of, without_blocks
from chatbot.redaction import redact
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import KeyValueStore, ObservationStore, TranscriptStore
from chatbot.stores.errors import MissingFolder
from chatbot.stores.loops import to_its_end
from chatbot.stores.observation import KIND
from chatbot.stores.records import TranscriptEntry

if TYPE_CHECKING:
    from chatbot.hooks.extraction.summaries import SessionSummary

SUMMARY = "session.summary_by_model"


class Episodes(Hook):
    """Lets a model summarise the entries that left the window, if `[extraction]` enables summaries.

    It then provides the capability `session.summary_by_model`, which is its method `summarize`.
    """

    topics = (TURN_END,)
    priority = 160
    timeout_s = 60.0
    background = True

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._model = ExtractionModel(context)
        self._tried = per_session(list[datetime])
        if context.config.extraction.summaries:
            context.capabilities[SUMMARY] = self.summarize

    async def handle(self, event: TurnEnd) -> None:
        """Ask for a summary if enough has left the window since the last one."""
        session = event.session
        if not self.context.config.extraction.summaries:
            return
        if not (session.supports(TranscriptStore) and session.supports(KeyValueStore)):
            return
        # Loaded late: the governor's patterns take long to compile.
        from chatbot.hooks.extraction.summaries import evicted_entries, summarize_evicted

        evicted = await evicted_entries(session)
        if evicted is None or self._tried(session.id) == [evicted.until]:
            return  # a failure is tried again when the window has moved, not at each turn
        self._tried(session.id)[:] = [evicted.until]
        calls = self._model.calls(session)
        async with note_work(calls, "episode", after=event.turn, failed="the summary made by rule is kept") as record:
            record["notices"] += await summarize_evicted(session, calls, evicted)

    async def summarize(self, session: SessionHandle, entries: Sequence[TranscriptEntry]) -> SessionSummary | None:
        """Return a model's summary of the session; None, with a notice in the receipts, if it is unusable."""
        from chatbot.hooks.extraction.summaries import summarize_by_model

        calls, notice = self._model.calls(session), ""
        try:
            summary, notice = await summarize_by_model(entries, calls)
        finally:
            await to_its_end(calls.note("summary", notices=[notice] if notice else []))
        return summary

    async def aclose(self) -> None:
        """Close the model if it is not the chat's."""
        await self._model.aclose()


TurnCount = Annotated[int, Meta(ge=1)]
_LONGEST = 240
_MOST_ITEMS = 8
_READ_CHARACTERS = 20_000


class Summarize(Hook):
    """Summarises a session by rule, after `every` turns and at its end: request, outcome, decisions, open items.

    If `[extraction]` enables summaries, the hook `episode` then replaces it with a summary by a model.
    """

    topics = (TURN_END, SESSION_END)
    priority = 150
    timeout_s = 60.0
    background = True

    def __init__(self, context: HookContext, *, every: TurnCount = 10, least: TurnCount = 4) -> None:
        super().__init__(context)
        self._every = every
        self._least = least
        self._new = Counter[str]()
        """Number of turns since the last summary, by session."""

    async def handle(self, event: TurnEnd | SessionEnd) -> None:
        """Count a turn, and write the summary when it is time."""
        session = event.session
        if not (session.supports(ObservationStore) and session.supports(TranscriptStore) and can_write(session)):
            return
        if isinstance(event, TurnEnd):
            self._new[session.id] += 1
            if self._new[session.id] >= self._every:
                await self._write(session, self._new.pop(session.id), least=1)
        elif new := self._new.pop(session.id, 0):
            with suppress(MissingFolder):  # the session was deleted elsewhere
                await self._write(session, new, least=self._least)

    async def _write(self, session: SessionHandle, new: int, *, least: int) -> None:
        """Update the summary, or write the first one, unless there are fewer than `least` turns for it."""
        earlier = await session.memory.session_summaries(session_id=session.id, limit=1, sensitivities=SENSITIVITIES)
        entries = await without_forgotten(session, await session.transcript_read_last(READ_AT_ONCE))
        turns = exchanges_in(entries)
        if (new if earlier else len(turns)) < least:
            return
        before = earlier[0].metadata if earlier else {}
        asked = (_most_informative(readable(each.text)) for each in turns)
        replies = (_most_informative(each.reply) for each in reversed(turns))
        request = str(before.get("request") or "") or next(filter(None, asked), "")
        outcome = next(filter(None, replies), "") or str(before.get("outcome") or "")
        if request:
            decisions, open_items = await _decisions_in(session), await _open_tasks_in(session)
            await session.memory.summarize_session(request, outcome, decisions=decisions, open_items=open_items)
            by_model = self.context.capabilities.get(SUMMARY)
            if by_model is not None and (found := await by_model(session, entries)) is not None:
                parts = {"decisions": found.decisions, "open_items": found.open_items}
                await session.memory.summarize_session(found.request or request, found.outcome, **parts)


async def _decisions_in(session: SessionHandle) -> list[str]:
    """Return the last decisions that were written in the session, in their order."""
    rows = await session.memory.every(session_id=session.id, types=("decision",), sensitivities=SENSITIVITIES)
    return [_line(row.title or row.text()) for row in reversed(rows[:_MOST_ITEMS])]


async def _open_tasks_in(session: SessionHandle) -> list[str]:
    """Return the last tasks that were written in the session and are open, in their order."""
    rows = await session.memory.every(session_id=session.id, metadata={KIND: TASK}, sensitivities=SENSITIVITIES)
    tasks = [task for task in map(task_of, rows) if task.status in OPEN]
    return [_line(task.title) for task in reversed(tasks[:_MOST_ITEMS])]


def _most_informative(text: str) -> str:
    """Return the sentence with most content words, without secrets; empty if it says little."""
    text, _ = redact(without_blocks(text)[:_READ_CHARACTERS])
    best = max(sentences_of(text), key=lambda each: len(content(each)), default="")
    return "" if says_little(best) else _line(best)


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
