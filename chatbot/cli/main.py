"""The entry point: parse, run one command, and turn what went wrong into a message and an exit code."""

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
    "config": "chatbot.cli.config",
    "completion": "chatbot.cli.completion",
    "doctor": "chatbot.cli.doctor",
    "hooks": "chatbot.cli.hooks",
    "mcp": "chatbot.cli.mcp",
    "maintain": "chatbot.cli.maintain",
    "init": "chatbot.cli.init",
    "memory": "chatbot.cli.memory.command",
    "prompt": "chatbot.cli.prompt",
    "serve": "chatbot.cli.serve",
    "sessions": "chatbot.cli.sessions.command",
    "stores": "chatbot.cli.stores",
    "token": "chatbot.cli.token",
    "tools": "chatbot.cli.tools",
    "usage": "chatbot.cli.usage",
    "why": "chatbot.cli.why",
}
"""The module of each command; its `run(args)` is a coroutine function that returns an `Exit`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if argv is None:
        return _as_process(sys.argv[1:])
    from chatbot.cli.arguments import build_parser

    args = build_parser(argv).parse_args(argv)
    if args.version:
        from importlib.metadata import version

        print(f"chatbot {version('chatbot-runtime')}")  # noqa: T201 - the answer to --version
        return 0
    return _run(args)


def _as_process(argv: Sequence[str]) -> int:
    """Look for no garbage among what is only being loaded, nor among what ends with the process: a fifth of a start."""
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
    from stores.errors import StoreError

    _leave_to_notices("chatbot.pipeline.bus")
    try:
        return int(asyncio.run(run_command(args)))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except asyncio.CancelledError:
        return Exit.TERMINATED
    except BrokenPipeError:
        # Whoever read our output has enough; keep the interpreter from failing again when it flushes.
        sys.stdout = None
        return Exit.OK
    except (ChatbotError, StoreError) as error:
        complain(error, as_json=args.json)
        return exit_code(error)


def _leave_to_notices(name: str) -> None:
    """What a chat tells by notices, its terminal shall not show once more because nobody has set up a log."""
    import logging

    logger = logging.getLogger(name)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


async def run_command(args: argparse.Namespace) -> Any:
    """Run the command that was parsed; its `Exit`. What goes wrong is raised."""
    run = importlib.import_module(_MODULES[args.command]).run
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    return await run(args)
