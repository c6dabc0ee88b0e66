"""Files that the user names, to be attached to a message."""

from __future__ import annotations

import os.path
from pathlib import Path

from chatbot.attachments.read import LARGEST, Upload, check_size
from chatbot.stores.errors import InvalidValue


def upload_from_file(name: str) -> Upload:
    """Read a file that the user named. Raises `InvalidValue` for one that cannot be read, or is too large. Blocking."""
    path = file_named(name)
    if path is None:
        raise InvalidValue(no_file(name))
    try:
        check_size(path.name, path.stat().st_size)
        with path.open("rb") as file:
            return Upload(path.name, file.read(LARGEST + 1))  # it may grow: `read` checks the size again
    except OSError as error:
        raise InvalidValue(f"{str(path)!r} cannot be read: {error.strerror or error}") from error


def file_named(name: str) -> Path | None:
    """Return the path of the file of that name; None if there is none, or the name is invalid."""
    try:
        path = Path(name).expanduser()
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, or the home of an unknown user
        return None


def no_file(name: str) -> str:
    """Return the error about a name for which `file_named` returns None."""
    is_there = os.path.exists(os.path.expanduser(name))  # noqa: PTH110, PTH111 - they raise nothing for an invalid name
    return f"{'not a file' if is_there else 'file not found'}: {name!r:.200}"
