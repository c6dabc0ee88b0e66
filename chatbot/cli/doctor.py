"""`chatbot doctor`: looks at everything, changes nothing, and says how to mend what is wrong."""

from __future__ import annotations

import argparse
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json
from chatbot.errors import ChatbotError
from chatbot.memory import MemorySystem, SessionRecord
from chatbot.models import open_model
from chatbot.pipeline.failures import NAME as FAILURES
from chatbot.pipeline.failures import Failures
from chatbot.runtime import Options, Setup
from stores.base import KeyValueStore, TranscriptStore
from stores.errors import StoreError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what to do where it is not well."""

    subject: str
    state: Literal["ok", "bad"]
    message: str = ""


async def run(args: argparse.Namespace) -> Exit:
    """Print what was found; fails where anything is bad."""
    options = Options(config=args.config, identity=args.identity, agent=args.agent)
    findings = [finding async for finding in examine(options)]
    if args.json:
        say_json([asdict(finding) for finding in findings])
    else:
        say("\n".join(_line(finding) for finding in findings))
    return Exit.FAILED if any(finding.state == "bad" for finding in findings) else Exit.OK


async def examine(options: Options) -> AsyncIterator[Finding]:
    """Look at the configuration, the model, and everything that the identity remembers."""
    try:
        setup = Setup.resolve(options)
        setup.check_stores()
        setup.check_hooks()
    except ChatbotError as error:
        yield Finding("configuration", "bad", str(error))
        return
    yield Finding("configuration", "ok", str(setup.settings.path or "defaults"))
    yield Finding("identity", "ok", f"{setup.identity.name} in {setup.identity.folder}")
    yield await _model(setup)
    yield _hooks(setup)
    for finding in _files(setup.identity.memory):
        yield finding
    async for finding in _sessions(setup):
        yield finding


async def _model(setup: Setup) -> Finding:
    settings = setup.config.model
    async with open_model(settings) as model:
        try:
            await model.check()
        except ChatbotError as error:
            return Finding("model", "bad", str(error))
    return Finding("model", "ok", settings.name)


def _hooks(setup: Setup) -> Finding:
    """What failed of late, the last failure of each hook."""
    try:
        last = {failure.hook: failure for failure in Failures(setup.identity.memory).read()}
    except StoreError as error:
        return Finding("hooks", "bad", str(error))
    if not last:
        return Finding("hooks", "ok", "none failed")
    failed = "; ".join(f"{each.hook} at {each.topic}, {each.at}: {each.message}" for each in last.values())
    path = setup.identity.memory / FAILURES
    return Finding("hooks", "bad", f"{failed}. Mend them, or set enabled = false in [hooks], and delete {path}")


def _files(memory: Path) -> Iterator[Finding]:
    """Private modes, and nothing set aside."""
    paths = [memory, *memory.rglob("*")] if memory.is_dir() else []
    exposed = [path for path in paths if not path.is_symlink() and path.stat().st_mode & _OTHERS]
    aside = [path for path in paths if ".damaged-" in path.name]
    for path in exposed:
        yield Finding("permissions", "bad", f"others may read {path}: chmod go= '{path}'")
    for path in aside:
        yield Finding("set aside", "bad", f"{path} was damaged: mend it and rename it back, or delete it")
    if not exposed:
        yield Finding("permissions", "ok", f"{len(paths)} files and folders are private")


async def _sessions(setup: Setup) -> AsyncIterator[Finding]:
    async with setup.open_memory() as memory:
        records = await memory.list_sessions()
        listed = {record.id for record in records}
        folders = setup.identity.memory / "sessions"
        names = {path.name for path in folders.iterdir()} if folders.is_dir() else set()
        for stray in sorted(names - listed):
            yield Finding(
                "sessions", "bad", f"{folders / stray} is no readable session: mend its session.json, or move it away"
            )
        broken = 0
        for record in records:
            if problem := await _session(memory, record):
                broken += 1
                yield Finding("sessions", "bad", problem)
        yield Finding("sessions", "ok", f"{len(records) - broken} can be read")


async def _session(memory: MemorySystem, record: SessionRecord) -> str | None:
    try:
        session = await memory.load_session(record.id, any_agent=True)
        if session.supports(TranscriptStore):
            await session.transcript_read_all()
        if session.supports(KeyValueStore):
            await session.kv_entries()
        await session.records()
    except (ChatbotError, StoreError) as error:
        return f"{record.id}: {error}"
    return None


def _line(finding: Finding) -> str:
    return f"{'✓' if finding.state == 'ok' else '✗'} {finding.subject:14} {finding.message}"
