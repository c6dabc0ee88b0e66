"""What the chat draws: replies as they arrive, notices, the line under a reply. Owns the terminal while a turn runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from chatbot.chat import Event, Notice, Receipt, ToolFinished, ToolStarted
from chatbot.cli.output import printable
from chatbot.cli.usage import cost_text
from chatbot.messages import TextDelta
from stores.records import TranscriptEntry

_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
_LONGEST_SHOWN = 600
_FRAMES_A_SECOND = 12


class Screen:
    """The terminal of one chat."""

    def __init__(self, *, markdown: bool, stream: bool, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._markdown = markdown
        self._stream = stream

    def say(self, text: str, style: str = "") -> None:
        """A line that is not part of the conversation."""
        self.console.print(Text(printable(text), style=style))

    def reply(self) -> LiveReply:
        """Where the next reply is drawn; use it as a context manager, and as the turn's `emit`."""
        return LiveReply(self.console, markdown=self._markdown, stream=self._stream)

    def show_entries(self, entries: Sequence[TranscriptEntry]) -> None:
        """The last lines of a session that goes on."""
        for entry in entries:
            text = printable(entry.content)
            shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} …"
            self.console.print(Text.assemble((f"{entry.role}: ", "bold dim"), (shown, "dim")))

    def show_receipt(self, receipt: Receipt) -> None:
        """One line with what the turn took."""
        usage = [call.usage for call in receipt.calls]
        tokens_in, tokens_out = sum(one.input_tokens for one in usage), sum(one.output_tokens for one in usage)
        cached = sum(one.cached_tokens for one in usage)
        cost = sum(one.cost_usd or 0.0 for one in usage)
        is_known = all(one.cost_usd is not None for one in usage)
        parts = [
            receipt.model,
            f"{tokens_in:,} in{f' ({cached:,} cached)' if cached else ''}",
            f"{tokens_out:,} out",
            cost_text(cost, is_known=is_known),
            f"{receipt.seconds:.1f} s",
        ]
        if receipt.finish not in {"stop", "empty"}:
            parts.append(f"ended by {receipt.finish}")
        self.say(" · ".join(parts), "dim")


class LiveReply:
    """Draws a reply while it arrives. What is complete is printed for good; only its last block is drawn again."""

    def __init__(self, console: Console, *, markdown: bool, stream: bool) -> None:
        self._console = console
        self._markdown = markdown
        self._stream = stream
        self._pending = ""
        self._live = Live(console=console, transient=True, refresh_per_second=_FRAMES_A_SECOND)
        self._status = "thinking"

    def __enter__(self) -> Self:
        self._live.start()
        self._draw()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()
        self._print(self._pending)
        self._pending = ""

    def __call__(self, event: Event) -> None:
        """Take in what the turn reports."""
        if isinstance(event, TextDelta):
            self._pending += event.text
            self._status = ""
            self._settle()
        elif isinstance(event, ToolStarted):
            self._flush()
            self._status = f"running {event.call.name}"
        elif isinstance(event, ToolFinished):
            mark = "failed" if event.result.is_error else "done"
            self._console.print(Text(printable(f"{event.result.call.name}: {mark}"), style="dim"))
            self._status = "thinking"
        elif isinstance(event, Notice):
            self._console.print(Text(printable(event.text), style="yellow"))
        self._draw()

    def _settle(self) -> None:
        """Print the blocks that no later text can change."""
        cut = complete_blocks(self._pending)
        if cut:
            self._print(self._pending[:cut])
            self._pending = self._pending[cut:]

    def _flush(self) -> None:
        self._print(self._pending)
        self._pending = ""

    def _draw(self) -> None:
        spinner = Spinner("dots", Text(f" {self._status}…", style="dim")) if self._status else Text("")
        shown = self._pending if self._stream else ""
        self._live.update(Group(self._render(shown), spinner) if shown else spinner)

    def _print(self, text: str) -> None:
        if text.strip():
            self._console.print(self._render(text.strip("\n")))
            if self._markdown:
                self._console.print()

    def _render(self, text: str) -> RenderableType:
        text = printable(text)
        if not self._markdown:
            return Text(text)
        from rich.markdown import Markdown  # when the first reply comes, not before the first prompt

        return Markdown(text)


def complete_blocks(text: str) -> int:
    """How much of `text` is whole Markdown blocks: up to its last blank line that stands outside of a code fence."""
    end = len(text)
    while (end := text.rfind("\n\n", 0, end)) > 0:
        if len(_FENCE.findall(text, 0, end + 1)) % 2 == 0:
            return end + 2
    return 0
