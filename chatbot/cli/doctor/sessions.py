"""The sessions of an identity: their index, and each folder with its files. Reads them as they lie; blocking."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from uuid import UUID

from chatbot.cli.doctor.aside import copy_aside, move_aside
from chatbot.cli.doctor.finding import FIX, Finding
from chatbot.cli.doctor.lines import bad_lines
from chatbot.errors import DamagedSession, SessionNotFound
from chatbot.memory.index import NAME as INDEX_NAME
from chatbot.memory.index import SESSION_NAME, SessionIndex
from chatbot.memory.receipt_lines import RECEIPTS_NAME
from chatbot.memory.record import SessionRecord, decode_record, is_session_id
from chatbot.setup import Setup
from stores import key_value_file, transcript, transcript_file
from stores.errors import LaterFormat, StoreError
from stores.files import locked, opened

_TAIL_BYTES = 4096

Mend = Callable[[], Awaitable[str]]


def sessions(home: Path, setup: Setup) -> Iterator[Finding]:
    """Look at every session below `home`, an identity's memory."""
    root = home / "sessions"
    if not root.is_dir():
        yield Finding("sessions", "ok", "there are none yet")
        return
    yield from _index(home, root)
    sound = total = 0
    for path in sorted(root.iterdir()):
        total += 1
        problems = list(_session(home, path, setup))
        sound += not any(problem.state == "bad" for problem in problems)
        yield from problems
    yield Finding("sessions", "ok" if sound == total else "note", f"{sound} of {total} were sound")


def _index(home: Path, root: Path) -> Iterator[Finding]:
    index = SessionIndex(home, root)
    problem = index.problem()

    async def rebuild() -> str:
        aside = await asyncio.to_thread(index.rebuild)
        return "built again from the folders" + (f", the old one kept as {aside}" if aside else "")

    if problem:
        state = "bad" if "damaged" in problem else "note"
        what = f"{home / INDEX_NAME} {problem}; it is built again when it is next used"
        yield Finding("sessions", "bad" if state == "bad" else "note", what, FIX, rebuild)


def _session(home: Path, path: Path, setup: Setup) -> Iterator[Finding]:
    if not path.is_dir() or not is_session_id(path.name):
        yield Finding("sessions", "bad", f"{path} is no session: its name is no session's id", FIX, _moving(home, path))
        return
    try:
        yield from _record(home, path, setup)
        yield from _key_values(path)
        for name in (transcript_file.NAME, transcript_file.ARCHIVE_NAME):
            yield from _transcript(path, name)
        yield from bad_lines("sessions", path / RECEIPTS_NAME)
    except (StoreError, OSError) as error:
        yield Finding("sessions", "bad", f"{path} cannot be read: {error}", f"ls -la {quote(str(path))}")


def _record(home: Path, path: Path, setup: Setup) -> Iterator[Finding]:
    try:
        with opened(path) as folder:
            decode_record(folder.read(SESSION_NAME), path.name)
    except LaterFormat as error:
        yield Finding("sessions", "bad", f"{path / SESSION_NAME}: {error}", "uv tool upgrade chatbot-runtime")
    except FileNotFoundError:
        yield Finding("sessions", "bad", f"{path} has no {SESSION_NAME}", FIX, _recovering(home, path, setup))
    except ValueError as error:
        what = f"{path / SESSION_NAME} is damaged: {error}"
        yield Finding("sessions", "bad", what, FIX, _recovering(home, path, setup))


def _key_values(path: Path) -> Iterator[Finding]:
    try:
        with opened(path) as folder:
            key_value_file.parse(folder.read(key_value_file.NAME))
    except FileNotFoundError:
        return
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        what = f"{path / key_value_file.NAME} is damaged: {error}"
        yield Finding("sessions", "bad", what, FIX, _setting_aside(path, key_value_file.NAME))


def _transcript(path: Path, name: str) -> Iterator[Finding]:
    try:
        with opened(path) as folder:
            data = folder.read(name)
    except FileNotFoundError:
        return
    cut, missing = transcript.mend(data[-_TAIL_BYTES:])
    if cut:
        what = f"the end of {path / name} is torn: {cut} bytes that are no text"
        yield Finding("sessions", "bad", what, FIX, _whole(path, name))
    elif missing:
        what = f"the last entry of {path / name} has no end: it is torn, or was edited by hand"
        yield Finding("sessions", "note", what, FIX, _whole(path, name))
    try:
        data[: len(data) - cut].decode()
    except UnicodeDecodeError as error:
        what = f"{path / name} holds bytes that are no text, the first at {error.start}"
        yield Finding("sessions", "bad", what, FIX, _whole(path, name))
    if data.strip(b"\0\n ") and not transcript.starts(data):
        what = f"{path / name} holds no entry: each begins with ### role — time"
        yield Finding("sessions", "bad", what, f"$EDITOR {quote(str(path / name))}")


def _moving(home: Path, path: Path) -> Mend:
    async def move() -> str:
        return f"moved to {await asyncio.to_thread(move_aside, home, path)}"

    return move


def _setting_aside(path: Path, name: str) -> Mend:
    def set_aside() -> str:
        with locked(path) as folder:
            return f"kept as {folder.set_aside(name)}; the session goes on without its entries"

    return lambda: asyncio.to_thread(set_aside)


def _whole(path: Path, name: str) -> Mend:
    """The transcript with an end, and without bytes that are no text."""

    def make_whole() -> str:
        with locked(path) as folder:
            aside = copy_aside(folder, name)
            data = folder.read(name)
            cut, missing = transcript.mend(data[-_TAIL_BYTES:])
            whole = data[: len(data) - cut] + missing
            folder.replace(name, whole.decode(errors="replace").encode())
        return f"made whole; as it was it is kept as {aside}"

    return lambda: asyncio.to_thread(make_whole)


def _recovering(home: Path, path: Path, setup: Setup) -> Mend:
    async def recover() -> str:
        async with setup.open_memory() as memory:
            try:
                await memory.load_session(path.name, any_agent=True)
            except SessionNotFound:
                pass  # not open to this identity, and recovered all the same
            except DamagedSession:
                return await asyncio.to_thread(_write_anew, home, path, setup)
            return "recovered from the index, the damaged one kept beside it"

    return recover


def _write_anew(home: Path, path: Path, setup: Setup) -> str:
    """A `session.json` for a folder that nothing else knows of: its conversation can be gone on with."""
    made = datetime.fromtimestamp((UUID(path.name).int >> 80) / 1000, UTC)
    used = datetime.fromtimestamp(max(file.stat().st_mtime for file in (path, *path.iterdir())), UTC)
    record = SessionRecord(path.name, setup.agent, setup.agent_settings.memory, min(made, used), used)
    with locked(path) as folder:
        aside = folder.set_aside(SESSION_NAME) if folder.stamp(SESSION_NAME) else ""
        folder.create(SESSION_NAME, (json.dumps(record.as_json(), ensure_ascii=False, indent=2) + "\n").encode())
    os.utime(home / "sessions")  # so that the index is built again, with this session in it
    return "written anew" + (f", the damaged one kept as {aside}" if aside else "")
