"""The command: run all checks, fix if asked to, and print the findings."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import AsyncIterator

from chatbot.cli.doctor.finding import Finding, command_in, editing
from chatbot.cli.doctor.memories import memories
from chatbot.cli.doctor.models import models
from chatbot.cli.doctor.stores import STORAGE, above, kept, stores
from chatbot.cli.exits import Exit
from chatbot.cli.output import printable, say, say_json, waiting
from chatbot.config import FILE_VARIABLE, Settings, TelemetrySettings, find_file
from chatbot.errors import ChatbotError, ConfigError, IdentityError
from chatbot.redaction import without_secrets
from chatbot.runtime import Options, Setup
from chatbot.stores.errors import StoreError
from chatbot.telemetry import check_telemetry

_SIGNS = {"ok": "✓", "note": "·", "bad": "✗", "fixed": "✚"}


async def run(args: argparse.Namespace) -> Exit:
    """Print the findings; fail if one is bad and was not fixed."""
    options = Options(config=args.config, identity=args.identity, agent=args.agent)
    found = examine(options, network=args.network, verify=args.verify)
    with waiting("checking"):
        findings = [await _mended(finding) if args.fix else finding async for finding in found]
    if args.json:
        say_json([finding.as_json() for finding in findings])
    else:
        say("\n".join(_lines(finding) for finding in findings))
    return Exit.FAILED if any(finding.state == "bad" for finding in findings) else Exit.OK


async def examine(options: Options, *, network: bool = False, verify: bool = False) -> AsyncIterator[Finding]:
    """Check the configuration, the models, and everything that the identity keeps."""
    try:
        setup = Setup.resolve(options)
        yield Finding("configuration", "ok", str(setup.settings.path or "defaults; chatbot setup creates a file"))
        setup.check_stores()
        setup.check_tools()
        setup.check_hooks()
    except ChatbotError as error:
        yield Finding("configuration", "bad", str(error), _mending(error, options))
        return
    yield Finding("identity", "ok", f"{setup.identity.name} in {setup.identity.folder}")
    async for finding in models(setup, network=network):
        yield finding
    edit = editing(setup.source("telemetry"), setup.settings.path)
    async for finding in telemetry(setup.config.telemetry, edit, network=network):
        yield finding
    told: set[str] = set()
    for part in (
        kept(setup, verify=verify),
        _above(setup),
        stores(setup, verify=verify),
        memories(setup, verify=verify),
    ):
        async for finding in _storage_first(part):
            if finding.state != "bad" or finding.message not in told:  # each part finds a storage that is away
                yield finding
            told.add(finding.message)


async def _storage_first(part: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """Yield the findings of a part; a storage that cannot be used is one too."""
    try:
        async for finding in part:
            yield finding
    except StoreError as error:
        yield Finding(STORAGE, "bad", str(error))


async def _above(setup: Setup) -> AsyncIterator[Finding]:
    for finding in above(setup):
        yield finding


async def _mended(finding: Finding) -> Finding:
    if finding.mend is None:
        return finding
    try:
        return finding.mended(await finding.mend())
    except (ChatbotError, StoreError, OSError) as error:
        return Finding(finding.subject, "bad", f"{finding.message}; the fix failed: {error}", finding.command)


def _mending(error: ChatbotError, options: Options) -> str:
    """Return the command that fixes an unreadable configuration."""
    try:
        file = find_file(options.config, os.environ)
    except ConfigError:
        return f"chatbot init --config {shlex.quote(str(options.config or os.environ[FILE_VARIABLE]))}"
    if isinstance(error, IdentityError) and options.identity:
        return f"chatbot init --name {shlex.quote(options.identity)}"
    at = error.at if isinstance(error, ConfigError) else Settings.read(options.config).source("identity")
    return command_in(str(error), editing(at, file))


def _lines(finding: Finding) -> str:
    line = f"{_SIGNS[finding.state]} {finding.subject:14} {printable(finding.message)}"
    indent = " " * 17
    if sys.stdout.isatty():
        indent = " " * 4  # leaves more room for a path
        line = _wrapped(line, shutil.get_terminal_size().columns, indent)
    return f"{line}\n{indent}→ {finding.command}" if finding.command else line


def _wrapped(line: str, columns: int, indent: str) -> str:
    """Wrap the line between words only: a path is never broken."""
    return textwrap.fill(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


_SUBJECT = "telemetry"


async def telemetry(settings: TelemetrySettings, edit: str, *, network: bool) -> AsyncIterator[Finding]:
    """Check the exporter. Calls the collector only with `network`; `edit` opens the configuration."""
    if not (settings.endpoint or settings.prometheus):
        return
    try:
        refused = await asyncio.to_thread(check_telemetry, settings, network=network)
    except ConfigError as error:
        yield Finding(_SUBJECT, "bad", str(error), command_in(str(error), edit))
        return
    if refused:
        yield Finding(_SUBJECT, "bad", without_secrets(f"{settings.endpoint} did not accept data: {refused}"), edit)
    else:
        yield Finding(_SUBJECT, "ok", without_secrets("; ".join(_told(settings, is_taken=network))))


def _told(settings: TelemetrySettings, *, is_taken: bool) -> list[str]:
    sent = f"spans and metrics go to {settings.endpoint}{', which accepts them' if is_taken else ''}"
    return [
        *([sent] if settings.endpoint else []),
        *(["chatbot serve offers /metrics"] if settings.prometheus else []),
    ]
