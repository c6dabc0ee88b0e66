"""Pictures of a terminal: the screen of a `tests.terminal.Terminal` as SVG, or several in turn as an animation.

No script, no font and no link: what a page may show without asking anybody.
"""

from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Any

Row = tuple[tuple[str, str], ...]
"""Runs of text in a line, each with its style."""
_WIDTH, _HEIGHT, _PAD = 8.4, 18, 16
_COLOURS = {
    "black": "d",
    "red": "r",
    "brown": "y",
    "yellow": "y",
    "cyan": "c",
    "green": "g",
    "blue": "b",
    "magenta": "m",
}
_STYLE = """
.t{background:#0d1117}text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d1d9e0;white-space:pre}
.o{font-weight:bold}.d{fill:#7d8590}.r{fill:#ff7b72}.y{fill:#d29922}.c{fill:#39c5cf}.g{fill:#3fb950}.b{fill:#58a6ff}.m{fill:#bc8cff}
"""


@dataclass
class Recording:
    """Screens in turn, each with the seconds for which it is shown."""

    frames: list[tuple[float, tuple[Row, ...]]] = field(default_factory=list)

    def add(self, rows: tuple[Row, ...], seconds: float) -> None:
        """Show these rows for so long; the same rows again are shown longer."""
        if self.frames and self.frames[-1][1] == rows:
            seconds += self.frames.pop()[0]
        self.frames.append((seconds, rows))

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return sum(seconds for seconds, _ in self.frames)


def rows_of(screen: Any) -> tuple[Row, ...]:
    """Rows of a pyte screen and its scrollback, without empty rows at the end."""
    cells = [*screen.history.top, *(screen.buffer[y] for y in range(screen.lines))]
    rows = [_row(line, screen.columns) for line in cells]
    while rows and not rows[-1]:
        rows.pop()
    return tuple(rows)


def picture(rows: tuple[Row, ...], columns: int) -> str:
    """One screen as SVG."""
    known: dict[Row, str] = {}
    lines = _lines(rows, known)
    return _framed(_defs(known) + lines, columns, len(rows), _STYLE)


def animation(recording: Recording, columns: int, lines: int) -> str:
    """All screens as one SVG that shows them in turn, and begins again. Lines that come again are written once."""
    known: dict[Row, str] = {}
    total, begin, groups, rules = recording.seconds, 0.0, [], []
    for number, (seconds, rows) in enumerate(recording.frames):
        first, last = (100 * at / total for at in (begin, begin + seconds))
        rules.append(
            f"@keyframes k{number}{{0%,{max(first - 0.001, 0):.3f}%{{visibility:{'hidden' if number else 'visible'}}}"
            f"{first:.3f}%,{last - 0.002:.3f}%{{visibility:visible}}{last - 0.001:.3f}%,100%{{visibility:hidden}}}}"
            f".k{number}{{visibility:hidden;animation:k{number} {total:.1f}s step-end infinite}}"
        )
        groups.append(f'<g class="k{number}">{_lines(rows[-lines:], known)}</g>')
        begin += seconds
    return _framed(_defs(known) + "".join(groups), columns, lines, _STYLE + "\n".join(rules))


def _row(cells: Any, columns: int) -> Row:
    styled = [(_class(cells[x]), cells[x].data) for x in range(columns)]
    runs = [("".join(text for _, text in group), style) for style, group in groupby(styled, key=lambda each: each[0])]
    while runs and not runs[-1][0].strip():
        runs.pop()
    return tuple((text.rstrip() if run is runs[-1] else text, style) for run in runs for text, style in [run])


def _class(cell: Any) -> str:
    return " ".join(filter(None, ("o" if cell.bold else "", _COLOURS.get(cell.fg.removeprefix("bright"), ""))))


def _lines(rows: tuple[Row, ...], known: dict[Row, str]) -> str:
    parts = []
    for at, row in enumerate(rows):
        if row:
            y = _PAD + (at + 0.8) * _HEIGHT
            name = known.setdefault(row, f"l{len(known)}")
            parts.append(f'<use href="#{name}" x="{_PAD}" y="{y:.0f}"/>')
    return "".join(parts)


def _defs(known: dict[Row, str]) -> str:
    texts = (f'<text id="{name}" xml:space="preserve">{_spans(row)}</text>' for row, name in known.items())
    return f"<defs>{''.join(texts)}</defs>"


def _spans(row: Row) -> str:
    return "".join(f'<tspan class="{style}">{escape(text)}</tspan>' if style else escape(text) for text, style in row)


def _framed(inner: str, columns: int, lines: int, style: str) -> str:
    width, height = columns * _WIDTH + 2 * _PAD, lines * _HEIGHT + 2 * _PAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="a chat in the terminal"><style>{style}</style>'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>{inner}</svg>\n'
    )
