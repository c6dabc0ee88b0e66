"""Figures for the terminal: of the last days, and of what a prompt is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from chatbot.chat.ledger import Bill, cost_text
from chatbot.chat.prompt import PromptBundle
from chatbot.cli.output import printable

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int) -> str:
    """Draw a bar of at most `width` cells for a share from 0 to 1; a share above 0 is always visible."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    eighths = max(eighths, 1) if share > 0 and width > 0 else eighths
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def spending(days: Mapping[date, Bill]) -> list[str]:
    """Return cost and tokens of all days, and of the one with the most."""
    cost = {day: bill.cost_usd for day, bill in days.items()}
    tokens = {day: bill.tokens for day, bill in days.items()}
    return [*_over_days(cost, "cost", cost_text), *_over_days(tokens, "tokens", "{:,}".format)]


def _over_days(days: Mapping[date, float], title: str, written: Callable[[float], str]) -> list[str]:
    """Return the sum of a figure as a line; none where there is none."""
    if not any(days.values()):
        return []
    most = max(days, key=days.__getitem__)
    return [f"{title} in {len(days)} days: {written(sum(days.values()))}, most on {most}: {written(days[most])}"]


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
