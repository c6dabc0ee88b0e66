"""A summary of each session, brought up to date from time to time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from chatbot.chat.dialogue import ASSISTANT, USER
from chatbot.chat.episode import READ_AT_ONCE
from chatbot.chat.events import SESSION_END, TURN_END, SessionEnd, TurnEnd
from chatbot.chat.standing import standing
from chatbot.memory import SessionHandle
from chatbot.pipeline.digest import Digest
from chatbot.pipeline.hook import Hook, HookContext
from chatbot.pipeline.hooks.capture import can_write
from chatbot.pipeline.hooks.episode import SUMMARY
from chatbot.pipeline.sittings import Sittings
from stores.access import SENSITIVITIES
from stores.base import ObservationStore, TranscriptStore
from stores.records import TranscriptEntry

Turns = Annotated[int, Meta(ge=1)]
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a turn adds to the summary; `kept` is the observation that keeps its exchange."""

    at: datetime
    kept: str | None
    digest: Digest


class Summarize(Hook):
    """Sums up a session by rule, every so many turns and at its end: request, outcome, decisions, open items.

    What `[hooks.episode]` offers where `[extraction]` asks for summaries then takes the place of that.
    """

    topics = (TURN_END, SESSION_END)
    priority = 150
    timeout_s = 60.0
    background = True

    def __init__(self, context: HookContext, *, every: Turns = 10, least: Turns = 4) -> None:
        super().__init__(context)
        self._every = every
        self._least = least
        self._turns: Sittings[tuple[_Turn, ...]] = Sittings(tuple)

    async def handle(self, event: TurnEnd | SessionEnd) -> None:
        """Take in a turn, and write the summary when it is time."""
        session = event.session
        if not (session.supports(ObservationStore) and can_write(session)):
            return
        if isinstance(event, TurnEnd):
            turns = (*self._turns[session.id], _Turn(event.at, event.kept, Digest.of(event.text, event.reply)))
            self._turns[session.id] = turns[-_MOST:]
            if len(turns) >= self._every:
                await self._write(session, turns)
                self._turns[session.id] = ()
        elif (left := self._turns.pop(session.id)) is not None:
            await self._write(session, left, least=self._least)

    async def _write(self, session: SessionHandle, held: Sequence[_Turn], *, least: int = 1) -> None:
        """Bring the summary up to date. Where there is none, or none any more, it is made of the transcript too."""
        earlier = await session.session_summaries(session_id=session.id, limit=1, ask=SENSITIVITIES)
        if earlier and len(held) < least:
            return
        turns, digest = await _standing(held, session, alone=bool(earlier)), Digest()
        for each in turns:
            digest = digest.joined(each.digest)
        if earlier:
            digest = digest.after(earlier[0].metadata)
        if digest.request and (earlier or len(turns) >= least):
            await session.summarize_session(
                digest.request, digest.outcome, decisions=digest.decisions, open_items=digest.open_items
            )
            await self._ask_model(session, digest)

    async def _ask_model(self, session: SessionHandle, digest: Digest) -> None:
        """Put a model's summary in the place of the one made by rule, where one is asked for and can be used."""
        by_model = self.context.capabilities.find(SUMMARY)
        if by_model is None or not session.supports(TranscriptStore):
            return
        entries = await standing(session, await session.transcript_read_last(READ_AT_ONCE))
        if (summary := await by_model(session, entries)) is not None:
            await session.summarize_session(
                summary.request or digest.request,
                summary.outcome,
                decisions=summary.decisions,
                open_items=summary.open_items,
            )


async def _standing(held: Sequence[_Turn], session: SessionHandle, *, alone: bool) -> list[_Turn]:
    """Those that were not taken back, and whose exchanges were not forgotten or erased meanwhile.

    With what else the end of the transcript holds, unless they are wanted `alone`.
    """
    ids = [each.kept for each in held if each.kept is not None]
    there = {row.id for row in await session.get(ids, ask=SENSITIVITIES, count_use=False)} if ids else set()
    held = [each for each in held if each.kept is None or each.kept in there]
    if not session.supports(TranscriptStore):
        return held
    said = await session.transcript_read_last(READ_AT_ONCE)
    shown = {turn.at: turn for turn in _turns_in(await standing(session, said))}
    before = [each for each in held if said and each.at < said[0].at]
    own = {each.at for each in held}
    return before + [turn for at, turn in shown.items() if at in own or not alone]


def _turns_in(entries: Sequence[TranscriptEntry]) -> Iterator[_Turn]:
    """The turns that came to an end."""
    at, text, reply = None, "", ""
    for entry in [*entries, None]:
        if entry is None or entry.role == USER:
            if at is not None and reply:
                yield _Turn(at, None, Digest.of(text, reply))
            at, text, reply = (entry.at, entry.content, "") if entry else (None, "", "")
        elif entry.role == ASSISTANT:
            reply = entry.content
