"""What a plug-in of tools is told when a session's tools are made."""

from __future__ import annotations

from dataclasses import dataclass

from chatbot.memory import MemorySystem, SessionHandle


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Whose tools are to be made. `session` is None for an agent without stores."""

    session: SessionHandle | None
    memory: MemorySystem
    """With no more clearance than the session, and whoever holds it."""
    agent: str
    identity: str
