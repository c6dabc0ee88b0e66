"""Conversations: `Chat` takes turns, each a prompt, a model call, its tools, and a receipt."""

from chatbot.chat.chat import Chat
from chatbot.chat.client import NO_CLIENT, ClientRequest
from chatbot.chat.receipts import Receipt
from chatbot.chat.turn import ClientCall, Emit, Event, Notice, Phase, Rules, ToolFinished, ToolStarted
from chatbot.chat.usage import Bill

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
