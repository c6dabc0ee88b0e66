"""`chatbot doctor`: check the installation, suggest fixes, and with `--fix` apply them.

A check changes nothing. A fix destroys nothing: a damaged file is first set aside, whole, next to the new one.
"""

import argparse
import asyncio
import os
import re
import shlex
import shutil
import stat
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, suppress
from datetime import datetime
from errno import EROFS
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from platformdirs import user_cache_path

from chatbot.chat.calls import Calls
from chatbot.chat.ledger import Ledger, examine_reservations, parse_call
from chatbot.cli.output import say_result, waiting, wrapped
from chatbot.cli.run import Exit
from chatbot.config import TelemetrySettings
from chatbot.config_layers import FILE_VARIABLE, Settings, find_file
from chatbot.errors import BudgetExceeded, ChatbotError, ConfigError, IdentityError, ModelError
from chatbot.hooks.extraction.structured import own_model_settings
from chatbot.hooks.hook import Failures
from chatbot.memory.scope import utc_now
from chatbot.messages import Message
from chatbot.models import Model, open_model
from chatbot.models.embedders import open_embedder
from chatbot.models.local_encoder import INSTALL, NO_ENCODERS
from chatbot.options import Options, Setup
from chatbot.runtime import Runtime
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.backend import Examination, Flaw
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import FULL, StoreBusy, StoreError, StoreFailed, UnsupportedOperation
from chatbot.stores.fields import how_many
from chatbot.stores.json_lines import record_of
from chatbot.stores.on_disk.examination import close_to_others, exposed, shell_word, unwritable
from chatbot.stores.plugins import STORES, open_backend, open_place, open_store
from chatbot.stores.records import SessionRecord, reason_of
from chatbot.stores.text.redaction import without_secrets
from chatbot.telemetry import import_telemetry
from chatbot.tools.toolbox import TOOLS
from chatbot.transfer.sync_storage import Storage, digest_of_storage, interrupted

State = Literal["ok", "note", "bad", "fixed"]
"""`note` needs no action; `fixed` was bad before `--fix`."""

FIX = "chatbot doctor --fix"
_UPGRADE = "uv tool upgrade chatbot-runtime"
_COMMAND = re.compile(
    r"pip install [^:;]*|chatbot config trust(?: -i [a-z0-9_-]+)?|chatbot (?:keys set|models get) [\w-]+"
    r"|chatbot init --name [^`]+"
)
_UNSET = re.compile(r"names the variable (\w+), which is not set")
_VARIABLE = re.compile(r"CHATBOT_\S+")


class Finding(Struct, frozen=True):
    """Result of one check; if it is bad, the command that fixes it, and a function that does so here."""

    subject: str
    state: State
    message: str = ""
    command: str = ""
    mend: Callable[[], Awaitable[str]] | None = None
    """Fixes it and returns what was done."""

    @classmethod
    def of(cls, flaw: Flaw) -> "Finding":
        """Return the finding for a flaw of a backend or store, with the command that fixes it here."""
        mend = flaw.mend
        command = flaw.command or (_UPGRADE if flaw.is_later else FIX if mend else "")
        blocking = None if mend is None else lambda: asyncio.to_thread(mend)
        return cls(flaw.subject, flaw.state, flaw.message, command, blocking)

    def mended(self, how: str) -> "Finding":
        """Return the finding after it was fixed."""
        return replace(self, state="fixed", message=f"{self.message}: {how}", command="", mend=None)

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {"subject": self.subject, "state": self.state, "message": self.message, "command": self.command}


def command_in(message: str, otherwise: str) -> str:
    """Return the command that a message names, or one that sets the missing variable; else `otherwise`."""
    if unset := _UNSET.search(message):
        return f"export {unset[1]}=…"
    named = _COMMAND.search(message)
    return named[0] if named else otherwise


def _command_to_edit(at: Path | str, file: Path | None) -> str:
    """Return the command that changes a setting where it was set, `at` a variable or a file, else in `file`."""
    if isinstance(at, str) and _VARIABLE.fullmatch(at):
        return f"unset {at}"
    path = at if isinstance(at, Path) else file
    if path and not os.path.isfile(path):  # noqa: PTH113 - a folder, or what may not be looked at
        return f"ls -ld {shell_word(path)}"
    return f"$EDITOR {shell_word(path)}" if path else "chatbot init"


