"""Files with one record a line: which lines cannot be understood, and the file without them. Blocking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from chatbot.cli.doctor.aside import put_lines
from chatbot.cli.doctor.finding import FIX, Finding
from stores.errors import LaterFormat
from stores.files import LOCK_NAME, locked, opened
from stores.json_lines import is_blank, record_of

Understand = Callable[[bytes], object]
"""Raises `ValueError`, `KeyError` or `TypeError` for a line that is wrong."""


def bad_lines(
    subject: str, path: Path, understand: Understand = record_of, *, lock: str = LOCK_NAME
) -> Iterator[Finding]:
    """A finding where lines of the file are damaged, or its last one is torn; none where there is no such file."""
    try:
        with opened(path.parent) as folder:
            data = folder.read(path.name)
    except FileNotFoundError:
        return
    try:
        bad = [number for number, line in enumerate(data.split(b"\n"), 1) if not _is_good(line, understand)]
    except LaterFormat as error:
        yield Finding(subject, "bad", f"{path}: {error}", "uv tool upgrade chatbot-runtime")
        return
    is_torn = bool(data) and not data.endswith(b"\n")
    if not bad and not is_torn:
        return
    what = f"{path} has {len(bad)} damaged lines (the first is line {bad[0]})" if bad else f"the end of {path} is torn"
    yield Finding(subject, "bad", what, FIX, _mending(path, understand, lock))


def _mending(path: Path, understand: Understand, lock: str) -> Callable[[], Awaitable[str]]:
    async def mend() -> str:
        return f"the damaged file is kept as {await asyncio.to_thread(_without_bad_lines, path, understand, lock)}"

    return mend


def _without_bad_lines(path: Path, understand: Understand, lock: str) -> str:
    with locked(path.parent, name=lock) as folder:
        lines = [line for line in folder.read(path.name).split(b"\n") if not is_blank(line)]
        return put_lines(folder, path.name, [line for line in lines if _is_good(line, understand)])


def _is_good(line: bytes, understand: Understand) -> bool:
    if not line:
        return True
    if is_blank(line):
        return False
    try:
        understand(line)
    except LaterFormat:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return True
