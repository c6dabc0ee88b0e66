"""Values of options, and the parts from which the grammar of the command line is built."""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

_SMALLEST, _LARGEST = sys.float_info.min, sys.float_info.max
_SPAN = re.compile(r"(\d{1,6})\s*([mhdw])")
_MONTH = re.compile(r"(\d{4})(?:-(\d\d))?")
_IN_WORDS = re.compile(r"[^\W\d_]{2}|\d\d?\.\d\d?\.\d{4}|\d\s*[年月日]")
"""Part of a time in words, or of a date in the order of another language."""
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


N = TypeVar("N", int, float)


def number(kind: Callable[[str], N], least: float, most: float, wrong: str) -> Callable[[str], N]:
    """Return a function that parses a number in these bounds; `wrong` is the message for any other."""

    def parsed(text: str) -> N:
        with suppress(ValueError):
            if least <= (found := kind(text)) <= most:
                return found
        raise argparse.ArgumentTypeError(f"{text!r} {wrong}")

    return parsed


usd = number(float, _SMALLEST, _LARGEST, "must be a number above 0")
amount = number(float, 0, _LARGEST, "must be a number from 0")
count = number(int, 0, 10**15, "must be a whole number from 0 to 10^15")
port = number(int, 0, 65_535, "must be a whole number from 0 to 65535")
days = number(float, _SMALLEST, 1e6, "must be a number of days above 0")
whole_days = number(int, 1, 3660, "must be a whole number from 1 to 3660")
share = number(float, 0, 1, "must be a number from 0 to 1")


def past(text: str) -> datetime:
    """Parse a time, or a time ago: `30d`."""
    return _time(text, -1)


def future(text: str) -> datetime | None:
    """Parse a time, or a time from now: `30d`; None for `never`."""
    return None if text == "never" else _time(text, 1)


