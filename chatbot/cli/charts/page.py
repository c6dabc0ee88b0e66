"""An HTML report as one self-contained page: inline SVG, no script, no link, light and dark."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from chatbot.cli.charts.charts import Chart
from chatbot.stores.errors import InvalidValue, StoreFailed
from chatbot.stores.files import FILE_MODE

_MARK = '<meta name="generator" content="chatbot">'
_WIDTH, _HEIGHT, _ROW, _MARGIN, _TOP = 720, 160, 26, 64, 8
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #59636e; --paper: #fff; --line: #d1d9e0; --bar: #0969da }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --dim: #9198a1; --paper: #0d1117; --line: #3d444d; --bar: #4493f8 }
}
body { margin: 2rem auto; max-width: 46rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper) }
h1 { font-size: 1.4rem } h2 { font-size: 1rem; margin: 2rem 0 .5rem }
p, figcaption { color: var(--dim) } figure { margin: 0 }
svg { width: 100%; height: auto; display: block } rect { fill: var(--bar) } line { stroke: var(--line) }
text { fill: var(--dim); font: 12px system-ui, sans-serif }
table { border-collapse: collapse } td, th { padding: .2rem .8rem .2rem 0; text-align: left }
td + td, th + th { text-align: right; font-variant-numeric: tabular-nums }
"""


def page(
    title: str, remarks: Sequence[str], charts: Sequence[Chart], head: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    """Render the page; every text on it is escaped."""
    table = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = [
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(remark)}</p>" for remark in remarks),
        *(f"<figure><h2>{escape(chart.title)}</h2>{_svg(chart)}</figure>" for chart in charts),
        f"<h2>figures</h2><table><tr>{heads}</tr>{table}</table>" if rows else "",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{_MARK}'
        '<meta name="viewport" content="width=device-width"><meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>{''.join(body)}</body></html>\n"
    )


async def write_page(path: Path, text: str) -> None:
    """Write the page, or replace an earlier one. Raises `InvalidValue` for any other existing file."""
    await asyncio.to_thread(_write, path, text)


def _write(path: Path, text: str) -> None:
    try:
        if path.exists() and _MARK not in path.read_bytes()[:1000].decode(errors="replace"):
            raise InvalidValue(f"{path} already exists and is not such a report: choose another name")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StoreFailed(f"cannot write {path}: {error.strerror}") from error


def _svg(chart: Chart) -> str:
    if not sum(chart.values):
        return "<p>none</p>"
    return _columns(chart) if chart.is_of_days else _bars(chart)


def _columns(chart: Chart) -> str:
    most, step = max(chart.values), (_WIDTH - _MARGIN) / len(chart.values)
    parts = []
    for at, (name, value, told) in enumerate(zip(chart.names, chart.values, chart.told, strict=True)):
        height = max(value / most * _HEIGHT, 1.5) if value > 0 else 0
        tip = f"<title>{escape(name)}: {escape(told)}</title>"
        parts.append(
            f'<rect x="{_MARGIN + at * step:.1f}" y="{_TOP + _HEIGHT - height:.1f}" width="{max(step - 2, 0.5):.1f}" '
            f'height="{height:.1f}" rx="1">{tip}</rect>'
        )
    below = _TOP + _HEIGHT + 16
    dates = (
        f'<text x="{_MARGIN}" y="{below}">{escape(chart.names[0])}</text>'
        f'<text x="{_WIDTH}" y="{below}" text-anchor="end">{escape(chart.names[-1])}</text>'
    )
    labels = {chart.tell(most * share): share for share in (0.0, 0.5, 1.0)}
    lines = "".join(_line(share, label) for label, share in labels.items())
    return _framed(chart, below + 6, lines + "".join(parts) + dates)


def _line(share: float, label: str) -> str:
    """Draw a line across the chart at a share of the highest value, with that value beside it."""
    y = _TOP + _HEIGHT * (1 - share)
    return (
        f'<line x1="{_MARGIN}" x2="{_WIDTH}" y1="{y:.0f}" y2="{y:.0f}"/>'
        f'<text x="{_MARGIN - 8}" y="{y + 4:.0f}" text-anchor="end">{escape(label)}</text>'
    )


def _bars(chart: Chart) -> str:
    most, room = max(chart.values), _WIDTH - 260
    parts = []
    for at, (name, value, told) in enumerate(zip(chart.names, chart.values, chart.told, strict=True)):
        y, width = at * _ROW, max(value / most * room, 1.5) if value > 0 else 0
        parts.append(
            f'<text y="{y + 17}">{escape(name[:28])}</text>'
            f'<rect x="180" y="{y + 4}" width="{width:.1f}" height="18" rx="2"/>'
            f'<text x="{186 + width:.1f}" y="{y + 17}">{escape(told)}</text>'
        )
    return _framed(chart, len(chart.values) * _ROW, "".join(parts))


def _framed(chart: Chart, height: float, inner: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(chart.title)}">{inner}</svg>'
