"""What the doctor finds."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal

State = Literal["ok", "note", "bad", "mended"]
"""`note` is something to know that hinders nothing; `mended` was bad until a moment ago."""

FIX = "chatbot doctor --fix"
_COMMAND = re.compile(r"(?:uv )?pip install [^:;]*|chatbot config trust")
_UNSET = re.compile(r"names the variable (\w+), which is not set|needs a key: set (\w+)")
_VARIABLE = re.compile(r"CHATBOT_\S+")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; where it is not well, the command that mends it, and the way to do so here."""

    subject: str
    state: State
    message: str = ""
    command: str = ""
    mend: Callable[[], Awaitable[str]] | None = None
    """Mends it, and says what was done."""

    def mended(self, how: str) -> Finding:
        """The finding after it was mended."""
        return replace(self, state="mended", message=f"{self.message}: {how}", command="", mend=None)

    def as_json(self) -> dict[str, Any]:
        """The finding for programs."""
        return {"subject": self.subject, "state": self.state, "message": self.message, "command": self.command}


def command_in(message: str, otherwise: str) -> str:
    """The command that a message names, or sets the variable that it misses."""
    if unset := _UNSET.search(message):
        return f"export {unset[1] or unset[2]}=…"
    named = _COMMAND.search(message)
    return named[0] if named else otherwise


def editing(at: Path | str, file: Path | None) -> str:
    """The command that changes what a setting was read from; `file` is the configuration, where there is one."""
    if isinstance(at, str) and _VARIABLE.fullmatch(at):
        return f"unset {at}"
    path = at if isinstance(at, Path) else file
    return f"$EDITOR {quote(str(path))}" if path else "chatbot init"
