"""Charts for the terminal: a line of bars by day, and what a prompt is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from chatbot.chat.ledger import Bill, cost_text
from chatbot.chat.prompt import PromptBundle
from chatbot.cli.output import printable

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SPARKS = " ▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Draw a bar of at most `width` cells for a share from 0 to 1; a share above 0 is always visible."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    eighths = max(eighths, 1) if share > 0 and width > 0 else eighths
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def sparks(values: Sequence[float]) -> str:
    """Draw a bar for each value, one beside the other; the largest is the highest, and one above 0 is visible."""
    most = max(values, default=0)
    return "".join(_SPARKS[max(round(value / most * 8), 1) if value > 0 else 0] for value in values)


def binned(values: Sequence[float], most: int) -> list[float]:
    """Sum equal numbers of neighbours to at most `most` values; a partial group comes first."""
    size = -(-len(values) // most) if values else 1
    first = len(values) % size
    head = [sum(values[:first])] if first else []
    return head + [sum(values[at : at + size]) for at in range(first, len(values), size)]


def spending(days: Mapping[date, Bill], width: int) -> list[str]:
    """Draw cost and tokens by day."""
    cost = {day: bill.cost_usd for day, bill in days.items()}
    tokens = {day: bill.tokens for day, bill in days.items()}
    return [*_by_day(cost, width, "cost", cost_text), *_by_day(tokens, width, "tokens", "{:,}".format)]


def _by_day(days: Mapping[date, float], width: int, title: str, written: Callable[[float], str]) -> list[str]:
    """Draw a figure of each day below its title; nothing where there is none."""
    values = list(days.values())
    if not any(values):
        return []
    most = max(days, key=days.__getitem__)
    shown = binned(values, width - 2)
    size = -(-len(values) // len(shown))
    head = f"{title} in {len(values)} days: {written(sum(values))}, most on {most}: {written(days[most])}"
    return [head + (f" (a bar is {size} days)" if size > 1 else ""), f"▕{sparks(shown)}▏", ""]


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
