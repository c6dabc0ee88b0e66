"""Filter of sessions: the one grammar that listing, searching, exporting and erasing share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from chatbot.memory.record import SessionRecord

MESSAGES = ("user", "assistant")
"""The roles that count as messages; calls of tools and errors are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """A session is wanted if it fits every field that is set. Times are about its last use.

    `after` is inclusive, `before` exclusive; `title` is a part of the title, whatever the case.
    """

    after: datetime | None = None
    before: datetime | None = None
    agent_id: str | None = None
    title: str = ""
    min_messages: int = 0
    is_empty: bool | None = None
    """True for sessions without messages, False for the others; None for both."""
    is_archived: bool | None = None
    """None for both kinds."""
    limit: int | None = None
    """At most so many, those used last."""
    behind: str | None = None
    """Id of a session after which the list starts: the next page."""

    def fits(self, record: SessionRecord) -> bool:
        """Return whether the metadata fits, which is known without opening the session."""
        return (
            (self.after is None or record.used_at >= self.after)
            and (self.before is None or record.used_at < self.before)
            and self.agent_id in {None, record.agent_id}
            and self.title.casefold() in record.title.casefold()
            and self.is_archived in {None, record.archived_at is not None}
        )

    @property
    def looks_inside(self) -> bool:
        """Return whether sessions must be opened to decide."""
        return self.min_messages > 0 or self.is_empty is not None

    @property
    def is_open(self) -> bool:
        """Return whether it lets every session through; bulk changes are refused for such a filter."""
        return self == SessionFilter(is_archived=self.is_archived, limit=self.limit)
