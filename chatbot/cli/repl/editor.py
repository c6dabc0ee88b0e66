"""Editing of a text in the user's own editor."""

import asyncio
import os
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path

from chatbot.cli.output import on_signal
from chatbot.stores.errors import InvalidValue


def named_editor() -> list[str]:
    """Return the command in `$VISUAL` or `$EDITOR`; empty if neither is set."""
    text = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidValue(f"the editor {text!r} is not a command: set EDITOR to one") from error


async def edit_text(text: str, *, suffix: str = ".md") -> str:
    """Return the text after editing, in `vi` if no editor is set. Raises `InvalidValue` if that failed."""
    with on_signal(signal.SIGINT, lambda *_: None):  # Ctrl-C is a key of the editor
        return await asyncio.to_thread(_edit, text, suffix)


def _edit(text: str, suffix: str) -> str:
    editor = named_editor() or ["vi"]
    with tempfile.TemporaryDirectory(prefix="chatbot-") as folder:
        file = Path(folder, f"text{suffix}")
        file.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*editor, str(file)], check=False)  # noqa: S603 - the user's own editor
        except OSError as error:
            raise InvalidValue(f"the editor {editor[0]!r} cannot be started: set EDITOR to one that can") from error
        if done.returncode:
            raise InvalidValue(f"the editor ended with {done.returncode}: nothing was changed")
        try:
            return file.read_text(encoding="utf-8-sig").removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidValue("the editor's text cannot be read as UTF-8: nothing was changed") from error
