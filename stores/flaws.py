"""Flaws that an examination finds; `chatbot doctor` prints them, and mends them when asked to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that was looked at: it is well, or a note on it, or bad."""

    subject: str
    state: Literal["ok", "note", "bad"]
    message: str
    command: str = ""
    """The command of a shell that mends it, or that shows it."""
    mend: Callable[[], str] | None = None
    """Mends it, and says what was done; what is damaged is set aside first, whole. Blocking."""
    is_later: bool = False
    """True if it was written by a later release."""
