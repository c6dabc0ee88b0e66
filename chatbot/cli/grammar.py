"""What every command of the grammar has: a summary, examples, and where it works. Imports nothing but grammar."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import NoReturn

_WIDTH = 78


class Parser(argparse.ArgumentParser):
    """A parser that tells programs what is wrong in JSON, as every command does."""

    def error(self, message: str) -> NoReturn:
        """See `ArgumentParser`."""
        if "--json" not in sys.argv:
            super().error(message)
        from chatbot.cli.output import complain
        from stores.errors import InvalidValue

        complain(InvalidValue(f"{message}: see {self.prog} --help"), as_json=True)
        self.exit(2)


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    *examples: str,
    agent: bool = True,
) -> argparse.ArgumentParser:
    """A command, or what it can do; the examples stand without the word `chatbot`, but for what is behind a pipe."""
    parser = actions.add_parser(
        name,
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
    """Options that every command takes, before or after its name; `--agent` means another thing to some."""
    place = parser.add_argument_group("where")
    place.add_argument("--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="the configuration file")
    place.add_argument("-i", "--identity", metavar="NAME", default=argparse.SUPPRESS, help="who answers")
    if agent:
        place.add_argument(
            "--agent", metavar="ID", default=argparse.SUPPRESS, help="an [agents.ID] of the configuration"
        )
    place.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, for scripts")
