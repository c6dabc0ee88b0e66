"""Checks of stores: plug-ins that answer, what the backend keeps of an identity, and who may access its files."""

from __future__ import annotations

import asyncio
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from errno import EROFS
from pathlib import Path
from shlex import quote

from platformdirs import user_cache_path

from chatbot.chat.ledger import examine_reservations
from chatbot.chat.usage import parse_call
from chatbot.cli.doctor.finding import Finding, editing
from chatbot.memory.record import SessionRecord, utc_now
from chatbot.runtime import Setup
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.backend import Examination
from chatbot.stores.backends import open_backend, open_place
from chatbot.stores.base import KeyValueStore, ObservationStore, Store, TranscriptStore
from chatbot.stores.errors import StoreBusy, StoreFailed
from chatbot.stores.fields import how_many
from chatbot.stores.json_lines import record_of
from chatbot.stores.on_disk.examination import close_to_others, exposed, unwritable
from chatbot.stores.plugins import STORES, open_store
from chatbot.stores.records import SessionRef

STORAGE = "storage"
_OBSERVATIONS = "observations"
_PATIENCE_S = 30.0


async def stores(setup: Setup, *, verify: bool = False) -> AsyncIterator[Finding]:
    """Check every folder that is written to, and every store plug-in of others."""
    if lost := setup.why_lost(setup.agent_settings.memory):
        edit = editing(setup.source("agents", setup.agent, "memory"), setup.settings.path)
        yield Finding("memory", "note", lost, edit)
    for finding in (*await asyncio.to_thread(list, _places(setup)), *_programs(setup)):
        yield finding
    names = {name for agent in setup.config.agents.values() for name in agent.memory}
    for name in sorted(names - STORES.own.keys()):
        async for finding in _plugin(setup, name, verify=verify):
            yield finding


def _places(setup: Setup) -> Iterator[Finding]:
    """Check that the folders of memory and caches are writable."""
    home = setup.home
    backend = open_backend(home)
    problem = backend.refusal()
    if isinstance(problem, StoreFailed | StoreBusy):
        yield Finding(STORAGE, "bad", str(problem))
    elif problem:
        what = f"{home} is not writable ({problem.strerror}): nothing new is kept"
        yield Finding("places", "note" if problem.errno == EROFS else "bad", what, f"ls -ld {quote(str(home))}")
    elif slow := backend.why_no_hints():
        yield Finding("places", "note", slow, editing(setup.source("storage", "url"), setup.settings.path))
    caches = setup.config.memory.get(_OBSERVATIONS, {}).get("cache")
    cache = Path(caches) if caches else user_cache_path("chatbot")
    is_used = any(_OBSERVATIONS in agent.memory for agent in setup.config.agents.values())
    if is_used and (problem := unwritable(cache)):
        what = f"the cache folder {cache} is not writable ({problem.strerror}): set cache in [memory.observations]"
        place = ("memory", _OBSERVATIONS, "cache") if caches else ("memory",)
        yield Finding("places", "bad", what, editing(setup.source(*place), setup.settings.path))


def _programs(setup: Setup) -> Iterator[Finding]:
    """Check that the programs of MCP servers exist."""
    for name, server in setup.config.mcp.servers.items():
        program = Path(server.command).expanduser()
        path = setup.settings.folder / program if len(program.parts) > 1 else program
        if server.command and shutil.which(path, path=server.env.get("PATH")) is None:
            edit = editing(setup.source("mcp", "servers", name, "command"), setup.settings.path)
            yield Finding("mcp", "bad", f"[mcp.servers.{name}]: program {server.command!r} not found", edit)


async def _plugin(setup: Setup, name: str, *, verify: bool) -> AsyncIterator[Finding]:
    """Count what a store plug-in keeps; it may raise any exception."""
    home, edit = setup.home, editing(setup.source("memory", name), setup.settings.path)
    backend = open_backend(home)
    try:
        store = open_store(name, home, setup.config.memory.get(name, {}), beside=setup.settings.plugins_beside)
        async with asyncio.timeout(_PATIENCE_S), store:
            ids = await asyncio.to_thread(backend.sessions.ids)
            records = [record for each in sorted(ids) if (record := backend.sessions.glance(each))]
            sessions = [backend.sessions.ref(record.id) for record in records if name in record.store_types]
            told = [part async for part in _asked(store, sessions)]
            flaws = await store.examine(verify=verify)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        yield Finding("stores", "bad", f"the store {name!r} fails: {type(error).__name__}: {error}", edit)
        return
    yield Finding("stores", "ok", f"{name}: {', '.join(told)}")
    for flaw in flaws:
        yield Finding.of(flaw)


async def _asked(store: Store, sessions: list[SessionRef]) -> AsyncIterator[str]:
    if isinstance(store, ObservationStore):
        everything = View("full", utc_now(), frozenset(SENSITIVITIES), None)
        stats = await store.stats(everything)
        yield how_many(sum(stats.by_status.values()), "memory")
    entries = values = 0
    for ref in sessions:
        if isinstance(store, TranscriptStore):
            entries += await store.transcript_count(ref)
        if isinstance(store, KeyValueStore):
            values += len(await store.kv_entries(ref))
    if isinstance(store, TranscriptStore):
        yield f"{entries:,} transcript entries"
    if isinstance(store, KeyValueStore):
        yield f"{values:,} key-value entries"


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
