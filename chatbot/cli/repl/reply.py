"""A reply on the terminal, drawn while it arrives, and a picture of its prompt. Imported late, as it loads rich."""

import re
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import dropwhile
from typing import Self

from markdown_it import MarkdownIt
from rich.bar import Bar
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.live import Live
from rich.live_render import LiveRender
from rich.markdown import Markdown, TableElement
from rich.segment import Segment
from rich.spinner import Spinner
from rich.table import Column, Table
from rich.text import Text

from chatbot.chat.events import Notice, Phase, ToolFinished, ToolStarted, TurnEvent
from chatbot.chat.prompt import PromptBundle
from chatbot.cli.output import printable, terminal_without
from chatbot.messages import TextDelta

_FENCE_OR_BLANK = re.compile(r"^ {0,3}(?:```|~~~)|\n\n+", re.MULTILINE)
_SHOWN_AFTER_S = 3
"""Seconds after which the waiting time is shown."""


class LiveReply:
    """Drawing of a reply while it arrives. Complete blocks are printed once; only the last block is redrawn."""

    def __init__(self, console: Console, *, markdown: bool, stream: bool) -> None:
        self._console = console
        self._markdown = markdown
        self._stream = stream
        self._pending = ""
        self._echo = ExitStack()
        self._still = console.no_color or console.is_dumb_terminal  # a screen reader reads each drawing anew
        self._status = _Status(still=self._still)
        self._running: list[str] = []
        self._live = Live(console=console, transient=True, auto_refresh=not self._still, refresh_per_second=12)
        self._live._live_render = _LiveBlock(self._picture)  # noqa: SLF001 - rich has no public way to do so

    def __enter__(self) -> Self:
        self._start_drawing()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_drawing()

    def __call__(self, event: TurnEvent) -> None:
        """Show an event of the turn."""
        with self._live._lock:  # noqa: SLF001 - a frame that rich draws while another is prepared leaves lines behind
            self._show(event)
        if self._still and not isinstance(event, TextDelta):
            self._live.refresh()

    def _show(self, event: TurnEvent) -> None:
        if isinstance(event, TextDelta):
            self._pending += event.text
            if self._stream:
                self._status.show("")
                self._print_until(complete_blocks(self._pending))
        elif isinstance(event, Phase):
            self._status.show(event.text)
        elif isinstance(event, ToolStarted):
            self._print_until(len(self._pending))
            self._running.append(event.call.name)
            self._show_running()
        elif isinstance(event, ToolFinished):
            is_denied = event.result.asked == "denied"
            mark = "denied" if is_denied else "failed" if event.result.is_error else "done"
            self._console.print(Text(printable(f"{event.result.call.name}: {mark}"), style="dim"))
            if event.result.call.name in self._running:
                self._running.remove(event.result.call.name)
            self._show_running()
        elif isinstance(event, Notice):
            self._console.print(Text(printable(event.text), style="yellow"))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop drawing while another part uses the terminal."""
        self._stop_drawing()
        try:
            yield
        finally:
            self._start_drawing()

    def _start_drawing(self) -> None:
        if self._console.is_terminal:  # echo, also of ^C, would move the drawing; line mode would hold back keys
            self._echo.enter_context(terminal_without(termios.ECHO | termios.ICANON))
            self._console.file.write("\x1b[?2004h")  # a block that is pasted meanwhile stays one
            self._echo.callback(self._console.file.write, "\x1b[?2004l")
        self._live.start()

    def _stop_drawing(self) -> None:
        self._live.stop()
        self._echo.close()
        self._print_until(len(self._pending))

    def _show_running(self) -> None:
        self._status.show(f"running {', '.join(self._running)}" if self._running else "thinking")

    def _print_until(self, end: int) -> None:
        """Print the pending text up to `end`: text that arrives later does not change how it looks."""
        text, self._pending = self._pending[:end], self._pending[end:]
        if text.strip():
            self._console.print(self._render(text.strip("\n")))
            if self._markdown:
                self._console.print()

    def _picture(self) -> RenderableType:
        shown = self._pending if self._stream and not self._still else ""
        return Group(self._render(shown), self._status) if shown else self._status

    def _render(self, text: str) -> RenderableType:
        text = printable(text)
        return _Markdown(text) if self._markdown else Text(text)


class _LiveBlock(LiveRender):
    """The block that is redrawn: its last lines, at most half a screen, as those that scroll out cannot be erased."""

    def __init__(self, picture: Callable[[], RenderableType]) -> None:
        super().__init__("")
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines, most = console.render_lines(self._picture(), options, pad=False), max(options.size.height // 2, 2)
        if len(lines) > most:
            lines = [[Segment("…")], *lines[1 - most :]]
        self._shape = Segment.get_shape(lines)
        for number, line in enumerate(lines):
            yield from [*([Segment.line()] if number else []), *line]


class _Status:
    """What the turn waits for, with a spinner and, after a while, the waiting time."""

    def __init__(self, *, still: bool) -> None:
        self._spinner = Spinner("dots", style="cyan")
        self._still = still
        self._text = "thinking"
        self._since = time.monotonic()

    def show(self, text: str) -> None:
        if text != self._text:
            self._text, self._since = printable(text), time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._text:
            return
        waited = 0 if self._still else int(time.monotonic() - self._since)
        how_long = f" {waited} s · Ctrl-C stops" if waited >= _SHOWN_AFTER_S else ""
        line = Text(f" {self._text}…{how_long}", style="dim")
        line.truncate(options.max_width - 4, overflow="ellipsis")
        self._spinner.update(text=line)
        yield line if self._still else self._spinner


_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
_PARSER.disable(["image", "newline", "reference"])
"""Leaves as text what rich would hide: HTML, addresses of images, definitions of links, and ends of lines."""


class _Table(TableElement):
    """A table that breaks long words, which rich would cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            for column in table.columns:  # type: ignore[union-attr]
                column.overflow = "fold"
            yield table


