"""A table as lines of text, no wider than there is room. Pure; starting rich for it would take longer than the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

_GAP = "  "
_LEAST_OF_LAST = 12
_MOST_TELLING = 2
_CUT = "…"


def drawn(head: Sequence[str], rows: Iterable[Sequence[str]], width: int | None) -> list[str]:
    """The head and each row, a line each. In `width` cells, at the cost of the last column first; None: uncut.

    Where the last column would have no room left, those before it go, but for the first two.
    """
    cells = [[" ".join(cell.split("\n")) for cell in row] for row in (head, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        while (
            len(widths) > _MOST_TELLING + 1 and sum(widths[:-1]) + len(_GAP) * (len(widths) - 1) + _room(widths) > width
        ):
            cells = [[*row[:-2], row[-1]] for row in cells]
            widths = [*widths[:-2], widths[-1]]
        widths = _narrowed(widths, width - len(_GAP) * (len(widths) - 1))
    return [_GAP.join(map(_fitted, row, widths)).rstrip() for row in cells]


def _room(widths: list[int]) -> int:
    """What the last column needs."""
    return min(widths[-1], _LEAST_OF_LAST)


def _narrowed(widths: list[int], room: int) -> list[int]:
    """The widths, no more than `room` together: the last column gives way, then whichever is widest."""
    *others, last = widths
    narrowed = [*others, min(last, max(room - sum(others), _room(widths)))]
    while sum(narrowed) > room and max(narrowed) > 1:
        narrowed[narrowed.index(max(narrowed))] -= 1
    return narrowed


def _fitted(cell: str, width: int) -> str:
    return set_cell_size(cell, width) if cell_len(cell) <= width else set_cell_size(cell, width - 1) + _CUT
