"""A terminal with `chatbot` running in it: a real process in a real pseudo-terminal, its screen read back."""

import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import pexpect
import pyte

from tests.patience import PATIENCE_S

COLUMNS, LINES = 80, 40
CTRL_C, CTRL_D = "\x03", "\x04"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class _Screen(pyte.HistoryScreen):
    """A screen that shows faint text, which pyte does not know, as bright black."""

    def select_graphic_rendition(self, *attributes: int) -> None:
        shown = [90 if each == 2 and attributes[:1] not in ((38,), (48,)) else each for each in attributes]
        super().select_graphic_rendition(*shown)


class Terminal:
    """A terminal of 80 columns with `chatbot` running in it."""

    def __init__(
        self,
        *arguments: str,
        program: str | None = None,
        command: list[str] | None = None,
        columns: int = COLUMNS,
        **environment: str,
    ) -> None:
        self.raw = b""
        """Everything that was written to the terminal."""
        self.screen = _Screen(columns, LINES, history=1000)
        self._stream = pyte.ByteStream(self.screen)
        self._text: str | None = None
        command = command or [sys.executable, *([program] if program else ["-m", "chatbot", *arguments])]
        self._process = pexpect.spawn(
            command[0],
            command[1:],
            dimensions=(LINES, columns),
            env={name: os.environ[name] for name in os.environ if name != "COLUMNS"}
            | {"TERM": "xterm-256color"}
            | environment,
            timeout=PATIENCE_S,
        )

    @property
    def text(self) -> str:
        """Everything that has scrolled out of the screen, and the screen."""
        if self._text is None:
            past = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
            self._text = "\n".join(line.rstrip() for line in [*past, *self.screen.display]).rstrip()
        return self._text

    def see(self, wanted: str) -> str:
        """Wait until `wanted`, a pattern, is on the screen; the text by then."""
        return self._until(lambda: re.search(wanted, self.text, re.DOTALL) is not None, wanted)

    def prompt(self) -> None:
        self._until(lambda: self.text.splitlines()[-1:] == ["❯"], "an empty prompt")

    def type(self, keys: str, wanted: str = "") -> str:
        """Press keys, and wait to see what they bring."""
        self._process.send(keys)
        return self.see(wanted)

    def say(self, line: str, wanted: str = "") -> str:
        """Wait for the prompt, type a line, press Enter, and wait to see what it brings."""
        self.prompt()
        self._process.send(line)
        self._until(lambda: line[-20:] in self.text.splitlines()[-1] or "\n" in line or line[-20:] in self.text, line)
        return self.type("\r", wanted)

    def leave(self) -> str:
        """Leave with Ctrl-D, and return everything that was shown."""
        self.prompt()
        self._process.send(CTRL_D)
        self.ended()
        return self.text

    @property
    def printed(self) -> str:
        """Everything that was written to the terminal in its own lines, however wide the screen is, without colours."""
        return _ESCAPES.sub("", self.raw.decode()).replace("\r\n", "\n")

    def ended(self, code: int = 0) -> str:
        """Wait for the process to end with that code; everything that it printed."""
        while self._read():
            pass
        self._process.close()
        assert self._process.exitstatus == code, self.text
        return self.printed

    def close(self) -> None:
        self._process.close(force=True)

    def _until(self, is_true: Callable[[], bool], wanted: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while not is_true():
            assert time.monotonic() < deadline, f"never saw {wanted!r} in:\n{self.text}"
            assert self._read() or is_true(), f"ended without {wanted!r}:\n{self.text}"
        return self.text

    def _read(self) -> bool:
        try:
            data: Any = self._process.read_nonblocking(65_536, timeout=1)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        if b"\x1b[6n" in data:  # the program asks where the cursor is, as terminals are asked
            self._process.send(f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R")
        self.raw += data
        self._stream.feed(data)
        self._text = None
        return True