class _Markdown(Markdown):
    """Markdown that hides nothing, and begins without the empty line that rich puts before a list."""

    elements = Markdown.elements | {"table_open": _Table}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)  # shows where each link leads
        self.parsed = _PARSER.parse(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return dropwhile(lambda part: part == Segment.line(), super().__rich_console__(console, options))


def complete_blocks(text: str) -> int:
    """Return the length of the complete Markdown blocks: up to the last blank line outside a code fence."""
    end, in_code = 0, False
    for found in _FENCE_OR_BLANK.finditer(text):
        if not found[0].startswith("\n"):
            in_code = not in_code
        elif not in_code:
            end = found.end()
    return end


_COLOURS = {
    "persona": "magenta",
    "tools": "yellow",
    "summary": "cyan",
    "window": "blue",
    "memory": "green",
    "attachments": "red",
    "reply": "white",
}
_WIDEST = 72
_LEAST_DRAWN = 1 / 400
"""Smallest share of a part that is drawn: an eighth of a cell of the widest bar."""


def context_picture(bundle: PromptBundle, asked: str) -> RenderableType:
    """Draw `bundle`, the prompt for `asked`: the tokens of each part, of the reply, and the free ones."""
    free = max(0, bundle.context_window - bundle.tokens - bundle.reply_tokens)
    parts = {**bundle.parts, "reply": bundle.reply_tokens, "free": free}
    window = max(bundle.context_window, sum(parts.values()), 1)
    table = Table.grid(Column(no_wrap=True), Column(ratio=1), Column(justify="right"), Column(justify="right"))
    table.padding, table.expand = (0, 1, 0, 0), True
    for name, tokens in parts.items():
        share = tokens / window
        drawn = Bar(1, 0, max(share, _LEAST_DRAWN) if tokens else 0, color=_COLOURS.get(name, "bright_black"))
        table.add_row(name, drawn, f"{tokens:,}", f"{share:.1%}")
    said = " ".join(printable(asked).split())
    notes = [Text(f"{bundle.tokens:,} tokens are sent, of a window of {bundle.context_window:,}", "dim")]
    if bundle.left_out:
        notes.append(Text(f"{bundle.left_out} earlier messages do not fit and are left out", "dim"))
    if bundle.dropped:
        notes.append(Text(f"left out, as the window is full: {', '.join(bundle.dropped)}", "yellow"))
    head = Text(f"the prompt for: {said}", "dim", no_wrap=True, overflow="ellipsis")
    return Constrain(Group(head, table, *notes), _WIDEST)
