"""Summarise each session by rule, from time to time: request, outcome, decisions, open items.

Small talk is none of these. An item is open until a later sentence says that it is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from chatbot.chat.dialogue import ASSISTANT, USER
from chatbot.chat.events import SESSION_END, TURN_END, SessionEnd, TurnEnd
from chatbot.hooks.capture import can_write
from chatbot.hooks.episode import SUMMARY
from chatbot.hooks.hook import Hook, HookContext, PerSession
from chatbot.memory import SessionHandle
from chatbot.memory.episode import READ_AT_ONCE
from chatbot.memory.exchanges import without_blocks
from chatbot.memory.forgotten import without_forgotten
from chatbot.memory.telling import closes, is_decision, is_open, is_small_talk, tells
from chatbot.redaction import redact
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import ObservationStore, TranscriptStore
from chatbot.stores.records import TranscriptEntry
from chatbot.words import sentences

Turns = Annotated[int, Meta(ge=1)]
_MOST_TURNS = 1_000
_LONGEST = 240
_MOST_ITEMS = 8
_READ_CHARACTERS = 20_000
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s*(?=\S)|\n+")


@dataclass(frozen=True, slots=True)
class _TurnDigest:
    """The part of the summary that one turn adds; `kept` is the observation of its exchange."""

    at: datetime
    kept: str | None
    digest: Digest


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
        self._turns: PerSession[tuple[_TurnDigest, ...]] = PerSession(tuple)

    async def handle(self, event: TurnEnd | SessionEnd) -> None:
        """Add a turn, and write the summary when it is time."""
        session = event.session
        if not (session.supports(ObservationStore) and can_write(session)):
            return
        if isinstance(event, TurnEnd):
            turns = (*self._turns[session.id], _TurnDigest(event.at, event.kept, Digest.of(event.text, event.reply)))
            self._turns[session.id] = turns[-_MOST_TURNS:]
            if len(turns) >= self._every:
                await self._write(session, turns)
                self._turns[session.id] = ()
        elif (left := self._turns.pop(session.id)) is not None:
            await self._write(session, left, least=self._least)

    async def _write(self, session: SessionHandle, held: Sequence[_TurnDigest], *, least: int = 1) -> None:
        """Update the summary. Where there is none, or none any more, it is made from the transcript too."""
        earlier = await session.session_summaries(session_id=session.id, limit=1, ask=SENSITIVITIES)
        if earlier and len(held) < least:
            return
        turns, digest = await _still_valid(held, session, alone=bool(earlier)), Digest()
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
        """Replace the summary made by rule by a model's, where one is asked for and can be used."""
        by_model = self.context.capabilities.find(SUMMARY)
        if by_model is None or not session.supports(TranscriptStore):
            return
        entries = await without_forgotten(session, await session.transcript_read_last(READ_AT_ONCE))
        if (summary := await by_model(session, entries)) is not None:
            await session.summarize_session(
                summary.request or digest.request,
                summary.outcome,
                decisions=summary.decisions,
                open_items=summary.open_items,
            )


async def _still_valid(held: Sequence[_TurnDigest], session: SessionHandle, *, alone: bool) -> list[_TurnDigest]:
    """Drop turns that were taken back, and turns whose exchanges were forgotten or erased meanwhile.

    Unless they are wanted `alone`, adds the other turns at the end of the transcript.
    """
    ids = [each.kept for each in held if each.kept is not None]
    there = {row.id for row in await session.get(ids, ask=SENSITIVITIES, count_use=False)} if ids else set()
    held = [each for each in held if each.kept is None or each.kept in there]
    if not session.supports(TranscriptStore):
        return held
    said = await session.transcript_read_last(READ_AT_ONCE)
    shown = {turn.at: turn for turn in _turns_in(await without_forgotten(session, said))}
    before = [each for each in held if said and each.at < said[0].at]
    own = {each.at for each in held}
    return before + [turn for at, turn in shown.items() if at in own or not alone]


def _turns_in(entries: Sequence[TranscriptEntry]) -> Iterator[_TurnDigest]:
    """Yield the turns that have a reply."""
    at, text, reply = None, "", ""
    for entry in [*entries, None]:
        if entry is None or entry.role == USER:
            if at is not None and reply:
                yield _TurnDigest(at, None, Digest.of(text, reply))
            at, text, reply = (entry.at, entry.content, "") if entry else (None, "", "")
        elif entry.role == ASSISTANT:
            reply = entry.content


@dataclass(frozen=True, slots=True)
class Digest:
    """The summary of a session so far; lists are bounded, the latest items stay."""

    turns: int = 0
    request: str = ""
    outcome: str = ""
    decisions: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    """Sentences that may close items of earlier turns."""

    def extended(self, text: str, reply: str) -> Digest:
        """Return the digest with one more turn. Questions decide nothing."""
        return self.joined(Digest.of(text, reply))

    @classmethod
    def of(cls, text: str, reply: str) -> Digest:
        """Make the digest of one turn."""
        said, answered = list(_sentences(text)), list(_sentences(reply))
        both = [*said, *answered]
        open_ = [each for at, each in enumerate(both) if is_open(each) and not _is_closed(each, both[at + 1 :])]
        return cls(
            1,
            _most_informative(said),
            _most_informative(answered),
            _latest((), filter(is_decision, both)),
            _latest((), open_),
            tuple(both),
        )

    def joined(self, later: Digest) -> Digest:
        """Return both together, in their order."""
        still_open = [each for each in self.open_items if not _is_closed(each, later.done)]
        return Digest(
            self.turns + later.turns,
            self.request or later.request,
            later.outcome or self.outcome,
            _latest(self.decisions, later.decisions),
            _latest(still_open, later.open_items),
            later.done,
        )

    def after(self, earlier: Mapping[str, Any]) -> Digest:
        """Return the digest on top of an earlier summary of the same session, given as its metadata."""
        still_open = [each for each in _texts(earlier.get("open_items")) if not _is_closed(each, self.done)]
        return replace(
            self,
            request=_request(earlier.get("request")) or self.request,
            outcome=self.outcome or str(earlier.get("outcome") or ""),
            decisions=_latest(_texts(earlier.get("decisions")), self.decisions),
            open_items=_latest(still_open, self.open_items),
        )


def _sentences(text: str) -> Iterator[str]:
    text, _ = redact(without_blocks(text)[:_READ_CHARACTERS])
    for sentence in sentences(text, _SENTENCE):
        if line := " ".join(sentence.split()):
            yield line[:_LONGEST]


def _most_informative(told: Sequence[str]) -> str:
    """Return the most informative sentence; empty where all of them are small talk."""
    best = max(told, key=tells, default="")
    return "" if is_small_talk(best) else best


def _is_closed(item: str, later: Iterable[str]) -> bool:
    return any(closes(each, item) for each in later)


def _request(request: object) -> str:
    """Return the request of an earlier summary, unless it is small talk."""
    text = str(request or "")
    return "" if is_small_talk(text) else text


def _latest(before: Iterable[str], found: Iterable[str]) -> tuple[str, ...]:
    found = list(found)
    return tuple(dict.fromkeys([*(each for each in before if each not in found), *found]))[-_MOST_ITEMS:]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
