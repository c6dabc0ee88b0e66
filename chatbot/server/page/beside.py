"""The sessions beside every page: pinned ones first, then those used last; archived ones are left out."""

from __future__ import annotations

from chatbot.memory import SessionRecord
from chatbot.server.identity_access import IdentityAccess

_MOST = 40


async def beside(access: IdentityAccess) -> list[SessionRecord]:
    """Return the pinned sessions and the ones used last."""
    return [
        *await access.memory.list_sessions(wanted=_is_pinned, clearance=access.clearance),
        *await access.memory.list_sessions(limit=_MOST, wanted=_is_listed, clearance=access.clearance),
    ]


def _is_pinned(record: SessionRecord) -> bool:
    return record.pinned_at is not None and record.archived_at is None


def _is_listed(record: SessionRecord) -> bool:
    return record.pinned_at is None and record.archived_at is None
