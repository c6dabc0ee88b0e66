"""A chat bot that remembers, keeps its memory in plain files, and runs on any model.

The names below are the public ones. Each is imported when first used, so that `import chatbot` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatbot.chat.chat import Chat
    from chatbot.chat.dialogue import ToolContext
    from chatbot.chat.receipts import Receipt
    from chatbot.errors import ChatbotError
    from chatbot.memory import MemorySystem, SessionHandle, SessionRecord
    from chatbot.models import Model, ScriptedModel, open_model
    from chatbot.options import Options
    from chatbot.runtime import Runtime
    from chatbot.tools import Tool

_HOMES = {
    "Chat": "chatbot.chat.chat",
    "ChatbotError": "chatbot.errors",
    "MemorySystem": "chatbot.memory",
    "Model": "chatbot.models",
    "Options": "chatbot.options",
    "Receipt": "chatbot.chat.receipts",
    "Runtime": "chatbot.runtime",
    "ScriptedModel": "chatbot.models",
    "SessionHandle": "chatbot.memory",
    "SessionRecord": "chatbot.memory",
    "Tool": "chatbot.tools",
    "ToolContext": "chatbot.chat.dialogue",
    "open_model": "chatbot.models",
}

__all__ = [
    "Chat",
    "ChatbotError",
    "MemorySystem",
    "Model",
    "Options",
    "Receipt",
    "Runtime",
    "ScriptedModel",
    "SessionHandle",
    "SessionRecord",
    "Tool",
    "ToolContext",
    "open_model",
]


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chatbot' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
