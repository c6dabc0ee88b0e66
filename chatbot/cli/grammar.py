"""Parts that all commands share: summary, examples, configuration options. Imports nothing else."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

_WIDTH = 78


_GOES = ("forget", "purge", "delete", "remove", "revoke")
_MEANT = {
    **dict.fromkeys(("delete", "remove", "rm", "del", "erase", "drop", "hide"), _GOES),
    **dict.fromkeys(("change", "update", "fix", "set"), ("edit", "set")),
    **dict.fromkeys(("find", "grep", "query", "ask"), ("search", "recall")),
    **dict.fromkeys(("show", "read", "view", "open", "cat"), ("get", "show", "list")),
    **dict.fromkeys(("new", "create", "remember", "save"), ("add", "set")),
    **dict.fromkeys(("undo", "unforget", "recover"), ("restore",)),
}
"""Verbs that people try, and those that do it here."""
_CHOICE = re.compile(r"(argument \w+: )?invalid choice: '(?P<typed>.*?)' \(choose from (?P<known>.*)\)")


class Parser(argparse.ArgumentParser):
    """Parser that names the nearest command, and reports errors as JSON when `--json` is given."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        message = _CHOICE.sub(_nearest, message)
        if "--json" not in sys.argv:
            super().error(message)
        from chatbot.cli.output import complain
        from chatbot.stores.errors import InvalidValue

        complain(InvalidValue(f"{message}: see {self.prog} --help"), as_json=True)
        self.exit(2)


def _nearest(wrong: re.Match[str]) -> str:
    from difflib import get_close_matches

    known = re.findall(r"[\w.-]+", wrong["known"])
    near = [each for each in _MEANT.get(wrong["typed"], ()) if each in known]
    near = near or get_close_matches(wrong["typed"], known, n=1, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"choose from {', '.join(known)}"
    return f"invalid choice {wrong['typed']!r}: {hint}"


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    *examples: str,
    agent: bool = True,
    also: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Add a command or an action, with other names. Examples omit the word `chatbot`, except after a pipe."""
    parser = actions.add_parser(
        name,
        aliases=also,
        help=summary,
        description=textwrap.fill(summary, _WIDTH),
        epilog="\n".join(("examples:", *(f"  {_as_typed(example)}" for example in examples))),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_place(parser, agent=agent)
    return parser


def _as_typed(example: str) -> str:
    return example if "| chatbot " in example else f"chatbot {example}"


def add_place(parser: argparse.ArgumentParser, *, agent: bool = True) -> None:
    """Add the options that every command takes, before or after its name; some use `--agent` for something else."""
    place = parser.add_argument_group("configuration")
    place.add_argument("--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="configuration file")
    place.add_argument("-i", "--identity", metavar="NAME", default=argparse.SUPPRESS, help="identity to use")
    if agent:
        place.add_argument("--agent", metavar="ID", default=argparse.SUPPRESS, help="agent to use: [agents.ID]")
    place.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
