"""Output of commands on standard output and error. Tables are made without rich, which takes long to load."""

import argparse
import json
import os
import re
import signal
import sys
import termios
import unicodedata
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from getpass import getpass
from operator import attrgetter
from threading import Timer
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import msgspec

from chatbot.memory.scope import utc_now
from chatbot.stores.errors import InvalidValue
from chatbot.stores.records import SessionRecord

if TYPE_CHECKING:
    from chatbot.memory.session_search import SessionHit

T = TypeVar("T")
_UNSEEN_S = 1.0
"""Seconds of work before a bar is shown."""
_LONGEST_LINE, _ENDS = 600, 200
"""Maximum characters of a line in an error, and those shown of each end of a longer one."""
_BELOW_NAME = " " * len("chatbot: ")
_QUOTED = re.compile(r"`[^`\n]+`")
SHORTEST_ID = 13
"""Length of an id's millisecond part, twelve digits and a dash, which is nearly always unique."""
_SHORTEST_SESSION_ID = 18
"""The same with the next group of digits: an import makes many sessions in one millisecond."""


def say(text: str) -> None:
    """Print a line for the user, or for the next program in the pipe."""
    say_unchanged(printable(text))


def say_unchanged(text: str) -> None:
    """Print a line unchanged."""
    print(text, file=_reserved, flush=_reserved is not None)


_reserved: TextIO | None = None


@contextmanager
def reserved_output() -> Iterator[None]:
    """Keep standard output for the functions of this module: what plug-ins print goes to standard error."""
    global _reserved
    _reserved, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout, _reserved = _reserved, None


def say_part(text: str) -> None:
    """Print a part of a text at once."""
    sys.stdout.write(printable(text))
    sys.stdout.flush()


def say_json(value: Any) -> None:
    """Print one JSON value."""
    say(json_text(value, indent=2))


def say_result(args: argparse.Namespace, value: Any, text: str) -> None:
    """Print a result: with `--json` a value for programs, else a text for people."""
    if args.json:
        say_json(value)
    else:
        say(text)


def say_results(args: argparse.Namespace, values: Sequence[T], show: Callable[[T], None]) -> None:
    """Print results: with `--json` as one list, else one after the other."""
    if args.json:
        say_json(values)
    else:
        for value in values:
            show(value)


def say_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, aside: bool = False) -> None:
    """Print a table: fitted to a terminal, uncut in a pipe; `aside` on standard error, like its question."""
    to = sys.stderr if aside else sys.stdout
    head_line, *lines = table_lines(head, [[printable(cell) for cell in row] for row in rows], _terminal_width(to))
    for line in (f"\x1b[1m{head_line}\x1b[0m" if to.isatty() else head_line, *lines):
        print(line, file=to)


Columns = Mapping[str, Callable[[T], str] | None]
"""The columns of a table: the head of each, and the function that makes its cell of an item; None for its short id."""


def say_columns(items: Sequence[T], columns: Columns[T]) -> None:
    """Print a table of the items."""
    cells = [map(cell, items) if cell else short_ids([*map(attrgetter("id"), items)]) for cell in columns.values()]
    say_table(tuple(columns), [*zip(*cells, strict=True)])


def warn(text: str) -> None:
    """Print a warning on standard error. Further lines are indented: no file name can look like another warning."""
    text = printable(text).replace("\n", f"\n{_BELOW_NAME}")
    print(wrapped(f"chatbot: {text}", _BELOW_NAME, to=sys.stderr), file=sys.stderr)


def say_error(error: Exception, *, as_json: bool = False) -> None:
    """Print an error on standard error."""
    message = error_text(error)
    if as_json:
        body = {"error": {"type": type(error).__name__, "message": message}}
        print(json_text(body), file=sys.stderr)
    else:
        warn(message or type(error).__name__)


