"""Small plots made of characters. Pure: from numbers to text of a given width."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Draw a bar of at most `width` cells for a share from 0 to 1; a share above 0 is always visible."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    eighths = max(eighths, 1) if share > 0 and width > 0 else eighths
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def sparks(values: Sequence[float]) -> str:
    """Draw one character for each value, relative to the largest; a dot means 0."""
    most = max(values, default=0)
    if most <= 0:
        return "·" * len(values)
    return "".join(_SPARKS[min(7, int(value / most * 8))] if value > 0 else "·" for value in values)


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
