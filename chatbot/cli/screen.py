"""Drawing of the chat: notices, the line under a reply, the last lines of a session. `reply` draws replies.

Rich is loaded when it is needed: the first prompt waits for everything drawn above it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from prompt_toolkit.application.current import get_app_session
from prompt_toolkit.styles import DEFAULT_ATTRS
from prompt_toolkit.utils import get_cwidth

from chatbot.chat.ledger import cost_text
from chatbot.cli.output import printable
from chatbot.stores.records import TranscriptEntry

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from chatbot.chat.receipts import Receipt
    from chatbot.cli.reply import LiveReply

_LONGEST_SHOWN = 600
_STYLES = {
    "": DEFAULT_ATTRS,
    "bold": DEFAULT_ATTRS._replace(bold=True),
    "bold dim": DEFAULT_ATTRS._replace(bold=True, dim=True),
    "dim": DEFAULT_ATTRS._replace(dim=True),
    "red": DEFAULT_ATTRS._replace(color="ansired"),
    "yellow": DEFAULT_ATTRS._replace(color="ansiyellow"),
}
"""The styles that are used here, as prompt_toolkit has them: it is loaded anyway, and rich takes a tenth of a start."""


class Screen:
    """The terminal of one chat."""

    def __init__(self, *, markdown: bool, stream: bool) -> None:
        self._markdown = markdown
        self._stream = stream

    def say(self, text: str, style: str = "") -> None:
        """A line that is not part of the conversation."""
        self._print((printable(text), style))

    def draw(self, picture: RenderableType) -> None:
        """Something that fits itself into the terminal."""
        self._console.print(picture)

    def reply(self) -> LiveReply:
        """Return the drawing of the next reply: a context manager, and the turn's `emit`."""
        from chatbot.cli.reply import LiveReply

        return LiveReply(self._console, markdown=self._markdown, stream=self._stream)

    def show_entries(self, entries: Sequence[TranscriptEntry]) -> None:
        """The last lines of a session that goes on."""
        for entry in entries:
            text = printable(entry.content)
            shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} …"
            self._print((f"{entry.role}: ", "bold dim"), (shown, "dim"))

    def show_receipt(self, receipt: Receipt) -> None:
        """Print one line with cost and time of the turn, and the memories in its prompt."""
        from chatbot.chat.receipts import memory_line  # after the first reply, not before the first prompt

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
        self.say(" · ".join(filter(None, [*parts, memory_line(receipt.memory)])), "dim")

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(highlight=False)

    def _print(self, *parts: tuple[str, str]) -> None:
        """Print styled texts on lines of their own, broken between words."""
        output = get_app_session().output
        text = "".join(each for each, _ in parts)
        width = shutil.get_terminal_size().columns
        begins = set(line_breaks(text, width)) if max(map(get_cwidth, text.split("\n"))) > width else set()
        at = 0
        for each, style in parts:
            places = [0, *(place - at for place in sorted(begins) if at < place < at + len(each)), len(each)]
            pieces = [each[begin:end] for begin, end in pairwise(places)]
            output.set_attributes(_STYLES[style], output.get_default_color_depth())
            output.write(("\n" if at in begins else "") + "\n".join([*map(str.rstrip, pieces[:-1]), pieces[-1]]))
            output.reset_attributes()
            at += len(each)
        output.write("\n")
        output.flush()


def line_breaks(text: str, width: int) -> Iterator[int]:
    """Yield where a line begins that is broken to fit `width` cells: between words, or inside one that is longer."""
    used, begun = 0, False
    for word in _WORD.finditer(text):
        if word[0] == "\n":
            used, begun = 0, False
            continue
        cells = get_cwidth(word[0].rstrip())
        if begun and used + cells > width:
            yield word.start()
            used = 0
        begun = begun or bool(cells)
        if used + cells <= width:
            used += get_cwidth(word[0])
            continue
        for place, char in enumerate(word[0].rstrip(), word.start()):
            if used + get_cwidth(char) > width:
                yield place
                used = 0
            used += get_cwidth(char)
        used += len(word[0]) - len(word[0].rstrip())


_WORD = re.compile(r"\n|\S+[^\S\n]*|[^\S\n]+")
