"""Runs the examination, mends where that is asked for, and prints what was found."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import AsyncIterator

from chatbot.cli.doctor.finding import Finding, command_in, editing
from chatbot.cli.doctor.folders import above, folders
from chatbot.cli.doctor.memories import memories
from chatbot.cli.doctor.models import models
from chatbot.cli.doctor.sessions import sessions
from chatbot.cli.doctor.telemetry import telemetry
from chatbot.cli.exits import Exit
from chatbot.cli.output import printable, say, say_json
from chatbot.config import FILE_VARIABLE, Settings, find_file
from chatbot.errors import ChatbotError, ConfigError, IdentityError
from chatbot.setup import Options, Setup
from stores.errors import StoreError

_SIGNS = {"ok": "✓", "note": "·", "bad": "✗", "mended": "✚"}


async def run(args: argparse.Namespace) -> Exit:
    """Print what was found; fails where anything is bad and was not mended."""
    options = Options(config=args.config, identity=args.identity, agent=args.agent)
    found = examine(options, network=args.network)
    findings = [await _mended(finding) if args.fix else finding async for finding in found]
    if args.json:
        say_json([finding.as_json() for finding in findings])
    else:
        say("\n".join(_lines(finding) for finding in findings))
    return Exit.FAILED if any(finding.state == "bad" for finding in findings) else Exit.OK


async def examine(options: Options, *, network: bool = False) -> AsyncIterator[Finding]:
    """Look at the configuration, the models, and everything that the identity keeps."""
    try:
        setup = Setup.resolve(options)
        yield Finding("configuration", "ok", str(setup.settings.path or "defaults; chatbot init writes a file"))
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
    home = setup.identity.memory
    for finding in (*folders(home), *above(setup), *sessions(home, setup)):
        yield finding
    async for finding in memories(setup):
        yield finding


async def _mended(finding: Finding) -> Finding:
    if finding.mend is None:
        return finding
    try:
        return finding.mended(await finding.mend())
    except (ChatbotError, StoreError, OSError) as error:
        return Finding(finding.subject, "bad", f"{finding.message}; it could not be mended: {error}", finding.command)


def _mending(error: ChatbotError, options: Options) -> str:
    """The command that mends what kept the configuration from being read."""
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
        indent = " " * 4  # which leaves more room for a path than what was found has beside its subject
        line = _wrapped(line, shutil.get_terminal_size().columns, indent)
    return f"{line}\n{indent}→ {finding.command}" if finding.command else line


def _wrapped(line: str, columns: int, indent: str) -> str:
    """The line broken between words alone: a path that has no room behind others stands whole on a line of its own."""
    return textwrap.fill(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
