"""Leave forgotten exchanges out of what is derived from a transcript, such as a summary.

The transcript itself belongs to its session and is left as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import ObservationStore
from chatbot.stores.records import TranscriptEntry, format_time

if TYPE_CHECKING:
    from chatbot.memory.handle import SessionHandle


async def without_forgotten(session: SessionHandle, entries: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
    """Return the entries, from the first question on, without exchanges whose rows were forgotten or erased."""
    if not entries or not session.supports(ObservationStore):
        return list(entries)
    asked = {format_time(entry.at) for entry in entries if entry.role == "user"}
    remembered = await session.remembered_since(min(entry.at for entry in entries))
    kept = {each: at for each, at in remembered.items() if at in asked}
    gone = {kept[each] for each in await _gone(session, kept)}
    return list(_without(entries, gone))


async def _gone(session: SessionHandle, ids: Collection[str]) -> list[str]:
    """Return the ids whose observations were forgotten or erased; archived ones are kept."""
    if not ids:
        return []
    scope = session.memory.scope
    rows = await scope.store.get(scope.view(SENSITIVITIES), list(ids), current=False)
    there = {row.id for row in rows if row.status != "deleted"}
    return [each for each in ids if each not in there]


def _without(entries: Sequence[TranscriptEntry], gone: Collection[str]) -> Iterator[TranscriptEntry]:
    hidden = True
    for entry in entries:
        if entry.role == "user":
            hidden = format_time(entry.at) in gone
        if not hidden:
            yield entry
