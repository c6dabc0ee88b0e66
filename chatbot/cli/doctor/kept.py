"""Checks of everything that an identity keeps, by its backend, and of who may access the files around it."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from shlex import quote

from chatbot.chat.ledger import examine_reservations
from chatbot.chat.usage import parse_call
from chatbot.cli.doctor.finding import Finding
from chatbot.memory.record import SessionRecord
from chatbot.runtime import Setup
from chatbot.stores.backend import Examination
from chatbot.stores.backends import open_backend, open_place
from chatbot.stores.json_lines import record_of
from chatbot.stores.on_disk.examination import close_to_others, exposed

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


async def kept(setup: Setup, *, verify: bool = False) -> AsyncIterator[Finding]:
    """Look at sessions, receipts and bills, and at the files that they are in."""

    def new_record(session_id: str, created_at: datetime, used_at: datetime) -> SessionRecord:
        return SessionRecord(session_id, setup.agent, setup.agent_settings.memory, created_at, used_at)

    backend = open_backend(setup.home)
    bill = {"usage": ("bill", lambda line: parse_call(record_of(line)))}
    wish = Examination(new_record, bill, verify)
    for flaw in await asyncio.to_thread(lambda: list(backend.examine(wish))):
        yield Finding.of(flaw)
    backend.close()
    if (reserved := await asyncio.to_thread(examine_reservations, setup.home)) is not None:
        yield Finding.of(reserved)


def above(setup: Setup) -> Iterator[Finding]:
    """Check permissions around an identity's memory: keys, tokens, persona, other identities."""
    identity, server = setup.identity, open_place(setup.server_home)
    secret = [setup.settings.path] if setup.settings.path and setup.settings.holds_key else []
    yield from map(Finding.of, (*exposed(secret), *server.exposed()))
    # Write access changes what the bot says; read access shows a persona, as in any checkout.
    for path in (setup.identities, identity.folder, identity.file):
        if path.exists():
            yield from _around(path, path.stat().st_mode)


def _around(path: Path, mode: int) -> Iterator[Finding]:
    async def close() -> str:
        return await asyncio.to_thread(close_to_others, path)

    command = f"chmod go= {quote(str(path))}"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield Finding("permissions", "bad", f"{path} is writable by other users", command, close)
    elif mode & _OTHERS:
        yield Finding(
            "permissions", "note", f"{path} is readable by other users (it contains no memories)", command, close
        )
