"""What can be wrong with files whatever they hold: who may read them, what was set aside, what a crash left."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote

from chatbot.cli.doctor.aside import FOLDER, move_aside
from chatbot.cli.doctor.finding import FIX, Finding
from chatbot.server.tokens import FOLDER as SERVER
from chatbot.setup import Setup
from stores.files import below

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_STRAY_AFTER_S = 3600.0
_Found = Mapping[Path, os.stat_result]


def folders(home: Path) -> Iterator[Finding]:
    """Look at every file and folder below `home`, an identity's memory."""
    found = dict(_there([home, *sorted(below(home))]))
    open_ones = list(_modes(found))
    yield from open_ones or [Finding("permissions", "ok", f"{len(found)} files and folders are private")]
    yield from _links(found)
    for path in found:
        if ".damaged-" in path.name or path.parent == home / FOLDER:
            yield Finding(
                "set aside", "note", f"{path} was damaged: mend it and put it back, or", f"rm -r {quote(str(path))}"
            )
    yield from _strays(home, found)


def above(setup: Setup) -> Iterator[Finding]:
    """Look at who may come at what lies around an identity's memory: keys, tokens, its persona, its siblings."""
    identity, server = setup.identity, setup.identities / SERVER
    secret = [setup.settings.path] if setup.settings.path and setup.settings.holds_key else []
    yield from _modes(dict(_there([*secret, server, *sorted(below(server))])))
    # Who may write here may put words into our mouth; who may only read sees a persona, as in any checkout.
    for path, status in _there([setup.identities, identity.folder, identity.file]):
        mend = f"chmod go= {quote(str(path))}", _closing(path)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            yield Finding("permissions", "bad", f"others may change {path}", *mend)
        elif status.st_mode & _OTHERS:
            yield Finding("permissions", "note", f"others may read {path}, but nothing that is remembered", *mend)


def _there(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Those that are there still, for others may be at work."""
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            yield path, path.lstat()


def _modes(found: _Found) -> Iterator[Finding]:
    known = [(path, status) for path, status in found.items() if not stat.S_ISLNK(status.st_mode)]
    foreign = [path for path, status in known if status.st_uid != os.geteuid()]
    exposed = [path for path, status in known if status.st_mode & _OTHERS and path not in foreign]
    for path in foreign:
        yield Finding("permissions", "bad", f"{path} belongs to somebody else", f"sudo chown $USER {quote(str(path))}")
    for path in exposed:
        yield Finding("permissions", "bad", f"others may read {path}", f"chmod go= {quote(str(path))}", _closing(path))


def _links(found: _Found) -> Iterator[Finding]:
    for path, status in found.items():
        if stat.S_ISLNK(status.st_mode):
            yield Finding("links", "bad", f"{path} is a link, which is never followed", f"ls -l {quote(str(path))}")


def _strays(home: Path, found: _Found) -> Iterator[Finding]:
    """What a killed process left: sessions half made, sessions half deleted, drafts of files."""
    old = time.time() - _STRAY_AFTER_S
    for path, status in found.items():
        if path.parent == home / ".drafts" and status.st_mtime < old:
            yield Finding("drafts", "bad", f"{path} is a session that was never finished", FIX, _moving(home, path))
        elif path.parent == home / ".trash":
            yield Finding("drafts", "bad", f"{path} was deleted, but not to its end", FIX, _erasing(path))
        elif path.name.startswith(".") and path.suffix == ".tmp" and status.st_mtime < old:
            yield Finding("drafts", "bad", f"{path} is the draft of a file", FIX, _moving(home, path))


def _closing(path: Path) -> Callable[[], Awaitable[str]]:
    def close() -> str:
        path.chmod(path.stat().st_mode & ~_OTHERS)
        return "closed to others"

    return lambda: asyncio.to_thread(close)


def _moving(home: Path, path: Path) -> Callable[[], Awaitable[str]]:
    async def move() -> str:
        return f"moved to {await asyncio.to_thread(move_aside, home, path)}"

    return move


def _erasing(path: Path) -> Callable[[], Awaitable[str]]:
    async def erase() -> str:
        await asyncio.to_thread(partial(shutil.rmtree, path))
        return "deleted, as it was asked to be"

    return erase
