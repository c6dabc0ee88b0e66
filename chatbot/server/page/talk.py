"""Parts of a conversation: the end of it, what came before and after a part, and what is being said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from chatbot.attachments import split
from chatbot.chat.dialogue import USER
from chatbot.memory import SessionHandle
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.exchanges import Exchange, exchanges, with_receipts
from chatbot.server.turns import RunningTurn
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import UnsupportedOperation
from chatbot.stores.records import TranscriptEntry, format_time

AT_ONCE = 40
"""Entries that are shown at once, and added with each step backwards or forwards."""
_BEFORE = 6
"""Entries shown before a message that was asked for."""
_MOST_ENTRIES = 1_000_000


@dataclass(slots=True)
class TalkSpan:
    """Entries `begin` to `end` of a transcript, as exchanges; `total` is the number of all entries."""

    exchanges: list[Exchange] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    total: int = 0

    @property
    def is_end(self) -> bool:
        """True if nothing comes after it."""
        return self.end >= self.total


async def the_end(session: SessionHandle) -> TalkSpan:
    """The last entries, from a message on."""
    if not session.supports(TranscriptStore):
        return TalkSpan()
    return await _part(session, lambda total: (total - AT_ONCE, total))


async def before(session: SessionHandle, end: int) -> TalkSpan:
    """The entries before the one of that number."""
    return await _part(session, lambda total: (min(end, total) - AT_ONCE, end))


async def after(session: SessionHandle, begin: int) -> TalkSpan:
    """The entries from the one of that number on."""
    return await _part(session, lambda _: (begin, begin + AT_ONCE), is_forwards=True)


async def around(session: SessionHandle, moment: datetime) -> TalkSpan:
    """The entries around the message of that moment, with a few before it; the end where it is gone."""
    entries = await session.transcript_read_all()
    at = next((number for number, entry in enumerate(entries) if entry.at >= moment), None)
    if at is None:
        return await the_end(session)
    return await _part(session, lambda _: (at - _BEFORE, at + AT_ONCE - _BEFORE))


async def since(session: SessionHandle, moment: datetime) -> list[Exchange] | None:
    """The exchanges that began after the message of that moment; None if that message is gone."""
    n = AT_ONCE
    while True:
        entries = await session.transcript_read_last(n)
        if len(entries) < n or entries[0].at <= moment or n > _MOST_ENTRIES:
            if not any(each.at == moment for each in entries):
                return None
            asked = (n for n, each in enumerate(entries) if each.role == USER and each.at > moment)
            return await _told(session, entries[next(asked, len(entries)) :])
        n *= 4


async def under_way(access: IdentityAccess, session_id: str, told: list[Exchange]) -> None:
    """Mark the exchange that is being answered, and add messages that wait, as they are not written down yet."""
    turns = await access.turns_under_way(session_id)
    for number, turn in enumerate(turns):
        if number == 0 and told and _is_of(told[-1], turn):
            told[-1].turn = name_of(turn)
            continue
        told.append(waiting(turn))


def waiting(turn: RunningTurn) -> Exchange:
    """Return the exchange of a turn whose message is not written down yet."""
    text, files = split(turn.text)
    return Exchange("", turn.begun_at, text, files=files, turn=name_of(turn))


def _is_of(exchange: Exchange, turn: RunningTurn) -> bool:
    """Return whether an exchange on disk belongs to the turn; its files are named in the transcript alone."""
    return exchange.moment >= turn.begun_at and exchange.question == split(turn.text)[0]


def name_of(turn: RunningTurn) -> str:
    """Return the name of a running turn within its session."""
    return format_time(turn.begun_at)


def exchange_at(told: list[Exchange], moment: datetime) -> str:
    """Return the time that names the exchange of that moment; empty if there is none."""
    return next((each.at for each in reversed(told) if each.moment <= moment), "")


async def _part(
    session: SessionHandle, place: Callable[[int], tuple[int, int]], *, is_forwards: bool = False
) -> TalkSpan:
    """Read the part that `place` gives for the number of all entries, as whole exchanges."""
    total = await session.transcript_count()
    while True:  # a turn may add entries between counting and reading
        begin, end = place(total)
        begin, end = max(0, begin), min(end, total)
        last = await session.transcript_read_last(total - begin)
        if (now := await session.transcript_count()) == total:
            break
        total = now
    entries = last[: max(0, end - begin)]
    if not is_forwards:
        whole = _from_a_message(entries) if begin else entries
        begin, entries = begin + len(entries) - len(whole), whole
    elif end < total:
        end, entries = _to_a_message(begin, entries)
    return TalkSpan(await _told(session, entries), begin, end, total)


async def _told(session: SessionHandle, entries: list[TranscriptEntry]) -> list[Exchange]:
    found = exchanges(entries)
    if found:
        try:
            with_receipts(found, await session.receipts_since(found[0].moment))
        except UnsupportedOperation:  # a session without receipts
            return found
    return found


def _from_a_message(entries: list[TranscriptEntry]) -> list[TranscriptEntry]:
    """Drop all that belongs to a message before these; everything if there is no message among them."""
    first = next((number for number, entry in enumerate(entries) if entry.role == USER), 0)
    return entries[first:]


def _to_a_message(begin: int, entries: list[TranscriptEntry]) -> tuple[int, list[TranscriptEntry]]:
    """Drop the last message, which may be incomplete; return where the rest ends, and the rest."""
    last = max((number for number, entry in enumerate(entries) if entry.role == USER), default=0)
    kept = entries[:last] or entries
    return begin + len(kept), kept
