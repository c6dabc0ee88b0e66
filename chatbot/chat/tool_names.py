"""Names of the tools that work on memory."""

from __future__ import annotations

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