STORAGE = "storage"
_OBSERVATIONS = "observations"
_LONGEST_WAIT_S = 30.0
"""Maximum seconds for the answer of a store plug-in."""


async def check_stores(setup: Setup, *, verify: bool = False) -> AsyncIterator[Finding]:
    """Check the folders of memory and caches, the programs of MCP servers, and the store plug-ins of others."""
    if lost := setup.why_lost(setup.agent_settings.memory):
        yield Finding("memory", "note", lost, _edit_command(setup, "agents", setup.agent, "memory"))
    for finding in (*await asyncio.to_thread(list, _places(setup)), *_programs(setup)):
        yield finding
    with closing(open_backend(setup.home)) as backend:
        records = await asyncio.to_thread(backend.sessions.find, lambda _: True)
    # a name with `:` names code to load, and a session's record alone may not do that
    names = {name for each in records for name in each.store_types if ":" not in name}
    names |= {name for agent in setup.config.agents.values() for name in agent.memory}
    for name in sorted(names - STORES.own.keys()):
        async for finding in _plugin(setup, name, verify=verify):
            yield finding


def _places(setup: Setup) -> Iterator[Finding]:
    home = setup.home
    with closing(open_backend(home)) as backend:
        problem = backend.refusal()
    if isinstance(problem, StoreFailed | StoreBusy):
        yield Finding(STORAGE, "bad", str(problem))
    elif problem:
        what = f"{home} is not writable ({problem.strerror}): nothing new is stored"
        look = "df -h" if problem.errno in FULL else "ls -ld"
        yield Finding("places", "note" if problem.errno == EROFS else "bad", what, f"{look} {shell_word(home)}")
    caches = setup.config.memory.get(_OBSERVATIONS, {}).get("cache")
    cache = Path(caches) if caches else user_cache_path("chatbot")
    is_used = any(_OBSERVATIONS in agent.memory for agent in setup.config.agents.values())
    if is_used and (problem := unwritable(cache)):
        what = f"the cache folder {cache} is not writable ({problem.strerror})"
        edit = _edit_command(setup, *(("memory", _OBSERVATIONS, "cache") if caches else ("memory",)))
        if problem.errno in FULL:
            there = next(each for each in (cache, *cache.absolute().parents) if each.exists())
            yield Finding("places", "bad", what, f"df -h {shell_word(there)}")
        else:
            yield Finding("places", "bad", f"{what}: set cache in [memory.observations]", edit)


def _programs(setup: Setup) -> Iterator[Finding]:
    for name, server in setup.config.mcp.servers.items():
        if server.command and shutil.which(server.command, path=server.env.get("PATH")) is None:
            edit = _edit_command(setup, "mcp", "servers", name, "command")
            yield Finding("mcp", "bad", f"[mcp.servers.{name}]: program {server.command!r} not found", edit)


async def _plugin(setup: Setup, name: str, *, verify: bool) -> AsyncIterator[Finding]:
    home, edit = setup.home, _edit_command(setup, "memory", name)
    try:
        store = open_store(name, home, setup.config.memory.get(name, {}), beside=setup.settings.plugins_beside)
        async with asyncio.timeout(_LONGEST_WAIT_S), store:
            if isinstance(store, ObservationStore):
                await store.stats(View("full", utc_now(), frozenset(SENSITIVITIES), namespaces=None))
            flaws = await store.examine(verify=verify)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        yield Finding("stores", "bad", f"the store {name!r} fails: {reason_of(error)}", edit)
        return
    yield Finding("stores", "ok", f"{name} answers")
    for flaw in flaws:
        yield Finding.of(flaw)