def pair(text: str) -> tuple[str, Any]:
    """Parse `KEY=VALUE`; a value that is not valid JSON is text."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} must be KEY=VALUE")
    try:
        return key, json.loads(value, parse_constant=str)
    except (ValueError, RecursionError):
        return key, value


def _time(text: str, direction: int) -> datetime:
    """Parse a time: in numbers without a zone it is UTC, like every time that is printed; "today" is local."""
    from chatbot.stores.records import read_time

    try:
        if span := _SPAN.fullmatch(text):
            return datetime.now(UTC) + direction * timedelta(**{_UNITS[span[2]]: int(span[1])})
        if direction < 0 and (first := _first_moment(text)):
            return first
        return read_time(text)
    except (ValueError, OverflowError):
        named = "4w, or a past time, such as May 2025 or last year" if direction < 0 else "or 4w"
        raise argparse.ArgumentTypeError(
            f"invalid date {text!r}: write 2026-01-31, 2026-01-31T12:00Z, 12h, 30d, {named}"
        ) from None


def _first_moment(text: str) -> datetime | None:
    """Return the first moment of a time such as "May 2025", "last week" or "2025"; None for a full date in numbers."""
    if text.casefold() in {"now", "today"}:
        now = datetime.now().astimezone()
        return now if text.casefold() == "now" else datetime.combine(now, time.min).astimezone()
    if month := _MONTH.fullmatch(text):
        return datetime(int(month[1]), int(month[2] or 1), 1, tzinfo=UTC)
    if not _IN_WORDS.search(text):
        return None
    from chatbot.memory.profile_lines import named_time

    return named_time(text, datetime.now().astimezone())


_REMOVALS = ("forget", "purge", "delete", "remove", "revoke")
_MEANT = {
    **dict.fromkeys(("delete", "remove", "rm", "del", "erase", "drop", "hide"), _REMOVALS),
    **dict.fromkeys(("change", "correct", "update", "fix", "set"), ("edit", "set")),
    **dict.fromkeys(("find", "grep", "query", "ask"), ("search", "recall")),
    **dict.fromkeys(("show", "read", "view", "open", "cat", "get"), ("get", "show", "list")),
    **dict.fromkeys(("new", "create", "remember", "save"), ("add", "set")),
    **dict.fromkeys(("undo", "unforget", "recover"), ("restore",)),
}
"""Verbs that people type, and the verbs that they may mean."""
_MEANT_ALONE = frozenset({"list", "ls", "show", "all"})
"""Verbs that people type for the action that a command runs without one."""
PATHS = frozenset({"FILE", "PATH", "PLACE", "FROM", "TO"})
"""Names of values that are paths, or addresses in their place."""


class Parser(argparse.ArgumentParser):
    """Parser that names the nearest command, and reports errors as JSON when `--json` is given."""

    actions: Mapping[str, Any] = MappingProxyType({})
    """The parsers of its actions, by name."""
    _needs_action = False

    def add_subparsers(self, **named: Any) -> Any:
        """Add the actions, and keep them for error messages."""
        added = super().add_subparsers(**named)
        self.actions, self._needs_action = added.choices, bool(added.required)
        return added

    def in_chat(self) -> "Parser":
        """Show `/memory add` for `chatbot memory add` in help and errors; leave options out of the usage line."""
        for child in self.actions.values():
            child.prog = child.prog.replace("chatbot ", "/", 1)
            usage = child._get_formatter()  # noqa: SLF001 - argparse has no other way
            usage.add_usage(None, child._get_positional_actions(), (), "")  # noqa: SLF001 - the same
            child.usage = usage.format_help().strip()
            child.epilog = (child.epilog or "").replace("  chatbot ", "  /")
            child.in_chat()
        return self

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """Report an unknown argument with the usage of its command; `ArgumentParser` shows that of the program."""
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command: Parser = reduce(lambda parser, word: parser.actions.get(word, parser), args or (), self)
            command.error(f"unrecognized arguments: {' '.join(' '.join(unknown).split())}")
        return known

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        if message.endswith("are required: ACTION"):
            message = f"name an action: {', '.join(self.actions)}"
        from chatbot.cli.output import say_error, shortened, wrapped
        from chatbot.stores.errors import InvalidValue

        if "--json" not in sys.argv:
            self.print_usage(sys.stderr)
            self.exit(2, wrapped(f"{self.prog}: error: {shortened(message)}\n", to=sys.stderr))
        say_error(InvalidValue(f"{message}: see {self.prog} --help"), as_json=True)
        self.exit(2)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Refuse an empty path, such as a shell's unset variable: it would name this folder."""
        if not arg_string and action.metavar in PATHS:
            raise argparse.ArgumentError(action, "the path is empty")
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an invalid choice, with what was probably meant, else the choices."""
        if action.choices is None or value in action.choices:
            return
        from chatbot.stores.errors import nearest

        typed, known = str(value), [*map(str, action.choices)]
        near = [f"{self.prog} --help"] if typed == "help" else [each for each in _MEANT.get(typed, ()) if each in known]
        near += [f"{name} {typed}" for name, below in self.actions.items() if typed in below.actions]
        near = near or ([self.prog] if typed in _MEANT_ALONE and not self._needs_action else nearest(typed, known))
        ask = "; `chatbot ask` takes a question" if "ask" in self.actions else ""
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"choose from {', '.join(known)}{ask}"
        raise argparse.ArgumentError(action if action.option_strings else None, f"invalid choice {typed!r}: {hint}")


def every_action(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of the parser and of all parsers below it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            for child in action.choices.values():
                yield from every_action(child)


def flag(parser: argparse._ActionsContainer, *names_and_help: str, action: str = "store_true", **more: Any) -> None:
    """Add an option without a value; its names come first, then its help."""
    *names, words = names_and_help
    parser.add_argument(*names, action=action, help=words, **more)


def option(parser: argparse._ActionsContainer, *names_metavar_and_help: str, **more: Any) -> None:
    """Add an option with a value; its names come first, then the name of the value, then its help."""
    *names, metavar, words = names_metavar_and_help
    parser.add_argument(*names, metavar=metavar, help=words, **more)


def add_action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    summary: str,
    *examples: str,
    agent: bool = True,
) -> argparse.ArgumentParser:
    """Add a command or an action. Examples omit the word `chatbot`, except after a pipe."""
    typed = (each if "| chatbot " in each else f"chatbot {each}" for each in examples)
    parser = actions.add_parser(
        name,
        help=summary,
        description=textwrap.fill(summary, width=78),
        epilog="\n".join(("examples:", *(f"  {each}" for each in typed))),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_place(parser, agent=agent)
    return parser


def add_place(parser: argparse.ArgumentParser, *, agent: bool = True) -> None:
    """Add the options that every command takes, before or after its name; some use `--agent` for something else."""
    place = parser.add_argument_group("configuration")
    option(place, "--config", "FILE", "configuration file", type=Path, default=argparse.SUPPRESS)
    option(place, "-i", "--identity", "NAME", "identity to use", default=argparse.SUPPRESS)
    if agent:
        option(place, "--agent", "ID", "agent to use: [agents.ID]", default=argparse.SUPPRESS)
    place.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
