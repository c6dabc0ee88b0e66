"""What commands print: the only writer of standard output and of complaints. The chat has its own screen."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from chatbot.memory.record import SessionRecord, utc_now


def say(text: str) -> None:
    """A line for the user, or for the next program in the pipe."""
    print(text)  # noqa: T201 - the one place that prints


def say_json(value: Any) -> None:
    """One JSON value; text stays readable, but for what could steer the terminal, which is escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    say(_STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def say_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table that fits the terminal, at the cost of its last column; in a pipe its cells are not cut."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 10_000)
    cells = [[printable(cell) for cell in row] for row in rows]
    *others, _ = zip(head, *cells, strict=True)
    room = console.width - sum(max(map(cell_len, column)) + _GAP for column in others)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(head, 1):
        room_left = max(room, _LEAST_ROOM) if number == len(head) else None
        table.add_column(title, overflow="ellipsis", no_wrap=True, max_width=room_left)
    for row in cells:
        table.add_row(*row)
    console.print(table)


def warn(text: str) -> None:
    """Something that the user should know, beside the output."""
    print(f"chatbot: {printable(text)}", file=sys.stderr)  # noqa: T201 - the one place that prints


def complain(error: Exception, *, as_json: bool = False) -> None:
    """Say on standard error what went wrong."""
    if as_json:
        told = {"error": {"type": type(error).__name__, "message": str(error)}}
        print(json.dumps(told, ensure_ascii=False), file=sys.stderr)  # noqa: T201 - the one place that prints
    else:
        warn(str(error))


def printable(text: str) -> str:
    """Text without characters that control the terminal, turn its direction or are not seen.

    Spaces of every width stay, and so do the joiners that emoji and some scripts are written with.
    """
    return "".join(char if char.isprintable() or _is_harmless(char) else "�" for char in text)


def age(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, in one short word."""
    seconds = ((now or utc_now()) - moment).total_seconds()
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def session_rows(records: Iterable[SessionRecord]) -> list[list[str]]:
    """Sessions for `say_table`: number, id, last use, agent, title."""
    return [
        [str(number), record.id, age(record.used_at), record.agent_id, record.title or "–"]
        for number, record in enumerate(records, 1)
    ]


SESSION_HEAD = ("#", "session", "used", "agent", "title")


_STEERING = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_GAP = 2
_LEAST_ROOM = 8


def _is_harmless(char: str) -> bool:
    return char in "\n\t\u200c\u200d" or unicodedata.category(char) == "Zs"
