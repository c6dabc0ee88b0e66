"""State of a row: the fields that are known without reading its text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from chatbot.stores.access import Guard
from chatbot.stores.observation import Observation, Status, Type


@dataclass(frozen=True, slots=True)
class RowState:
    """Enough to decide whether a row is kept, and who may change that."""

    id: str
    type: Type
    guard: Guard
    status: Status
    superseded_by: str | None
    quiet_since: datetime
    """Time of the last sign of life, as in `Observation.quiet_since`."""
    expires_at: datetime | None

    @classmethod
    def of(cls, row: Observation) -> RowState:
        """The state of a row that was read."""
        guard = Guard.of(row)
        return cls(row.id, row.type, guard, row.status, row.superseded_by, row.quiet_since, row.expires_at)

    @property
    def namespace(self) -> str:
        """The namespace that the row is in."""
        return self.guard.namespace

    def is_current(self, now: datetime) -> bool:
        """Return True for an active row that has not expired."""
        return self.status == "active" and (self.expires_at is None or self.expires_at > now)
