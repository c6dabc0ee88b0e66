"""The hooks that summarise sessions and episodes.

The request is a sentence of the first message that says more than a greeting, and the outcome one of the last such
reply. Decisions and open items are the rows of type `decision` and the open tasks written in the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from chatbot.chat.dialogue import ASSISTANT, USER, says_little
from chatbot.chat.events import SESSION_END, TURN_END, SessionEnd, TurnEnd
from chatbot.hooks.capture import can_write
from chatbot.hooks.extraction.structured import ExtractionModel, noted
from chatbot.hooks.hook import Hook, HookContext, PerSession, uncancelled
from chatbot.memory import SessionHandle
from chatbot.memory.episode import READ_AT_ONCE, without_forgotten
from chatbot.memory.memorability import content
from chatbot.memory.people import KIND, OPEN, task_of
from chatbot.messages import sentences, without_blocks
from chatbot.redaction import redact
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import KeyValueStore, ObservationStore, TranscriptStore
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
        """Ask for a summary if enough has left the window since the last one."""
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
        async with noted(calls, "episode", after=event.turn, failed="the summary made by rule stands") as record:
            record["notices"] += await summarize_left(session, calls, left)

    async def summarize(self, session: SessionHandle, entries: Sequence[TranscriptEntry]) -> SessionSummary | None:
        """Return a model's summary of the session; None if it cannot be used, which the receipts say."""
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


Turns = Annotated[int, Meta(ge=1)]
_MOST_TURNS = 1_000
_LONGEST = 240
_MOST_ITEMS = 8
_READ_CHARACTERS = 20_000
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s*(?=\S)|\n+")


class _TurnLines(Struct, frozen=True):
    """The lines of one turn for a summary, empty if it says little; `kept` is the row of its exchange."""

    at: datetime
    kept: str | None
    asked: str
    answered: str


class Summarize(Hook):
    """Sums up a session by rule, every so many turns and at its end: request, outcome, decisions, open items.

    Where `[extraction]` asks for summaries, the summary by a model of `[hooks.episode]` replaces it.
    """

    topics = (TURN_END, SESSION_END)
    priority = 150
    timeout_s = 60.0
    background = True

    def __init__(self, context: HookContext, *, every: Turns = 10, least: Turns = 4) -> None:
        super().__init__(context)
        self._every = every
        self._least = least
        self._turns: PerSession[tuple[_TurnLines, ...]] = PerSession(tuple)

    async def handle(self, event: TurnEnd | SessionEnd) -> None:
        """Add a turn, and write the summary when it is time."""
        session = event.session
        if not (session.supports(ObservationStore) and can_write(session)):
            return
        if isinstance(event, TurnEnd):
            turns = (
                *self._turns[session.id],
                _TurnLines(event.at, event.kept, _most_informative(event.text), _most_informative(event.reply)),
            )
            self._turns[session.id] = turns[-_MOST_TURNS:]
            if len(turns) >= self._every:
                await self._write(session, turns)
                self._turns[session.id] = ()
        elif (left := self._turns.pop(session.id)) is not None:
            await self._write(session, left, least=self._least)

    async def _write(self, session: SessionHandle, held: Sequence[_TurnLines], *, least: int = 1) -> None:
        """Update the summary; if there is none, or it was deleted, make it from the transcript too."""
        earlier = await session.memory.session_summaries(session_id=session.id, limit=1, ask=SENSITIVITIES)
        if earlier and len(held) < least:
            return
        before = earlier[0].metadata if earlier else {}
        turns = await _still_valid(held, session, alone=bool(earlier))
        asked = [each.asked for each in turns if each.asked and each.kept] or [
            each.asked for each in turns if each.asked
        ]
        answered = [each.answered for each in turns if each.answered]
        request = str(before.get("request") or "") or next(iter(asked), "")
        if request and (earlier or len(turns) >= least):
            outcome = answered[-1] if answered else str(before.get("outcome") or "")
            decisions, open_items = await _decided(session), await _open(session)
            await session.memory.summarize_session(request, outcome, decisions=decisions, open_items=open_items)
            await self._ask_model(session, request)

    async def _ask_model(self, session: SessionHandle, request: str) -> None:
        """Replace the summary made by rule by a model's, if one is configured and can be used."""
        by_model = self.context.capabilities.find(SUMMARY)
        if by_model is None or not session.supports(TranscriptStore):
            return
        entries = await without_forgotten(session, await session.transcript_read_last(READ_AT_ONCE))
        if (summary := await by_model(session, entries)) is not None:
            await session.memory.summarize_session(
                summary.request or request,
                summary.outcome,
                decisions=summary.decisions,
                open_items=summary.open_items,
            )


async def _still_valid(held: Sequence[_TurnLines], session: SessionHandle, *, alone: bool) -> list[_TurnLines]:
    """Drop turns that were taken back, and turns whose exchanges were forgotten or erased meanwhile.

    Unless `alone` is set, adds the other turns at the end of the transcript.
    """
    ids = [each.kept for each in held if each.kept is not None]
    there = {row.id for row in await session.memory.get(ids, ask=SENSITIVITIES, count_use=False)} if ids else set()
    held = [each for each in held if each.kept is None or each.kept in there]
    if not session.supports(TranscriptStore):
        return held
    said = await session.transcript_read_last(READ_AT_ONCE)
    shown = {turn.at: turn for turn in _turns_in(await without_forgotten(session, said))}
    before = [each for each in held if said and each.at < said[0].at]
    own = {each.at for each in held}
    return before + [turn for at, turn in shown.items() if at in own or not alone]


def _turns_in(entries: Sequence[TranscriptEntry]) -> Iterator[_TurnLines]:
    """Yield the turns that have a reply."""
    at, text, reply = None, "", ""
    for entry in [*entries, None]:
        if entry is None or entry.role == USER:
            if at is not None and reply:
                yield _TurnLines(at, None, _most_informative(text), _most_informative(reply))
            at, text, reply = (entry.at, entry.content, "") if entry else (None, "", "")
        elif entry.role == ASSISTANT:
            reply = entry.content


async def _decided(session: SessionHandle) -> list[str]:
    """Return the last decisions that were written in the session, in their order."""
    rows = await session.memory.every(session_id=session.id, types=("decision",), ask=SENSITIVITIES)
    return [_line(row.title or row.text()) for row in reversed(rows[:_MOST_ITEMS])]


async def _open(session: SessionHandle) -> list[str]:
    """Return the last tasks that were written in the session and are open, in their order."""
    rows = await session.memory.every(session_id=session.id, metadata={"kind": KIND}, ask=SENSITIVITIES)
    tasks = [task for task in map(task_of, rows) if task.status in OPEN]
    return [_line(task.title) for task in reversed(tasks[:_MOST_ITEMS])]


def _most_informative(text: str) -> str:
    """Return the sentence with most content words, without secrets; empty if it says little."""
    text, _ = redact(without_blocks(text)[:_READ_CHARACTERS])
    best = max(sentences(text, _SENTENCE), key=lambda each: len(content(each)), default="")
    return "" if says_little(best) else _line(best)


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
