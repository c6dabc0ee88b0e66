"""A chat bot that remembers, keeps its memory in plain files, and runs on any model.

These names are public, and so are those that the pages in docs/ import: a release that changes one of them says so in
CHANGELOG.md. Each is imported when first used, so that `import chatbot` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatbot.chat.chat import Chat as Chat
    from chatbot.chat.memory_tools import ToolContext as ToolContext
    from chatbot.embed import Portal as Portal
    from chatbot.embed import open_memory as open_memory
    from chatbot.models import ScriptedModel as ScriptedModel
    from chatbot.options import Options as Options
    from chatbot.runtime import Runtime as Runtime

_HOMES = {
    "Chat": "chatbot.chat.chat",
    "ToolContext": "chatbot.chat.memory_tools",
    "Portal": "chatbot.embed",
    "open_memory": "chatbot.embed",
    "ScriptedModel": "chatbot.models",
    "Options": "chatbot.options",
    "Runtime": "chatbot.runtime",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chatbot' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
