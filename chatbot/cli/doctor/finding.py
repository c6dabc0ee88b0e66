"""A finding of the doctor, and the commands that fix it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from chatbot.stores.backend import Flaw

State = Literal["ok", "note", "bad", "fixed"]
"""`note` needs no action; `fixed` was bad before `--fix`."""

FIX = "chatbot doctor --fix"
_UPGRADE = "uv tool upgrade chatbot-runtime"
_COMMAND = re.compile(r"pip install [^:;]*|chatbot config trust(?: -i [a-z0-9_-]+)?|chatbot keys set [\w-]+")
_UNSET = re.compile(r"names the variable (\w+), which is not set")
_VARIABLE = re.compile(r"CHATBOT_\S+")


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; if it is bad, the command that fixes it, and a function that does so here."""

    subject: str
    state: State
    message: str = ""
    command: str = ""
    mend: Callable[[], Awaitable[str]] | None = None
    """Fixes it and returns what was done."""

    @classmethod
    def of(cls, flaw: Flaw) -> Finding:
        """The finding that a backend or a store made, with the command that mends it here."""
        mend = flaw.mend
        command = flaw.command or (_UPGRADE if flaw.is_later else FIX if mend else "")
        blocking = None if mend is None else lambda: asyncio.to_thread(mend)
        return cls(flaw.subject, flaw.state, flaw.message, command, blocking)

    def mended(self, how: str) -> Finding:
        """Return the finding after it was fixed."""
        return replace(self, state="fixed", message=f"{self.message}: {how}", command="", mend=None)

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {"subject": self.subject, "state": self.state, "message": self.message, "command": self.command}


def command_in(message: str, otherwise: str) -> str:
    """Return the command that a message names, or one that sets the missing variable."""
    if unset := _UNSET.search(message):
        return f"export {unset[1]}=…"
    named = _COMMAND.search(message)
    return named[0] if named else otherwise


def editing(at: Path | str, file: Path | None) -> str:
    """Return the command that edits the source of a setting; `file` is the configuration file, if any."""
    if isinstance(at, str) and _VARIABLE.fullmatch(at):
        return f"unset {at}"
    path = at if isinstance(at, Path) else file
    return f"$EDITOR {quote(str(path))}" if path else "chatbot init"
