"""What a runtime is made of. Whoever watches it puts parts of their own in place of these, and no part knows of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chatbot.chat import Chat
from chatbot.chat.ledger import Ledger
from chatbot.config import ModelSettings
from chatbot.memory import MemorySystem
from chatbot.models import open_model
from chatbot.models.base import Model
from chatbot.tools import Toolbox

Handle = Callable[[Any], Awaitable[object]]
"""What a hook does with an event."""


def _same_model(model: Model) -> Model:
    return model


def _same_hook(_: str, handle: Handle) -> Handle:
    return handle


@dataclass(frozen=True, slots=True)
class Parts:
    """How each part is made: as its own constructor does, or from the part itself."""

    memory: Callable[..., MemorySystem] = MemorySystem
    chat: Callable[..., Chat] = Chat
    toolbox: Callable[..., Toolbox] = Toolbox
    ledger: Callable[[Path], Ledger] = Ledger
    model: Callable[[Model], Model] = _same_model
    hook: Callable[[str, Handle], Handle] = _same_hook
    """From a hook's name, and what it does with an event."""

    def open_model(self, settings: ModelSettings) -> Model:
        """The model that the settings name, as a part."""
        return self.model(open_model(settings))


PLAIN = Parts()
