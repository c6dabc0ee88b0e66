"""Values of an import that are independent of the file format, and the report of what was done with them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from chatbot.memory.writing import Draft
from chatbot.stores.fields import how_many
from chatbot.stores.records import TranscriptEntry


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

    def told(self) -> str:
        """Return what was added in words; empty for nothing."""
        added = {"session": len(self.sessions), "memory": self.memories, "exchange": self.exchanges, "fact": self.facts}
        return ", ".join(how_many(count, what) for what, count in added.items() if count)

    def skip(self, what: str, why: str) -> None:
        """Report an item that is not imported."""
        self.skipped.append(Skip(what, why))

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {"skipped": [asdict(each) for each in self.skipped]}
