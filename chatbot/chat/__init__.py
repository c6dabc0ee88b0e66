"""Conversations: `Chat` takes turns, each a prompt, a model call, its tools, and a receipt."""

from chatbot.chat.chat import Chat
from chatbot.chat.receipts import Receipt
from chatbot.chat.turn import Emit, Event, Notice, Phase, Rules, ToolFinished, ToolStarted
from chatbot.chat.usage import Bill

__all__ = ["Bill", "Chat", "Emit", "Event", "Notice", "Phase", "Receipt", "Rules", "ToolFinished", "ToolStarted"]
