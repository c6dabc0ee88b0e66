"""Values of an import that are independent of the file format, and the report of what was done with them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from chatbot.memory.exchanges import EXCHANGE
from chatbot.memory.writing import Draft
from chatbot.stores.fields import one_line
from chatbot.stores.records import TranscriptEntry, check_time, format_time

LONGEST_KEY = 200


@dataclass(frozen=True, slots=True)
class Conversation:
    """An imported conversation. `key` is unique among its kind and the same in every export."""

    key: str
    title: str
    created_at: datetime
    used_at: datetime
    entries: tuple[TranscriptEntry, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """The parts that are not imported, such as tool calls, and how many of each."""


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """An imported memory."""

    key: str
    draft: Draft
    namespace: str = ""
    place: str = ""
    """The source file, when the key is unique only within that file."""

    @property
    def address(self) -> tuple[str, str]:
        """Its place and key, unique among its kind."""
        return self.place, self.key

    def digest(self) -> str:
        """Return a hash of the content."""
        said = {found.name: getattr(self.draft, found.name) for found in fields(Draft)}
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Skip:
    """An item that is not imported, and the reason."""

    what: str
    why: str


Item = Conversation | MemoryItem | Skip


@dataclass(slots=True)
class ImportReport:
    """The counts of an import; of a dry run, what an import would do."""

    kind: str
    path: str
    dry_run: bool
    sessions: list[dict[str, Any]] = field(default_factory=list)
    """The sessions added or extended: key, title, number of entries, and their id here."""
    memories: int = 0
    exchanges: int = 0
    """Exchanges of imported conversations that were remembered."""
    facts: int = 0
    changed: int = 0
    """Existing memories whose text was updated."""
    already: int = 0
    skipped: list[Skip] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Parts of conversations that are not imported, such as tool calls."""
    redacted: Counter[str] = field(default_factory=Counter)

    def add(self, draft: Draft) -> None:
        """Count a new memory."""
        if draft.type == EXCHANGE:
            self.exchanges += 1
        else:
            self.memories += 1

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "kind": self.kind,
            "path": self.path,
            "dry_run": self.dry_run,
            "sessions": self.sessions,
            "memories": self.memories,
            "exchanges": self.exchanges,
            "facts": self.facts,
            "changed": self.changed,
            "already": self.already,
            "skipped": [{"what": each.what, "why": each.why} for each in self.skipped],
            "left_out": dict(self.left_out),
            "redacted": dict(self.redacted),
        }


def key_of(*parts: object) -> str:
    """Join the parts to a key on one line, shortened with a hash if it is too long."""
    key = "/".join(text_of(str(part)) for part in parts)
    if len(key) > LONGEST_KEY:
        key = f"{key[:100]}…{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    return one_line(key, "the key")


def text_of(value: object) -> str:
    """Return text that can be written as UTF-8; empty if the value is not text."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def moment_of(value: object, default: datetime) -> datetime:
    """Parse seconds since 1970 or ISO 8601 (UTC if it has no zone); return the default for anything else."""
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
    """Return the entry of a conversation in the report."""
    return {
        "key": item.key,
        "title": item.title,
        "used_at": format_time(item.used_at),
        "entries": len(item.entries),
        "left_out": dict(item.left_out),
    }


def branch(nodes: Mapping[str, Mapping[str, Any]], leaf: str, parent: str) -> list[str]:
    """Return the ids from the root to `leaf`; each node names its parent in the field `parent`. Stops at a cycle."""
    line: dict[str, None] = {}
    at: object = leaf
    while isinstance(at, str) and at in nodes and at not in line:
        line[at] = None
        at = nodes[at].get(parent)
    return list(line)[::-1]
