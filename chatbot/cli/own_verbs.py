"""Verbs of `chatbot memory` and `chatbot sessions` beside the table of operations: what runs each, and why.

A verb is bound from `chatbot.operations` unless it is named here. Imports nothing: only the verb that runs is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from chatbot.cli.memory.verb_run import VerbRun


class OwnVerb(NamedTuple):
    """The coroutine that takes the `VerbRun`, as `module:function`, and why no operation fits."""

    runs: str
    why: str
    memories: bool = True
    """True if it needs memories, which are opened for it."""

    async def __call__(self, run: VerbRun) -> None:
        """Run it."""
        module, _, function = self.runs.partition(":")
        await getattr(import_module(module), function)(run)


_FILES = "reads or writes files that the user names"
_MANY = "changes many sessions at once: selects them with filters, shows them, and asks first"
_CONFIRMS = "asks first, or reads more than its operation takes"
_ERASING = "chatbot.cli.sessions.erasing"
_CHANGING = "chatbot.cli.memory.changing"

OF_SESSIONS: Mapping[str, OwnVerb] = {
    "export": OwnVerb("chatbot.cli.sessions.moving:export", _FILES),
    "import": OwnVerb("chatbot.cli.sessions.moving:import_", _FILES),
    "archive": OwnVerb(f"{_ERASING}:archive", _MANY, memories=False),
    "delete": OwnVerb(f"{_ERASING}:delete", _MANY, memories=False),
    "prune": OwnVerb(f"{_ERASING}:prune", _MANY, memories=False),
}
"""Own verbs of `chatbot sessions`."""

OF_MEMORY: Mapping[str, OwnVerb] = {
    "import": OwnVerb("chatbot.cli.sessions.moving:import_", _FILES),
    "export": OwnVerb("chatbot.cli.sessions.moving:export_memory", _FILES),
    "extract": OwnVerb("chatbot.cli.memory.extracting:extract", "calls a model, and bills it"),
    "stats": OwnVerb("chatbot.cli.memory.stats:stats", "draws charts"),
    "profile": OwnVerb("chatbot.cli.memory.profile:profile", "one grammar for keys, values and proposals"),
    "reindex": OwnVerb(f"{_CHANGING}:reindex", "works on the index, which is no part of a memory"),
}
"""Own verbs of `chatbot memory`."""

OF_OPERATIONS: Mapping[str, OwnVerb] = {
    name: OwnVerb(f"{_CHANGING}:{name}", _CONFIRMS)
    for name in (
        "remember",
        "change_memory",
        "confirm_memory",
        "forget_memory",
        "restore_memory",
        "purge_memories",
        "list_people",
        "purge_fact",
    )
}
"""Operations whose verbs do more on the command line than run them."""
