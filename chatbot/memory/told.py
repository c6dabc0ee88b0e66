"""What memory tells of its operations, after they were done, to a plain callable; by default to nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """An operation on what is remembered. The ids are those that it changed or returned, in its order."""

    action: Literal["update", "retrieve"]
    operation: str
    """What was done: remember, update, supersede, forget, search, recall, get, …"""
    session_id: str
    """Empty for a caller without a session."""
    agent_id: str
    ids: tuple[str, ...]
    at: datetime

    @property
    def topic(self) -> str:
        """Where it is published: `memory.<session id>.update`, or `.retrieve`."""
        return f"memory.{self.session_id}.{self.action}"


Tell = Callable[[MemoryEvent], None]
