"""Ids and times of sessions; their record is `chatbot.stores.session_record`, for backends keep it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatbot.stores.session_record import (
    LONGEST_TITLE,
    VERSION,
    SessionRecord,
    decode_record,
    is_session_id,
    parse_record,
)

if TYPE_CHECKING:
    from uuid import UUID

__all__ = [
    "CHOICES",
    "LONGEST_TITLE",
    "VERSION",
    "SessionRecord",
    "decode_record",
    "is_session_id",
    "new_id",
    "parse_record",
    "utc_now",
]

CHOICES = "choices"
"""The key under which a session keeps its own model and persona, and whether memory is used."""


def new_id() -> UUID:
    """A UUIDv7: unique, and in the order of time."""
    import uuid6

    return uuid6.uuid7()


def utc_now() -> datetime:
    """The present moment, aware."""
    return datetime.now(UTC)
