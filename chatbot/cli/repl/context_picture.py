"""The budget of a prompt as a picture: one bar of the whole window, and a line for each part."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from chatbot.chat.prompt import PromptBundle
from chatbot.cli.charts import bar, shares_of
from chatbot.cli.output import printable

_STYLES = {
    "persona": "magenta",
    "tools": "yellow",
    "summary": "cyan",
    "window": "blue",
    "memory": "green",
    "attachments": "red",
    "reply": "white",
    "free": "dim",
}
_SIGNS = {"reply": "▒", "free": "░"}
_WIDEST = 72
_FIGURES = 19
"""Width of a line without its bar and name: the tokens and the share."""


class ContextPicture:
    """Contents of `bundle`, the prompt for `asked`."""

    def __init__(self, bundle: PromptBundle, asked: str) -> None:
        self._bundle = bundle
        self._asked = " ".join(printable(asked).split())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lines that fit the terminal."""
        width = min(options.max_width, _WIDEST)
        bundle = self._bundle
        parts = parts_of(bundle)
        window = max(bundle.context_window, sum(parts.values()), 1)
        asked = Text(f"the prompt, if you now said: {self._asked}", "dim")
        asked.truncate(width, overflow="ellipsis")
        yield asked
        whole = Text()
        for (name, _), cells in zip(parts.items(), shares_of(list(parts.values()), width), strict=True):
            whole.append(_SIGNS.get(name, "█") * cells, _STYLES.get(name, ""))
        yield whole
        widest = max(8, *map(len, parts))
        room = max(width - _FIGURES - widest, 4)
        for name, tokens in parts.items():
            line = Text(f"{name:{widest}} ")
            line.append(f"{bar(tokens / window, room):{room}}", _STYLES.get(name, ""))
            yield line.append(f" {tokens:>9,} {tokens / window:>6.1%}")
        yield Text(f"{bundle.tokens:,} tokens are sent, of a window of {bundle.context_window:,}", "dim")
        if bundle.left_out:
            yield Text(f"{bundle.left_out} earlier messages do not fit and are left out", "dim")
        if bundle.dropped:
            yield Text(f"left out for want of room: {', '.join(bundle.dropped)}", "yellow")


def parts_of(bundle: PromptBundle) -> dict[str, int]:
    """Tokens by part, what is kept for the reply and what is free among them."""
    free = max(0, bundle.context_window - bundle.tokens - bundle.reply_tokens)
    return {**bundle.parts, "reply": bundle.reply_tokens, "free": free}
