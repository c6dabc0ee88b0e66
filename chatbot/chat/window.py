"""The window: the last entries that the model is shown. Its beginning stays the same for many turns.

A window that began one entry later at each turn would undo every prompt cache. So it grows to its limit, then begins
anew with its later half.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from chatbot.chat.dialogue import USER
from chatbot.stores.records import TranscriptEntry


class Window:
    """At most `limit` entries before those of the turn itself. One for each conversation."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.since: datetime | None = None
        """Time of the first entry shown; older ones were left out."""
        self.greeting = ""
        """The title that this conversation made from a greeting, until a better one can be made."""

    def cut(self, entries: Sequence[TranscriptEntry], own: int) -> list[TranscriptEntry]:
        """Return the entries to show of the last `limit + own` ones; the last `own` belong to this turn."""
        since = self.since
        if since is not None and entries and entries[0].at > since and len(entries) >= self.limit + own:
            kept = list(entries[(len(entries) - own) // 2 :])
        else:
            kept = [entry for entry in entries if since is None or entry.at >= since]
        begin = next((at for at, entry in enumerate(kept) if entry.role == USER), 0)
        kept = kept[begin:]
        self.since = kept[0].at if kept else None
        return kept
