"""A chat bot that remembers, keeps its memory in plain files, and runs on any model.

These names are public, and so are those that the pages in docs/ import: a release that changes one of them says so in
CHANGELOG.md. Each is imported when first used, so that `import chatbot` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatbot.chat.chat import Chat as Chat
    from chatbot.chat.memory_tools import ToolContext as ToolContext
    from chatbot.chat.receipts import Receipt as Receipt
    from chatbot.embed import Portal as Portal
    from chatbot.embed import open_memory as open_memory
    from chatbot.errors import ChatbotError as ChatbotError
    from chatbot.memory import MemorySystem as MemorySystem
    from chatbot.memory import SessionHandle as SessionHandle
    from chatbot.memory import SessionRecord as SessionRecord
    from chatbot.models import Model as Model
    from chatbot.models import ScriptedModel as ScriptedModel
    from chatbot.models import open_model as open_model
    from chatbot.options import Options as Options
    from chatbot.runtime import Runtime as Runtime
    from chatbot.tools import Tool as Tool

_NAMES = {
    "chatbot.chat.chat": "Chat",
    "chatbot.chat.memory_tools": "ToolContext",
    "chatbot.chat.receipts": "Receipt",
    "chatbot.embed": "Portal open_memory",
    "chatbot.errors": "ChatbotError",
    "chatbot.memory": "MemorySystem SessionHandle SessionRecord",
    "chatbot.models": "Model ScriptedModel open_model",
    "chatbot.options": "Options",
    "chatbot.runtime": "Runtime",
    "chatbot.tools": "Tool",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chatbot' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