def error_text(error: object) -> str:
    """Return the message of an error; that of the operating system without its number, and with the file first."""
    if isinstance(error, OSError) and error.strerror:
        return shortened(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    cause = error.__cause__ if isinstance(error, Exception) else None
    if isinstance(cause, UnicodeEncodeError) and "\udc80" <= cause.object[cause.start] <= "\udcff":
        return shortened(f"{error}; {undecoded('the input', sys.getfilesystemencoding())}")  # an undecoded byte
    return shortened(str(error))


def shortened(text: str) -> str:
    """Return the text of an error with only the ends of a long line, which may repeat a text that was pasted."""
    lines = text.split("\n")
    return "\n".join(each if len(each) <= _LONGEST_LINE else f"{each[:_ENDS]} … {each[-_ENDS:]}" for each in lines)


def printable(text: str) -> str:
    """Return the text with � for characters that control the terminal, change its direction or are invisible.

    Spaces of every width stay, and so do the joiners that emoji and some scripts are written with.
    """
    odd = _control_characters(text)
    return text.translate(dict.fromkeys(map(ord, odd), "�")) if odd else text


def wrapped(text: str, indent: str = "", *, to: TextIO | None = None) -> str:
    """Return the text with its lines broken between words to fit the terminal `to`, by default standard output.

    New lines begin with `indent`. Commands in backticks stay whole, to be copied. Elsewhere the text is unchanged.
    """
    from textwrap import fill

    if (columns := _terminal_width(to or sys.stdout)) is None:
        return text
    text = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", "\0"), text)
    lines = (
        fill(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )
    return "\n".join(lines).replace("\0", " ")


def json_text(value: Any, indent: int | None = None) -> str:
    """Return JSON in which the characters that `printable` replaces are escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=msgspec.to_builtins)
    return text.translate({ord(char): _escape(char) for char in _control_characters(text)})


def _control_characters(text: str) -> set[str]:
    return {char for char in set(text) if not (char.isprintable() or char in _HARMLESS or _is_shown(char))}


_HARMLESS = "\n\t\u200c\u200d"
_NEW = range(0x10000, 0xE0000)
"""Planes of letters and emoji: a terminal may show characters that are newer than this Python."""


def _is_shown(char: str) -> bool:
    kind = unicodedata.category(char)
    return kind == "Zs" or (kind == "Cn" and ord(char) in _NEW)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return "".join(f"\\u{unit}" for unit in units)


def check_can_ask(doing: str, instead: str = "") -> None:
    """Raise `InvalidValue` if `doing`, such as "deleting", has no terminal to ask on; name the command `instead`."""
    if not sys.stdin.isatty():
        remedy = f"a terminal: use {instead}" if instead else "--yes without a terminal to confirm on"
        raise InvalidValue(f"{doing} needs {remedy}")


def confirm(doing: str, question: str, refusal: str, show: Callable[[], None] = lambda: None) -> None:
    """Ask the user to confirm what `show` prints. Raises `InvalidValue` without a terminal; with `refusal` for a no."""
    check_can_ask(doing)
    show()
    if ask_line(f"{question} type yes: ").lower() != "yes":
        raise InvalidValue(refusal)


def ask_yes_or_no(question: str) -> bool:
    """Ask, on standard error, about something harmless: y is a yes, everything else a no."""
    return ask_line(f"{question} [y/N] ").lower() in {"y", "yes"}


def ask_line(question: str) -> str:
    """Ask for a line on standard error; empty at the end of the input. Ctrl-C interrupts."""
    question = f"{wrapped(question, to=sys.stderr)} " if sys.stderr.isatty() else question
    print(question, end="", file=sys.stderr, flush=True)
    line = read_input(sys.stdin.readline)
    if sys.stdin.isatty() and not line.endswith("\n"):  # Ctrl-D leaves the cursor behind the question
        print(file=sys.stderr)
    return line.strip()


def ask_unseen(question: str) -> str:
    """Ask for a secret, which the terminal does not show; without a terminal, read a line. Ctrl-C interrupts."""
    return read_input(partial(getpass, question) if sys.stdin.isatty() else sys.stdin.readline).rstrip("\n")


def read_piped(most: int) -> str:
    """Return standard input, which may have no end: at most one character more than `most`."""
    return read_input(partial(sys.stdin.read, most + 1))


def read_input(read: Callable[[], str]) -> str:
    """Return what `read` reads from standard input. Raises `InvalidValue` if it is not UTF-8. Signals interrupt."""
    try:  # the handlers of the event loop would not end the read
        with on_signal(signal.SIGINT, signal.default_int_handler), on_signal(signal.SIGTERM, _cancel):
            text = read()
        text.encode()
    except EOFError:
        return ""
    except UnicodeError as error:
        place = getattr(error, "start", 0)
        if isinstance(error, UnicodeDecodeError):  # it counts bytes
            place = len(error.object[:place].decode(errors="replace"))
        what = undecoded("standard input", getattr(sys.stdin, "encoding", "utf-8"), f" (character {place + 1})")
        raise InvalidValue(what) from None
    return text


def undecoded(what: str, encoding: str, where: str = "") -> str:
    """Return the error for a text that could not be decoded, with the remedy."""
    is_utf8 = encoding.lower() == "utf-8"
    remedy = "convert it first, e.g. with iconv" if is_utf8 else "set LC_ALL=C.UTF-8 and unset PYTHONUTF8"
    return f"{what} is not valid {encoding.upper()}{where}: {remedy}"


def _cancel(*_: object) -> None:
    raise CancelledError


@contextmanager
def on_signal(number: int, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have a signal, such as SIGINT for Ctrl-C, call `handler` within the block."""
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


@contextmanager
def terminal_without(modes: int) -> Iterator[int | None]:
    """Turn off modes of the terminal, such as echo, within the block; yield its descriptor, None if it is not ours."""
    try:
        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
        is_ours = os.tcgetpgrp(number) == os.getpgrp()  # in the background a change would stop us
    except (OSError, ValueError, AttributeError, termios.error):
        number, before, is_ours = -1, [], False
    if not is_ours:
        yield None
        return
    termios.tcsetattr(number, termios.TCSANOW, [*before[:3], before[3] & ~modes, *before[4:]])
    try:
        yield number
    finally:
        termios.tcsetattr(number, termios.TCSANOW, before)


@contextmanager
def reporting(done: Sequence[object], show: Callable[[], None]) -> Iterator[None]:
    """Show at the end what was done; if a failure ends the block early, only if something was."""
    try:
        yield
    except BaseException:
        if done:
            show()
        raise
    show()


@contextmanager
def progress(title: str, *, waits: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on a terminal; with `waits` from the first report on, for work that usually ends at once."""
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as stack:
        bars = [] if waits else [stack.enter_context(_bar(title))]

        def advance(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(_bar(title)))
            bars[0](done, total)

        yield advance


@contextmanager
def waiting(title: str) -> Iterator[None]:
    """Show a moving bar and the time, on a terminal, for work of unknown length that takes more than a second."""
    if not sys.stderr.isatty():
        yield
        return
    with ExitStack() as stack:
        timer = Timer(_UNSEEN_S, lambda: stack.enter_context(_bar(title)))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int], None]]:
    from rich import console, progress

    words, times = progress.TextColumn("{task.description}", markup=False), progress.TimeElapsedColumn()
    columns = (words, progress.BarColumn(), progress.TaskProgressColumn(), times)
    error, is_shared = console.Console(stderr=True), sys.stdout.isatty()  # on one terminal, text goes above the bar
    with progress.Progress(*columns, console=error, transient=True, redirect_stdout=is_shared) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def say_marked(line: str, ranges: Iterable[tuple[int, int]] = (), *, indent: str = "") -> None:
    """Print a line that wraps between words and is highlighted on a colour terminal."""
    line = printable(line).replace("\n", " ")
    if not sys.stdout.isatty():
        say(f"{indent}{line}")
        return
    from rich import console, padding, text

    marked = text.Text(line)
    for begin, end in ranges:
        marked.stylize("bold yellow", begin, end)
    console.Console(highlight=False, markup=False).print(padding.Padding(marked, (0, 0, 0, len(indent)), expand=False))


def say_hit(hit: "SessionHit", command: str) -> None:
    """Print a session that was found, with its best line and the command that resumes it."""
    record = hit.record
    where = f"entry {hit.number}, {hit.role}" if hit.number else hit.role
    archived = ", archived" if record.archived_at else ""
    say_marked(f"{record.title or 'untitled'} ({age(record.used_at)}{archived})")
    say_marked(f"{where}: {hit.line}", [(a + len(where) + 2, b + len(where) + 2) for a, b in hit.ranges], indent="  ")
    say(f"  {command}\n")


def age(moment: datetime) -> str:
    """Return an age, such as `3 d ago`; `in 3 d` for a time that a wrong clock gave."""
    seconds = (utc_now() - moment).total_seconds()
    for unit, size, least in (("y", 31_557_600, 2), ("d", 86_400, 1), ("h", 3_600, 1), ("min", 60, 1)):
        if abs(seconds) >= least * size:
            distance = f"{int(abs(seconds) // size)} {unit}"
            return f"{distance} ago" if seconds > 0 else f"in {distance}"
    return "just now"


def say_sessions(records: Sequence[SessionRecord], *, numbered: bool = False, aside: bool = False) -> None:
    """Print a table of sessions."""
    ids = short_ids([record.id for record in records], shortest=_SHORTEST_SESSION_ID)
    rows = [
        [str(number), short, age(record.used_at), record.agent_id, _title_and_states(record)]
        for number, (short, record) in enumerate(zip(ids, records, strict=True), 1)
    ]
    head = ("#", "session", "used", "agent", "title")
    begin = 0 if numbered else 1
    say_table(head[begin:], [row[begin:] for row in rows], aside=aside)


def short_ids(ids: Sequence[str], *, shortest: int = SHORTEST_ID) -> list[str]:
    """Shorten ids on a terminal, to the same length, so that they differ; in a pipe they stay whole."""
    if not sys.stdout.isatty():
        return list(ids)
    length = next((size for size in range(shortest, 36) if len({each[:size] for each in ids}) == len(set(ids))), 36)
    return [each[:length] for each in ids]


def _title_and_states(record: SessionRecord) -> str:
    states = (
        (record.project, record.project),
        ("pinned", record.pinned_at),
        ("archived", record.archived_at),
        (record.sensitivity, record.sensitivity != "public"),
    )
    return " ".join([record.title or "–", *(f"({name})" for name, since in states if since)])


def _terminal_width(to: TextIO) -> int | None:
    return (os.get_terminal_size(to.fileno()).columns or 80) if to.isatty() else None


_GAP = "  "
_NARROWEST_LAST = 12
_LEADING = 2


def table_lines(head: Sequence[str], rows: Iterable[Sequence[str]], width: int | None) -> list[str]:
    """Render the head and the rows, a line each. The last column is cut to fit `width` cells; None cuts nothing.

    If there is no room for the last column, the columns before it are dropped, except the first two.
    """
    cells = [[" ".join(cell.split("\n")) for cell in row] for row in (head, *rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        while len(widths) > _LEADING + 1 and sum(widths[:-1]) + len(_GAP) * (len(widths) - 1) + _least(widths) > width:
            cells = [[*row[:-2], row[-1]] for row in cells]
            widths = [*widths[:-2], widths[-1]]
        widths = _narrowed(widths, width - len(_GAP) * (len(widths) - 1))
    return [_GAP.join(map(fitted, row, widths)).rstrip() for row in cells]


def _least(widths: list[int]) -> int:
    return min(widths[-1], _NARROWEST_LAST)


def _narrowed(widths: list[int], room: int) -> list[int]:
    """Return the widths, no more than `room` together: the last column shrinks first, then the widest."""
    *others, last = widths
    narrowed = [*others, min(last, max(room - sum(others), _least(widths)))]
    while sum(narrowed) > room and max(narrowed) > 1:
        narrowed[narrowed.index(max(narrowed))] -= 1
    return narrowed


def fitted(cell: str, width: int) -> str:
    """Return the text in that many cells: padded, or cut with an ellipsis."""
    return _sized(cell, width) if _width(cell) <= width else _sized(cell, width - 1) + "…"


def _width(cell: str) -> int:
    if cell.isascii() and cell.isprintable():
        return len(cell)  # without loading rich
    from rich.cells import cell_len

    return cell_len(cell)


def _sized(cell: str, width: int) -> str:
    while _width(cell) > width:
        cell = cell[: min(width, len(cell) - 1)]
    return cell + " " * (width - _width(cell))
