"""Keys typed while nothing reads them: during the start and while a reply is drawn. Each line is sent on its own.

The terminal translates Enter into a line feed unless raw mode is on, and a line feed means "new line" at the prompt.
So what waits in the terminal is read before the prompt does, and its line feeds become Enter again.
"""

from __future__ import annotations

import os
import select
import sys
import termios

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress

_AT_ONCE = 65_536


class Typeahead:
    """Keys that wait for the main prompt. Other questions must not be answered by them."""

    def __init__(self) -> None:
        self._waiting: list[KeyPress] = []

    def gather(self, terminal: Input) -> None:
        """Take over unread keys, so that they do not answer a question asked now."""
        self._waiting += get_typeahead(terminal)
        self._waiting += _keys_in(_unread())

    def release(self, terminal: Input) -> None:
        """Give all waiting keys to the next prompt, in the order in which they were typed."""
        self.gather(terminal)
        store_typeahead(terminal, self._waiting)
        self._waiting = []


def _keys_in(data: bytes) -> list[KeyPress]:
    found: list[KeyPress] = []
    parser = Vt100Parser(found.append)
    parser.feed_and_flush(data.decode(errors="replace").replace("\r\n", "\r").replace("\n", "\r"))
    return found


def _unread() -> bytes:
    """Read what waits in the terminal, without waiting for more."""
    try:
        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (OSError, ValueError, AttributeError, termios.error):
        return b""
    if os.tcgetpgrp(number) != os.getpgrp():
        return b""
    flags = before[3]
    termios.tcsetattr(number, termios.TCSANOW, [*before[:3], flags & ~termios.ICANON, *before[4:]])
    try:
        return os.read(number, _AT_ONCE) if select.select([number], [], [], 0)[0] else b""
    finally:
        termios.tcsetattr(number, termios.TCSANOW, before)
