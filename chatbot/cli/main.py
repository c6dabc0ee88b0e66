"""Entry point: parse, run one command, and map errors to a message and an exit code."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence
from typing import Any

_MODULES = {
    None: "chatbot.cli.repl.loop",
    "ask": "chatbot.cli.ask",
    "backup": "chatbot.cli.storage:run_backup",
    "config": "chatbot.cli.config",
    "completion": "chatbot.cli.completion",
    "doctor": "chatbot.cli.doctor",
    "hooks": "chatbot.cli.plugins:list_hooks",
    "keys": "chatbot.cli.models:run_keys",
    "mcp": "chatbot.cli.serve:run_mcp",
    "maintain": "chatbot.cli.storage:run_maintain",
    "init": "chatbot.cli.init",
    "models": "chatbot.cli.models",
    "memory": "chatbot.cli.memory.command",
    "personas": "chatbot.cli.init:run_personas",
    "projects": "chatbot.cli.sessions.command",
    "prompt": "chatbot.cli.why:run_prompt",
    "restore": "chatbot.cli.storage:run_backup",
    "serve": "chatbot.cli.serve",
    "sessions": "chatbot.cli.sessions.command",
    "storage": "chatbot.cli.storage",
    "setup": "chatbot.cli.setup",
    "stores": "chatbot.cli.plugins:list_stores",
    "sync": "chatbot.cli.storage:run_backup",
    "token": "chatbot.cli.users:run_token",
    "tools": "chatbot.cli.plugins:list_tools",
    "usage": "chatbot.cli.usage",
    "users": "chatbot.cli.users",
    "why": "chatbot.cli.why",
}
"""The module of each command; its `run`, or the function named, takes the arguments and returns an `Exit`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if argv is None:
        return _as_process(sys.argv[1:])
    from chatbot.cli.arguments import build_parser, with_question

    argv = with_question(argv)
    args = build_parser(argv).parse_args(argv)
    if args.version:
        from importlib.metadata import version

        print(f"chatbot {version('chatbot-runtime')}")  # noqa: T201 - the answer to --version
        return 0
    return _run(args)


def _as_process(argv: Sequence[str]) -> int:
    """Turn garbage collection off while loading: it takes a fifth of the start."""
    gc.disable()
    try:
        return main(argv)
    finally:
        gc.freeze()


def _run(args: argparse.Namespace) -> int:
    import asyncio

    from chatbot.cli.exits import Exit, exit_code
    from chatbot.cli.output import complain
    from chatbot.errors import ChatbotError
    from chatbot.stores.errors import StoreError

    _leave_to_notices("chatbot.hooks.hooks")
    try:
        return int(asyncio.run(run_command(args)))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except asyncio.CancelledError:
        return Exit.TERMINATED
    except BrokenPipeError:
        # The reader has closed the pipe; the interpreter must not fail again when it flushes.
        sys.stdout = None
        return Exit.OK
    except (ChatbotError, StoreError) as error:
        complain(error, as_json=args.json)
        return exit_code(error)


def _leave_to_notices(name: str) -> None:
    """Keep a logger from printing: the chat shows its messages as notices."""
    import logging

    logger = logging.getLogger(name)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


async def run_command(args: argparse.Namespace) -> Any:
    """Run the parsed command and return its `Exit`. Errors are raised."""
    module, _, name = _MODULES[args.command].partition(":")
    run = getattr(importlib.import_module(module), name or "run")
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    return await run(args)
