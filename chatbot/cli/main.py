"""Entry point: parse, and run one command. `--help` loads nothing else."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from chatbot.cli.arguments import build_parser, with_question


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if argv is None:
        return _as_process(sys.argv[1:])
    argv = with_question(argv)
    args = build_parser(argv).parse_args(argv)
    if args.version:
        from importlib.metadata import version

        print(f"chatbot {version('chatbot-runtime')}")  # noqa: T201 - the answer to --version
        return 0
    from chatbot.cli.exits import run

    return run(args)


def _as_process(argv: Sequence[str]) -> int:
    """Turn garbage collection off while loading: it takes a fifth of the start."""
    gc.disable()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # its number would be that of the next file, to which libraries in C would print
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until the end
    try:
        return main(argv)
    except KeyboardInterrupt:  # before there is a loop
        return 130
    finally:
        gc.freeze()
