"""Drawing of the chat: notices, the line under a reply, the last lines of a session. Rich is loaded when needed."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from prompt_toolkit import print_formatted_text
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.utils import is_dumb_terminal

from chatbot.chat.ledger import bill_of
from chatbot.cli.output import printable, say_unchanged, wrapped
from chatbot.stores.records import TranscriptEntry

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from chatbot.chat.receipts import Receipt
    from chatbot.cli.repl.reply import LiveReply

_LONGEST_SHOWN = 600


class Screen:
    """The terminal of one chat."""

    def __init__(self, *, markdown: bool, stream: bool) -> None:
        self._markdown = markdown
        self._stream = stream

    def say(self, text: str, style: str = "", *, indent: str = "") -> None:
        """Print a line that is not part of the conversation; if it is too long, further lines begin with `indent`."""
        _print(printable(text), style, indent=indent)

    def draw(self, picture: "RenderableType") -> None:
        """Print a renderable that fits itself into the terminal."""
        self._console.print(picture)

    def reply(self) -> "LiveReply":
        """Return the drawing of the next reply: a context manager, and the turn's `emit`."""
        from chatbot.cli.repl.reply import LiveReply

        return LiveReply(self._console, markdown=self._markdown, stream=self._stream)

    def show_entries(self, entries: Sequence[TranscriptEntry]) -> None:
        """Print the last lines of a session that is resumed."""
        for entry in entries:
            text = printable(entry.content)
            shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} …"
            _print(shown, "dim", f"{entry.role}: ")

    def show_receipt(self, receipt: "Receipt") -> None:
        """Print one line with cost and time of the turn, and the memories in its prompt."""
        from chatbot.chat.receipts import memory_line  # after the first reply, not before the first prompt

        bill = bill_of(receipt.calls)
        parts = [
            receipt.model,
            f"{bill.input_tokens:,} in{f' ({bill.cached_tokens:,} cached)' if bill.cached_tokens else ''}",
            f"{bill.output_tokens:,} out",
            bill.cost,
            f"{receipt.seconds:.1f} s",
        ]
        if receipt.finish not in {"stop", "empty"}:
            parts.append(f"ended by {receipt.finish}")
        self.say(" · ".join(filter(None, [*parts, memory_line(receipt.memory)])), "dim")

    @cached_property
    def _console(self) -> "Console":
        from rich.console import Console

        return Console(highlight=False)


def _print(text: str, style: str = "", head: str = "", indent: str = "") -> None:
    shown = wrapped(f"{head}{text}", indent)
    if is_dumb_terminal():
        return say_unchanged(shown)
    parts = FormattedText([("bold dim", shown[: len(head)]), (style, shown[len(head) :])])
    return print_formatted_text(parts, include_default_pygments_style=False)
