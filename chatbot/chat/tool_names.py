"""Names of the tools that work on memory, and the context that a plug-in of tools is given."""

from __future__ import annotations

from msgspec import Struct

from chatbot.memory import MemorySystem, SessionHandle
from chatbot.models.model import Disclosure
from chatbot.operations import OPERATIONS

MORE_TOOLS = "memory_more"
"""The tool through which a model calls those that prompts do not describe one by one."""


def is_memory_tool(name: str) -> bool:
    """Return whether a tool works on memory: one of ours, also under the prefix of another server."""
    return any(_ends_with(name.lower(), tool) for tool in (*OPERATIONS.tools(), MORE_TOOLS))


def is_own_memory_tool(name: str) -> bool:
    """Return whether it is one of ours, by its own name."""
    return is_memory_tool(name) and "__" not in name


def _ends_with(name: str, tool: str) -> bool:
    before = name.removesuffix(tool)
    return before != name and not before[-1:].isalnum()


def withheld_tools(disclosure: Disclosure) -> frozenset[str]:
    """Return the tools of memory whose answers a provider may not be sent, and which its models are not offered.

    Even tools that write return memories; those of sessions return parts of transcripts, which have no sensitivity.
    """
    if not disclosure.memory:
        return OPERATIONS.tools()
    names = OPERATIONS.tools() if disclosure.sensitivity == "public" else ()
    return frozenset(name for name in names if name.startswith("session_"))


class ToolContext(Struct, frozen=True):
    """The session, memory and agent of the tools. `session` is None for an agent without stores."""

    session: SessionHandle | None
    memory: MemorySystem
    """Its clearance and rights are the least of the session, its holder, and a tool call of a model."""
    agent: str
    identity: str