async def check_tools(setup: Setup, options: Options) -> AsyncIterator[Finding]:
    """Make the tools of plug-ins and those for files, in a session that keeps nothing."""
    files = ["files"] if setup.config.files.folder else []
    for agent, settings in setup.config.agents.items():
        if own := ", ".join([*sorted({*settings.tools} - TOOLS.own.keys()), *(files if settings.tools else [])]):
            changed = replace(options, agent=agent, model="scripted", ephemeral=True)
            try:
                async with Runtime(changed, is_terminal=True) as runtime:
                    runtime.tools(await runtime.new_session())
            except ConfigError as error:
                yield Finding("tools", "bad", str(error), _edit_command(setup, "agents", agent, "tools"))
            else:
                yield Finding("tools", "ok", own)


async def check_sessions(setup: Setup, *, verify: bool = False) -> AsyncIterator[Finding]:
    """Check sessions, receipts and bills, and their files."""

    def new_record(session_id: str, created_at: datetime, used_at: datetime) -> SessionRecord:
        return SessionRecord(session_id, setup.agent, setup.agent_settings.memory, created_at, used_at)

    bill = {"usage": ("bill", lambda line: parse_call(record_of(line)))}
    options = Examination(new_record, bill, verify)
    with closing(open_backend(setup.home)) as backend:
        flaws = iter(backend.examine(options))
        while flaw := await asyncio.to_thread(next, flaws, None):  # one by one: an error hides none of those before it
            yield Finding.of(flaw)
    if (reserved := await asyncio.to_thread(examine_reservations, setup.home)) is not None:
        yield Finding.of(reserved)


async def check_permissions(setup: Setup) -> AsyncIterator[Finding]:
    """Check permissions around an identity's memory: keys, tokens, persona, other identities."""
    identity, server = setup.identity, open_place(setup.server_home)
    secret = [setup.settings.path] if setup.settings.path and setup.settings.holds_key else []
    for flaw in (*exposed(secret), *server.exposed()):
        yield Finding.of(flaw)
    # Write access could change what the bot says; read access shows only a persona.
    for path in (setup.identities, identity.folder, identity.file):
        if path.exists():
            for finding in _open_to_others(path, path.stat().st_mode):
                yield finding


def _open_to_others(path: Path, mode: int) -> Iterator[Finding]:
    async def close() -> str:
        return await asyncio.to_thread(close_to_others, path)

    command = f"chmod go= {shell_word(path)}"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield Finding("permissions", "bad", f"{path} is writable by other users", command, close)
    elif mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Finding("permissions", "note", f"{path} is readable by other users (no memories in it)", command, close)


async def check_memories(setup: Setup, *, verify: bool = False) -> AsyncIterator[Finding]:
    """Check the memories, the caches, the digest of all data, the hooks and the vectors."""
    is_ours = any(_OBSERVATIONS in agent.memory for agent in setup.config.agents.values())
    with closing(open_backend(setup.home)) as backend:
        is_there = backend.is_there()
    if not is_there:
        if is_ours:
            yield Finding("memory", "ok", "no memories yet")
        return
    store = open_store(_OBSERVATIONS, setup.home, setup.config.memory.get(_OBSERVATIONS, {}))
    async with store:
        flaws = await store.examine(verify=verify)
        if is_ours and not flaws:
            yield Finding("memory", "ok", "no memories yet")
        for flaw in flaws:
            if flaw.subject != "index" or _OBSERVATIONS in setup.agent_settings.memory:
                yield Finding.of(flaw)
    with suppress(StoreError):  # `check_sessions` and `store.examine` report the damage
        async with Storage.opened(setup.home) as storage:
            for flaw in await asyncio.to_thread(lambda: [*interrupted(storage)]):
                yield Finding.of(flaw)
            digest = await digest_of_storage(storage)
        yield Finding("digest", "ok", f"{digest}: the same in a backup, and on machines that are in sync")
    for finding in _hooks(Failures(setup.home)):
        yield finding
    if setup.config.embedding.model and any(flaw.subject == "index" for flaw in flaws):
        async for finding in _vectors(setup):
            yield finding


