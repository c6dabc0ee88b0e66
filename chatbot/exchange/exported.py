"""A session as it leaves: all that may be seen of it, and no secret.

What the detector takes for a key or a password is taken out of every text. Of what is remembered in the session,
`secret` rows stay behind whoever asks, and so does all that the caller may not see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chatbot.exchange.known import without_places
from chatbot.memory import MemorySystem, SessionHandle, SessionRecord
from chatbot.memory.redaction import redact_all
from stores.access import Sensitivity
from stores.base import KeyValueStore, TranscriptStore
from stores.errors import UnsupportedOperation
from stores.observation import Observation, Triple
from stores.query import MOST_AT_ONCE
from stores.records import KeyValue, TranscriptEntry

TAKEN: tuple[Sensitivity, ...] = ("public", "private")
_ALL = 2**31


@dataclass(frozen=True, slots=True)
class Exported:
    """What of a session goes out."""

    record: SessionRecord
    entries: tuple[TranscriptEntry, ...]
    archived: int = 0
    """How many of the entries, the first ones, stand in the archive."""
    key_values: tuple[KeyValue, ...] = ()
    receipts: tuple[Mapping[str, Any], ...] = ()
    observations: tuple[Observation, ...] = ()
    facts: tuple[Triple, ...] = ()
    redacted: tuple[str, ...] = ()
    """The kinds of secrets that were taken out."""


async def export_session(memory: MemorySystem, session_id: str, *, memories: bool = True) -> Exported:
    """Everything of a session that may go out; without what is remembered of it, where that is not wanted."""
    session = await memory.load_session(session_id, any_agent=True)
    entries, archived = await _said(session)
    key_values = await session.kv_entries() if session.supports(KeyValueStore) else []
    receipts = await session.receipts()
    if not memories:
        receipts = [{name: value for name, value in receipt.items() if name != "memory"} for receipt in receipts]
    said, spoken = redact_all([entry.content for entry in entries])
    values, kept = redact_all([entry.value for entry in key_values])
    receipts, billed = redact_all(receipts)
    title, named = redact_all(session.record.title)
    observations, facts = await _remembered(memory, session_id) if memories else ((), ())
    used_at = max([session.record.used_at, *(entry.at for entry in entries[-1:])])
    return Exported(
        replace(session.record, title=title, used_at=used_at),
        tuple(replace(entry, content=content) for entry, content in zip(entries, said, strict=True)),
        archived,
        tuple(replace(entry, value=value) for entry, value in zip(key_values, values, strict=True)),
        tuple(receipts),
        observations,
        facts,
        tuple(dict.fromkeys((*spoken, *kept, *billed, *named))),
    )


async def _said(session: SessionHandle) -> tuple[list[TranscriptEntry], int]:
    if not session.supports(TranscriptStore):
        return [], 0
    entries = await session.transcript_read_all()
    return entries, max(0, len(entries) - len(await session.transcript_read_last(_ALL)))


async def _remembered(memory: MemorySystem, session_id: str) -> tuple[tuple[Observation, ...], tuple[Triple, ...]]:
    """What is current of what was remembered in the session, as far as the caller sees it, oldest first."""
    try:
        memories = memory.memories().within(across=True)
    except UnsupportedOperation:
        return (), ()
    rows = await memories.every(ask=TAKEN, session_id=session_id)
    facts = await memories.query_facts(ask=TAKEN, session_id=session_id, limit=MOST_AT_ONCE)
    return tuple(replace(row, metadata=without_places(row.metadata)) for row in rows[::-1]), tuple(facts[::-1])
