"""Tables as lines of text that fit a width. Pure; loading rich for them would take longer than the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_GAP = "  "
_LEAST_OF_LAST = 12
_MOST_TELLING = 2
_CUT = "…"


def drawn(head: Sequence[str], rows: Iterable[Sequence[str]], width: int | None) -> list[str]:
    """Render the head and the rows, a line each. The last column is cut to fit `width` cells; None cuts nothing.

    If there is no room for the last column, the columns before it are dropped, except the first two.
    """
    cells = [[" ".join(cell.split("\n")) for cell in row] for row in (head, *rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        while (
            len(widths) > _MOST_TELLING + 1 and sum(widths[:-1]) + len(_GAP) * (len(widths) - 1) + _room(widths) > width
        ):
            cells = [[*row[:-2], row[-1]] for row in cells]
            widths = [*widths[:-2], widths[-1]]
        widths = _narrowed(widths, width - len(_GAP) * (len(widths) - 1))
    return [_GAP.join(map(_fitted, row, widths)).rstrip() for row in cells]


def _room(widths: list[int]) -> int:
    """Least width of the last column."""
    return min(widths[-1], _LEAST_OF_LAST)


def _narrowed(widths: list[int], room: int) -> list[int]:
    """The widths, no more than `room` together: the last column shrinks first, then the widest."""
    *others, last = widths
    narrowed = [*others, min(last, max(room - sum(others), _room(widths)))]
    while sum(narrowed) > room and max(narrowed) > 1:
        narrowed[narrowed.index(max(narrowed))] -= 1
    return narrowed


def _fitted(cell: str, width: int) -> str:
    return _sized(cell, width) if _width(cell) <= width else _sized(cell, width - 1) + _CUT


def _width(cell: str) -> int:
    """Return the number of terminal cells that the text takes."""
    if _is_plain(cell):
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)


def _sized(cell: str, width: int) -> str:
    """The text, filled up or cut to that many cells."""
    if _is_plain(cell):
        return cell[:width].ljust(width)
    from rich.cells import set_cell_size

    return set_cell_size(cell, width)


def _is_plain(cell: str) -> bool:
    """Return True if each character takes one cell, which is checked without loading rich."""
    return cell.isascii() and cell.isprintable()
