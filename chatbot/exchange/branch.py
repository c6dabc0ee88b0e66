"""Conversations that are kept as trees: the branch that was shown last. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def branch(nodes: Mapping[str, Mapping[str, Any]], leaf: str, parent: str) -> list[str]:
    """The ids from the root to `leaf`, each node naming the one above it in the field `parent`. Cycles end it."""
    line: dict[str, None] = {}
    at: object = leaf
    while isinstance(at, str) and at in nodes and at not in line:
        line[at] = None
        at = nodes[at].get(parent)
    return list(line)[::-1]
