"""Charts for the terminal: bars by day, shares, and what a prompt is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from chatbot.chat.activity import Activity, Day
from chatbot.chat.ledger import cost_text
from chatbot.chat.prompt import PromptBundle
from chatbot.cli.output import printable

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Draw a bar of at most `width` cells for a share from 0 to 1; a share above 0 is always visible."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    eighths = max(eighths, 1) if share > 0 and width > 0 else eighths
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def shares_of(parts: Sequence[int], width: int) -> list[int]:
    """Divide `width` cells in proportion, exactly, with at least one cell for each part above 0.

    If there are more parts than cells, the smallest get none.
    """
    total = sum(parts)
    if total <= 0 or width <= 0:
        return [0] * len(parts)
    cells = [max(1, int(part * width / total)) if part > 0 else 0 for part in parts]
    by_size = sorted(range(len(parts)), key=lambda at: parts[at], reverse=True)
    while sum(cells) < width:
        at = max(by_size, key=lambda at: parts[at] * width / total - cells[at])
        cells[at] += 1
    while sum(cells) > width:
        at = max(by_size, key=lambda at: (cells[at] > 1, cells[at] - parts[at] * width / total, cells[at]))
        cells[at] -= 1
    return cells


def columns(values: Sequence[float], height: int) -> list[str]:
    """Draw a chart of `height` lines with one column for each value; the largest fills it."""
    most = max(values, default=0)
    eighths = [0 if most <= 0 else max(round(value / most * height * 8), 1 if value > 0 else 0) for value in values]
    return ["".join(_part(each - line * 8) for each in eighths) for line in reversed(range(height))]


def binned(values: Sequence[float], most: int) -> list[float]:
    """Sum equal numbers of neighbours to at most `most` values; a partial group comes first."""
    size = -(-len(values) // most) if values else 1
    first = len(values) % size
    head = [sum(values[:first])] if first else []
    return head + [sum(values[at : at + size]) for at in range(first, len(values), size)]


def _part(eighths: int) -> str:
    return " " if eighths <= 0 else _SPARKS[min(eighths, 8) - 1]


_HEIGHT = 5
_MOST_TYPES = 10


def _whole(value: float) -> str:
    return f"{value:,.0f}"


@dataclass(frozen=True, slots=True)
class Chart:
    """Named values: of consecutive days, or of things to compare."""

    title: str
    names: Sequence[str]
    values: Sequence[float]
    told: Sequence[str]
    """The values as text."""
    tell: Callable[[float], str]
    """The text of any value, for the axis."""
    is_of_days: bool = True


def spending(activity: Activity) -> list[Chart]:
    """Return charts of cost, tokens and calls by day."""
    return [
        _by_day(activity, "cost", lambda day: day.cost_usd, cost_text),
        _by_day(activity, "tokens", lambda day: day.input_tokens + day.output_tokens),
        _by_day(activity, "model calls", lambda day: day.calls),
    ]


def remembering(activity: Activity) -> list[Chart]:
    """Return charts of new memories by day and by type, turns, and injected memories."""
    types: Counter[str] = sum((day.remembered for day in activity.days), Counter())
    most = types.most_common(_MOST_TYPES)
    return [
        _by_day(activity, "new memories", lambda day: day.remembered.total()),
        Chart(
            "new memories by type",
            [name for name, _ in most],
            [count for _, count in most],
            [f"{count:,}" for _, count in most],
            _whole,
            is_of_days=False,
        ),
        _by_day(activity, "turns", lambda day: day.turns),
        _by_day(activity, "memories injected into prompts", lambda day: day.injected),
    ]


def chart_lines(chart: Chart, width: int) -> list[str]:
    """Render the chart as lines of at most `width` cells; a chart without values is its title alone."""
    total = sum(chart.values)
    if not total:
        return [f"{chart.title}: none"]
    if not chart.is_of_days:
        longest = min(max(map(len, chart.names)), 24)
        room = max(width - longest - max(map(len, chart.told)) - 2, 4)
        most = max(chart.values)
        rows = zip(chart.names, chart.values, chart.told, strict=True)
        return [
            chart.title,
            *(f"{name[:24]:{longest}} {bar(value / most, room):{room}} {told}" for name, value, told in rows),
        ]
    return _columns(chart, width)


def _columns(chart: Chart, width: int) -> list[str]:
    """Draw columns between two axes: values from 0 to the highest column, and the first and the last day."""
    room = max(width - len(chart.tell(sum(chart.values))) - 3, 8)
    values = binned(chart.values, room)
    labels = [chart.tell(max(values)), *[""] * (_HEIGHT - 1)]
    margin = max(map(len, labels))
    days = -(-len(chart.values) // len(values))
    at = max(range(len(chart.values)), key=chart.values.__getitem__)
    head = f"{chart.title}: highest on {chart.names[at]}, {chart.told[at]}"
    rows = zip(labels, columns(values, _HEIGHT), strict=True)
    last = chart.names[-1]
    dates = f"{chart.names[0]}{last:>{max(len(values) - len(chart.names[0]), len(last) + 1)}}"
    return [
        head + (f" (a column is {days} days)" if days > 1 else ""),
        *(f"{label:>{margin}} {'┤' if label else '│'}{line}".rstrip() for label, line in rows),
        f"{'0':>{margin}} └{'─' * len(values)}",
        f"{'':{margin}}  {dates}"[:width],
    ]


def hit_rate_line(activity: Activity) -> str:
    """Return the share of turns that got a memory, as one line."""
    rate = activity.hit_rate()
    if rate is None:
        return "hit rate: no turn searched memory"
    recalls, hits = sum(day.recalls for day in activity.days), sum(day.hits for day in activity.days)
    considered, injected = sum(day.considered for day in activity.days), sum(day.injected for day in activity.days)
    return (
        f"hit rate: {rate:.0%} ({hits:,} of {recalls:,} turns got a memory; "
        f"{injected:,} of {considered:,} considered were injected)"
    )


def _by_day(
    activity: Activity,
    title: str,
    figure: Callable[[Day], float],
    tell: Callable[[float], str] = _whole,
) -> Chart:
    values = [figure(day) for day in activity.days]
    names = [day.date.isoformat() for day in activity.days]
    return Chart(title, names, values, [tell(value) for value in values], tell)


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
