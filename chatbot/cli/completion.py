"""`chatbot completion`: a static script for a shell, made from the grammar. Using it starts no Python."""

from __future__ import annotations

import argparse

from chatbot.cli.arguments import build_parser
from chatbot.cli.grammar import every_action
from chatbot.cli.output import say_result

_FILES = {"FILE", "PATH"}
"""Metavariables of files."""


async def run(args: argparse.Namespace) -> None:
    """Print the script."""
    script = _script(args.shell)
    say_result(args, {"shell": args.shell, "script": script}, script)


def actions_of(command: str) -> list[tuple[str, str]]:
    """Return the actions of a command, each with its help."""
    parser = build_parser([command]).actions[command]
    [actions] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]  # noqa: SLF001
    return [(each.dest, each.help or "") for each in actions._choices_actions]  # noqa: SLF001 - argparse has no other way


def _script(shell: str) -> str:
    import shtab

    parser = build_parser()
    for action in every_action(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell)).rstrip("\n")
