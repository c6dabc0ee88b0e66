"""What files from elsewhere hold, as values that know no format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from chatbot.memory.writing import Draft
from stores.observation import one_line
from stores.records import TranscriptEntry, check_time, format_time

LONGEST_KEY = 200


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation that was held elsewhere. `key` tells it from all others of its kind, in every export."""

    key: str
    title: str
    created_at: datetime
    used_at: datetime
    entries: tuple[TranscriptEntry, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What of it is not taken over, and how often."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Something that was remembered elsewhere."""

    key: str
    draft: Draft
    namespace: str = ""
    place: str = ""
    """The file that it stands in, where its key tells it only from what else stands there."""

    @property
    def address(self) -> tuple[str, str]:
        """What tells it from all others of its kind."""
        return self.place, self.key

    def digest(self) -> str:
        """What differs when it says something else."""
        said = {found.name: getattr(self.draft, found.name) for found in fields(Draft)}
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that is not taken over, and why."""

    what: str
    why: str


Item = Conversation | Memory | Skipped


def key_of(*parts: object) -> str:
    """A key on one line, short enough to be kept."""
    key = "/".join(text_of(str(part)) for part in parts)
    if len(key) > LONGEST_KEY:
        key = f"{key[:100]}…{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    return one_line(key, "the key")


def text_of(value: object) -> str:
    """The value if it is text that a file can keep, else the nearest that is; empty for what is no text."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def moment_of(value: object, default: datetime) -> datetime:
    """A time written as seconds since 1970 or in ISO 8601, without a zone in UTC; the default for anything else."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return check_time(datetime.fromtimestamp(value, UTC))
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return check_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError, OSError):
        return default
    return default


def as_json(item: Conversation) -> dict[str, Any]:
    """A conversation as a report tells of it."""
    return {
        "key": item.key,
        "title": item.title,
        "used_at": format_time(item.used_at),
        "entries": len(item.entries),
        "left_out": dict(item.left_out),
    }
