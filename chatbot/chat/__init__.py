"""Conversations: `Chat` takes turns, each a prompt, a model call, its tools, and a receipt.

Each name is imported on first use, so that the terminal shows its prompt sooner.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatbot.chat.chat import Chat
    from chatbot.chat.client import NO_CLIENT, ClientRequest
    from chatbot.chat.events import ClientCall, Emit, Event, Notice, Phase, ToolFinished, ToolStarted
    from chatbot.chat.ledger import Bill
    from chatbot.chat.receipts import Receipt
    from chatbot.chat.turn import Rules

_HOMES = {
    "NO_CLIENT": "chatbot.chat.client",
    "Bill": "chatbot.chat.ledger",
    "Chat": "chatbot.chat.chat",
    "ClientCall": "chatbot.chat.events",
    "ClientRequest": "chatbot.chat.client",
    "Emit": "chatbot.chat.events",
    "Event": "chatbot.chat.events",
    "Notice": "chatbot.chat.events",
    "Phase": "chatbot.chat.events",
    "Receipt": "chatbot.chat.receipts",
    "Rules": "chatbot.chat.turn",
    "ToolFinished": "chatbot.chat.events",
    "ToolStarted": "chatbot.chat.events",
}

__all__ = [
    "NO_CLIENT",
    "Bill",
    "Chat",
    "ClientCall",
    "ClientRequest",
    "Emit",
    "Event",
    "Notice",
    "Phase",
    "Receipt",
    "Rules",
    "ToolFinished",
    "ToolStarted",
]


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chatbot.chat' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
