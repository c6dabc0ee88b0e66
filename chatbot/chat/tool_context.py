"""The context that a plug-in of tools is given when a session's tools are made."""

from __future__ import annotations

from dataclasses import dataclass

from chatbot.memory import MemorySystem, SessionHandle


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The session, memory and agent of the tools. `session` is None for an agent without stores."""

    session: SessionHandle | None
    memory: MemorySystem
    """Its clearance and rights are the least of the session, its holder, and a tool call of a model."""
    agent: str
    identity: str
