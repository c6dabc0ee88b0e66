"""Entry point: parse and run one command; `--help` loads nothing else. Also `chatbot completion`."""

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from chatbot.cli.arguments import COMMANDS, build_parser, index_of_word
from chatbot.cli.grammar import PATHS, Parser, every_action


def prepare_process() -> None:
    """Prepare to run as a process: without garbage collection while loading, which would take a fifth of the start."""
    gc.disable()
    atexit.register(gc.freeze)  # the exit collects nothing
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # more are not used, and a limit of threads may not allow them
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: the next file would get its descriptor, and what C libraries print
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, TextIOWrapper):  # a terminal that is not UTF-8 gets escapes, as standard error does
        sys.stdout.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    argv = with_question(argv)
    parser = build_parser(argv)
    args = parser.parse_args(argv)
    if args.version:
        from importlib.metadata import version

        print(f"chatbot {version('chatbot-runtime')}")  # noqa: T201 - the answer to --version
        return 0
    if args.command and argv[0].startswith("-"):
        _check_order(parser, argv, args.command)
    from chatbot.cli.run import run

    if args.command or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return run(args)
    try:
        print(end="\x1b[?2004h", flush=True)  # noqa: T201 - a block that is pasted while the chat starts stays one
        return run(args)
    finally:
        print(end="\x1b[?2004l", flush=True)  # noqa: T201


def with_question(argv: Sequence[str]) -> list[str]:
    """Return the command line with `ask` before a question, or before `--`: `chatbot "what is a monad?"` asks it."""
    first = index_of_word(argv)
    if "--" in argv[:first]:
        first = argv.index("--")
    elif first == len(argv) or argv[first] in COMMANDS or " " not in argv[first].strip():
        return [*argv]
    return [*argv[:first], "ask", *argv[first:]]


def _check_order(parser: Parser, argv: Sequence[str], command: str) -> None:
    """End with an error if an option is before the command and has no effect there."""
    first = index_of_word(argv)
    if argv[first:] and argv[first] == command:
        alone = build_parser([])
        given, usual = (vars(alone.parse_args(words)) for words in (argv[:first], []))
        taken = {each.dest for each in every_action(parser.actions[command]) if each.default is argparse.SUPPRESS}
        for option in parser._actions:  # noqa: SLF001 - argparse has no other way
            if option.dest not in taken and given.get(option.dest) != usual.get(option.dest):
                name = option.option_strings[-1]
                parser.error(f"{name} has no effect before {command!r}: see chatbot {command} --help")


async def run_completion(args: argparse.Namespace) -> None:
    """Print a static script for a shell, made from the grammar; using it starts no Python."""
    import shtab

    from chatbot.cli.output import say_result

    parser = build_parser()
    for action in every_action(parser):
        if action.metavar in PATHS:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = str(shtab.complete(parser, args.shell)).rstrip("\n")
    say_result(args, {"shell": args.shell, "script": script}, script)
