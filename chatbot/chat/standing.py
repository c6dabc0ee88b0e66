"""What of a transcript may be told again: not what memory was told to forget, or to erase.

The transcript belongs to its session and is left as it is. What is made of it, a summary, is memory again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from chatbot.chat.dialogue import USER
from chatbot.memory import SessionHandle
from stores.access import SENSITIVITIES
from stores.base import ObservationStore
from stores.errors import UnknownObservation
from stores.records import TranscriptEntry, format_time


async def standing(session: SessionHandle, entries: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
    """The entries, from the first question on, without exchanges that were remembered and are forgotten or erased."""
    if not entries or not session.supports(ObservationStore):
        return list(entries)
    asked = {format_time(entry.at) for entry in entries if entry.role == USER}
    remembered = await session.remembered_since(min(entry.at for entry in entries))
    kept = {each: at for each, at in remembered.items() if at in asked}
    gone = {kept[each] for each in await _gone(session, kept)}
    return list(_without(entries, gone))


async def _gone(session: SessionHandle, ids: Collection[str]) -> list[str]:
    """Those of the ids whose observations were forgotten or erased; one that rests otherwise still stands."""
    if not ids:
        return []
    there = {row.id for row in await session.get(list(ids), ask=SENSITIVITIES, count_use=False)}
    return [each for each in ids if each not in there and not await _rests(session, each)]


async def _rests(session: SessionHandle, observation_id: str) -> bool:
    try:
        line = await session.history(observation_id, ask=SENSITIVITIES)
    except UnknownObservation:
        return False
    return any(each.observation.id == observation_id and each.observation.status != "deleted" for each in line)


def _without(entries: Sequence[TranscriptEntry], gone: Collection[str]) -> Iterator[TranscriptEntry]:
    hidden = True
    for entry in entries:
        if entry.role == USER:
            hidden = format_time(entry.at) in gone
        if not hidden:
            yield entry
