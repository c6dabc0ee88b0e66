"""What is remembered, the bill, the caches, and what hooks said: everything of an identity outside of its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from chatbot.chat import ledger
from chatbot.chat.usage import parse_call
from chatbot.cli.doctor.finding import Finding
from chatbot.cli.doctor.lines import bad_lines
from chatbot.errors import ChatbotError
from chatbot.memory import MemorySystem
from chatbot.pipeline.failures import NAME as FAILURES
from chatbot.pipeline.failures import Failures
from chatbot.setup import Setup
from stores import json_lines
from stores.access import SENSITIVITIES
from stores.cache import Cache
from stores.errors import StoreError, UnsafePath, UnsupportedOperation
from stores.events import parse_event
from stores.files import locked
from stores.observations import journal, manifest, search

_STORE = "observations"
_BEHIND = 4096
"""Rows that the index may lack before that is worth a word: searches find them all the same."""
_REINDEX = "chatbot memory reindex"


async def memories(setup: Setup) -> AsyncIterator[Finding]:
    """Look at them."""
    home = setup.identity.memory
    if not home.is_dir():
        yield Finding("memory", "ok", "nothing is remembered yet")
        return
    added = 0

    def count(line: bytes) -> None:
        nonlocal added
        added += parse_event(json_lines.record_of(line)).kind == "add"

    damaged = list(bad_lines("memory", home / journal.NAME, count, lock=journal.LOCK_NAME))
    for finding in damaged or [Finding("memory", "ok", f"{added} observations were ever added, all can be read")]:
        yield finding
    bill = home / ledger.NAME
    for finding in (*bad_lines("bill", bill, lambda line: parse_call(json_lines.record_of(line))), *_hooks(home)):
        yield finding
    for finding in _index(setup, home, added):
        yield finding
    if setup.config.embedding.model and added:
        async for finding in _vectors(setup):
            yield finding


def _hooks(home: Path) -> Iterator[Finding]:
    """What failed of late, the last failure of each hook."""
    last = {failure.hook: failure for failure in Failures(home).read()}
    path = home / FAILURES

    def acknowledge() -> str:
        with locked(home) as folder:
            return f"kept as {folder.set_aside(FAILURES)}"

    if not last:
        yield Finding("hooks", "ok", "none failed")
    else:
        told = "; ".join(f"{each.hook} failed at {each.topic}, {each.at}: {each.message}" for each in last.values())
        what = f"{told}. Mend them, or set enabled = false in [hooks], then forget about it"
        yield Finding("hooks", "bad", what, f"rm {quote(str(path))}", lambda: asyncio.to_thread(acknowledge))


def _index(setup: Setup, home: Path, rows: int) -> Iterator[Finding]:
    settings: dict[str, Any] = setup.config.memory.get(_STORE, {})
    if _STORE not in setup.agent_settings.memory or not rows:
        return
    root = Path(settings["cache"]).expanduser() if settings.get("cache") else None
    cache = Cache(home, root)

    async def renew() -> str:
        aside = cache.folder.with_name(f"{cache.folder.name}.foreign")
        while _is_there(aside):
            aside = aside.with_name(f"{aside.name}+")
        await asyncio.to_thread(cache.folder.rename, aside)
        return f"moved to {aside}; {await reindex()}"

    async def reindex() -> str:
        async with setup.open_memory(observations=_STORE) as memory:
            return f"indexed {await memory.memories().reindex():,} observations"

    try:
        cache.check()
    except UnsafePath as error:
        remedy = f"rm -r {quote(str(cache.folder))} && {_REINDEX}"
        yield Finding("index", "bad", str(error), remedy, renew if _is_there(cache.folder) else None)
        return
    folder = cache.folder / search.NAME
    known = manifest.read(folder).entries
    covered = known[-1].end if known else 0
    if rows - covered > _BEHIND:
        what = f"the index in {cache.folder} holds {covered:,} of {rows:,} rows" if known else "there is no index yet"
        yield Finding("index", "note", f"{what}: a search makes up for it, once", _REINDEX, reindex)
    else:
        yield Finding("index", "ok", f"in {cache.folder}")


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


async def _vectors(setup: Setup) -> AsyncIterator[Finding]:
    command = f"{_REINDEX} --embed"
    is_free = setup.config.embedding.model.startswith("local/")

    async def embed() -> str:
        async with _open(setup) as memory:
            return f"made anew for {await memory.memories().reindex(embed=True):,} observations"

    try:
        async with _open(setup) as memory:
            stats = await memory.memories().vector_stats(ask=SENSITIVITIES)
    except UnsupportedOperation:
        return
    except ChatbotError:
        return  # there is no such embedder, which was told already
    except StoreError as error:
        yield Finding("vectors", "bad", str(error), command, embed if is_free else None)
        return
    if stats.model and stats.model != setup.config.embedding.model:
        what = f"they were made by {stats.model}, and {setup.config.embedding.model} is configured"
        yield Finding("vectors", "bad", what, command, embed if is_free else None)
    elif stats.missing:
        yield Finding("vectors", "note", f"{stats.missing:,} rows have none yet", command, embed if is_free else None)
    else:
        yield Finding("vectors", "ok", f"{stats.embedded:,}, of {stats.model or 'no model yet'}")


def _open(setup: Setup) -> MemorySystem:
    return setup.open_memory(observations=setup.observation_store())