def _hooks(failures: Failures) -> Iterator[Finding]:
    last = {failure.hook: failure for failure in failures.read()}

    async def acknowledge() -> str:
        await asyncio.to_thread(failures.acknowledge)
        return "the report is deleted"

    if not last:
        yield Finding("hooks", "ok", "none failed")
    else:
        errors = "; ".join(f"{each.hook} failed at {each.topic}, {each.at}: {each.message}" for each in last.values())
        what = f"{errors}. Fix them or set enabled = false in [hooks], then delete the report"
        yield Finding("hooks", "bad", what, FIX, acknowledge)


async def _vectors(setup: Setup) -> AsyncIterator[Finding]:
    command = "chatbot memory reindex --embed"

    async def embed() -> str:
        async with setup.open_memory(observations=setup.observation_store()) as memory:
            return f"created for {how_many(await memory.memory().embed_memories(), 'memory')}"

    mend = embed if setup.config.embedding.model.startswith("local/") else None
    try:
        if (embedder := open_embedder(setup.config.embedding, setup.config.providers)) is None:
            return  # the check of models reports how to get one
        async with setup.open_memory(observations=setup.observation_store()) as memory:
            stats = await memory.memory().vector_stats(sensitivities=SENSITIVITIES)
    except (UnsupportedOperation, ChatbotError):  # nothing is embedded; or `check_models` has reported why not
        return
    except StoreError as error:
        yield Finding("vectors", "bad", str(error), command, mend)
        return
    if stats.model and stats.model != embedder.space:
        what = f"made by {stats.model}, but {embedder.space} is configured"
        yield Finding("vectors", "bad", what, command, mend)
    elif stats.missing:
        yield Finding("vectors", "note", f"{how_many(stats.missing, 'row')} without a vector", command, mend)
    else:
        yield Finding("vectors", "ok", f"{stats.embedded:,}, of {embedder.name if stats.model else 'no model yet'}")


async def check_models(setup: Setup, *, network: bool) -> AsyncIterator[Finding]:
    """Check every configured model. Calls the chat model only with `network`."""
    extraction = setup.config.extraction
    own = own_model_settings(setup.config.model, extraction) if extraction.enabled or extraction.summaries else None
    configured = [("model", "name", setup.config.model)]
    configured += [("extraction", "model", own)] if own is not None else []
    for subject, place, settings in configured:
        async with open_model(settings, setup.config.providers) as model:
            try:
                await model.check()
                is_asked = network and subject == "model"
                answer = f", answered: {await _ask_one_token(setup, model)}" if is_asked else ""
                yield Finding(subject, "ok", f"{model.name}{answer}")
            except (ModelError, BudgetExceeded) as error:
                yield Finding(subject, "bad", str(error), command_in(str(error), _edit_command(setup, subject, place)))
    if (finding := await _embedder(setup)) is not None:
        yield finding


def _edit_command(setup: Setup, *place: str) -> str:
    return _command_to_edit(setup.settings.source(*place), setup.settings.path)


async def _ask_one_token(setup: Setup, model: Model) -> str:
    """Ask for one token, which is billed, and return how long that took."""
    calls = Calls(model, Ledger(setup.home), setup.config.budget, reply_tokens=1)
    started = time.monotonic()
    await calls.ask("doctor", [Message("user", "Say yes.")])
    return f"one token in {time.monotonic() - started:.1f} s"


async def _embedder(setup: Setup) -> Finding | None:
    try:
        embedder = open_embedder(setup.config.embedding, setup.config.providers)
        if embedder is None and setup.config.embedding.model:
            return Finding("embedder", "note", NO_ENCODERS, INSTALL)
        if embedder is None:
            return None
        async with embedder:
            await embedder.check()
    except ChatbotError as error:
        edit = _edit_command(setup, "embedding", "model")
        return Finding("embedder", "bad", str(error), command_in(str(error), edit))
    return Finding("embedder", "ok", setup.config.embedding.model)


_SIGNS = {"ok": "✓", "note": "·", "bad": "✗", "fixed": "✚"}


async def run(args: argparse.Namespace) -> Exit:
    """Print the findings; fail if one is bad and was not fixed."""
    options = Options(config=args.config, identity=args.identity, agent=args.agent)
    found = examine(options, network=args.network, verify=args.verify)
    with waiting("checking"):
        findings = [await _fix(finding) if args.fix else finding async for finding in found]
    say_result(args, [finding.as_json() for finding in findings], "\n".join(_text_of(finding) for finding in findings))
    return Exit.FAILED if any(finding.state == "bad" for finding in findings) else Exit.OK


