"""Setting aside: what is damaged is kept, whole, before anything takes its place. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from stores.files import Folder, make_folder, sync_folder

FOLDER = "set-aside"
"""Where whole folders are moved to, in an identity's memory."""


def copy_aside(folder: Folder, name: str) -> str:
    """Copy a file to a name that says that it was damaged; returns that. Needs the folder's lock."""
    aside = f"{name}.damaged-{_moment()}"
    folder.create(aside, folder.read(name))
    return aside


def put_lines(folder: Folder, name: str, lines: Iterable[bytes]) -> str:
    """Replace a file by these lines, having copied it aside; returns where to. Needs the folder's lock."""
    aside = copy_aside(folder, name)
    folder.replace(name, b"".join(line + b"\n" for line in lines))
    return aside


def move_aside(home: Path, path: Path) -> Path:
    """Move a folder or file of the memory in `home` out of the way; returns where to."""
    place = home / FOLDER
    make_folder(place)
    moved = place / f"{path.name}-{_moment()}"
    os.rename(path, moved)  # noqa: PTH104 - of links themselves, which Path would follow on no system we know, but says not
    sync_folder(place)
    return moved


def _moment() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
