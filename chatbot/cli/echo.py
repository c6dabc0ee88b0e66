"""Terminal echo while something is drawn: typed text is not shown and waits for the next prompt."""

from __future__ import annotations

import os
import sys
import termios


class Echo:
    """Switch for the terminal's echo. Echoed characters, ^C too, would move the drawing.

    Keys wait as they are typed, not in lines that the terminal edits: see `chatbot.cli.repl.typeahead`.
    """

    def __init__(self) -> None:
        self._before: list[int | list[bytes | int]] | None = None

    def off(self) -> None:
        """Turn echo off, if we own a terminal."""
        try:
            terminal = sys.stdin.fileno()
            if os.tcgetpgrp(terminal) != os.getpgrp():
                return  # in the background, where a change would stop us
            self._before = termios.tcgetattr(terminal)
            flags = self._before[3]
            if isinstance(flags, int):
                self._set(terminal, [*self._before[:3], flags & ~(termios.ECHO | termios.ICANON), *self._before[4:]])
        except (OSError, ValueError, AttributeError, termios.error):
            self._before = None  # there is no terminal

    def on(self) -> None:
        """Restore the terminal's former settings."""
        before, self._before = self._before, None
        if before is not None:
            self._set(sys.stdin.fileno(), before)

    @staticmethod
    def _set(terminal: int, attributes: list[int | list[bytes | int]]) -> None:
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
