"""Entry point: parse, run one command, and map errors to a message and an exit code."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence
from typing import Any


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
        return int(asyncio.run(run_command(args)) or Exit.OK)
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
    """Run the parsed command and return its `Exit`, or None if all went well. Errors are raised."""
    from chatbot.cli.arguments import COMMANDS

    module, _, name = (COMMANDS[args.command].runs if args.command else "repl.loop:run").partition(":")
    run = getattr(importlib.import_module(f"chatbot.cli.{module}"), name)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    return await run(args)
