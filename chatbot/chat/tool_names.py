"""Which tools work on memory, by their names."""

from __future__ import annotations

import re

_NAME = re.compile(
    r"(?:^|[^a-z0-9])(?:memory_(?:search|list|timeline|get|write|history|people|forget|supersede|confirm|facts)"
    r"|task_(?:add|update|list)|session_(?:search|read))$"
)


def is_memory_tool(name: str) -> bool:
    """Whether a tool of that name works on memory: one of ours, also as another server offers it under a prefix."""
    return _NAME.search(name.lower()) is not None


def is_own_memory_tool(name: str) -> bool:
    """Whether it is one of ours, by its own name."""
    return is_memory_tool(name) and "__" not in name