async def examine(options: Options, *, network: bool = False, verify: bool = False) -> AsyncIterator[Finding]:
    """Check the configuration, the models, and everything that the identity keeps."""
    try:
        setup = Setup.resolve(options)
    except ChatbotError as error:
        yield Finding("configuration", "bad", str(error), _fix_command(error, options))
        return
    yield Finding("configuration", "ok", str(setup.settings.path or "defaults; chatbot setup creates a file"))
    mistakes = list(setup.mistakes())
    for mistake in mistakes:
        yield Finding("configuration", "bad", str(mistake), _fix_command(mistake, options))
    if mistakes:
        return
    yield Finding("identity", "ok", f"{setup.identity.name} in {setup.identity.folder}")
    async for finding in check_models(setup, network=network):
        yield finding
    async for finding in check_exporter(setup.config.telemetry, _edit_command(setup, "telemetry"), network=network):
        yield finding
    seen: set[str] = set()
    for part in (
        check_sessions(setup, verify=verify),
        check_permissions(setup),
        check_stores(setup, verify=verify),
        check_tools(setup, options),
        check_memories(setup, verify=verify),
    ):
        async for finding in _with_storage_errors(part):
            if finding.state != "bad" or finding.message not in seen:  # each part may report the same storage
                yield replace(finding, command=f"{FIX} --verify") if verify and finding.command == FIX else finding
            seen.add(finding.message)


async def _with_storage_errors(part: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """Yield the findings of a part, and one if the storage cannot be used."""
    try:
        async for finding in part:
            yield finding
    except StoreError as error:
        yield Finding(STORAGE, "bad", str(error))


async def _fix(finding: Finding) -> Finding:
    if finding.mend is None:
        return finding
    try:
        return finding.mended(await finding.mend())
    except (ChatbotError, StoreError, OSError) as error:
        return Finding(finding.subject, "bad", f"{finding.message}; the fix failed: {error}", finding.command)


def _fix_command(error: ChatbotError, options: Options) -> str:
    try:
        file = find_file(options.config, os.environ)
    except ConfigError as unusable:
        if unusable.at:  # the file exists
            return f"ls -ld {shell_word(unusable.at)}"
        return f"chatbot init --config {shlex.quote(str(options.config or os.environ[FILE_VARIABLE]))}"
    at = error.at if isinstance(error, ConfigError) else Settings.read(options.config).source("identity")
    edit = _command_to_edit(at, file)
    names_identity = isinstance(error, IdentityError) and not options.identity  # a setting does, not the command line
    return edit if names_identity else command_in(str(error), edit)


def _text_of(finding: Finding) -> str:
    message = finding.message.replace("\n", " ")  # a file's name must not look like a finding
    line = f"{_SIGNS[finding.state]} {finding.subject:14} {message}"
    indent = " " * (4 if sys.stdout.isatty() else 17)  # a terminal has less room for a path
    line = wrapped(line, indent)
    return f"{line}\n{indent}→ {finding.command}" if finding.command else line


async def check_exporter(settings: TelemetrySettings, edit: str, *, network: bool) -> AsyncIterator[Finding]:
    """Check the exporter. Calls the collector only with `network`; `edit` is the command that edits the settings."""
    if not (settings.endpoint or settings.prometheus):
        return
    try:
        refused = await asyncio.to_thread(import_telemetry().check, settings, network=network)
    except ConfigError as error:
        yield Finding("telemetry", "bad", str(error), command_in(str(error), edit))
        return
    sent = f"spans and metrics go to {settings.endpoint}{', which accepts them' if network else ''}"
    exports = [sent] if settings.endpoint else []
    if settings.prometheus:
        exports.append("chatbot serve offers /metrics")
    if refused:
        yield Finding("telemetry", "bad", without_secrets(f"{settings.endpoint} did not accept data: {refused}"), edit)
    else:
        yield Finding("telemetry", "ok", without_secrets("; ".join(exports)))
