"""Measures a memory of growing size and draws `docs/scale.svg`: `uv run python docs/make_scale.py --rows 1000,10000`.

Figures are kept in `docs/scale.tsv`, one line for each size and storage; without `--rows` they are only drawn. Rows are
found only by words, 33 of a Zipf vocabulary each. Times are CPU time of the process, each asked in a process of its
own: a database's own work does not count. `--url` measures PostgreSQL instead of files.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from html import escape
from math import log10
from pathlib import Path
from uuid import uuid4

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "benchmarks")]
from footprint import most_memory_mb  # noqa: E402 - beside this folder
from observations import Texts  # noqa: E402 - the same

from chatbot.memory import MemorySystem  # noqa: E402 - the same
from chatbot.memory.writing import Draft  # noqa: E402 - the same

TABLE = HERE / "scale.tsv"
FIGURES = {
    "first": "open and first search, ms of CPU",
    "search": "search by 10 words, warm, ms of CPU",
    "remember": "remember one row, ms of CPU",
    "memory": "memory of the process, MB",
    "disk": "journal and index, MB",
}
COLORS = {"files": "#0b6e4f", "postgresql": "#2f5fa8"}
_AT_ONCE = 1_000
_ASKED = 30
_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 170, 52, 34


def opened(home: str, cache: str) -> MemorySystem:
    return MemorySystem(home, settings={} if "://" in home else {"observations": {"cache": cache}})


async def fill(home: str, cache: str, rows: int) -> None:
    texts = Texts()
    async with opened(home, cache) as memory:
        notes = memory.memory("scale")
        for begin in range(0, rows, _AT_ONCE):
            count = min(_AT_ONCE, rows - begin)
            await notes.remember_all([Draft(title=texts.some(5), narrative=texts.some(28)) for _ in range(count)])
        await notes.reindex()


async def measure(home: str, cache: str) -> None:
    """Print the figures of one memory, in the order of `FIGURES`; the disk's are those of files."""
    texts = Texts()
    questions = [texts.some(10) for _ in range(_ASKED)]
    begin = time.process_time()
    async with opened(home, cache) as memory:
        notes = memory.memory("scale")
        await notes.search(questions[0], count_use=False)
        first = time.process_time() - begin
        for question in questions:
            await notes.search(question, count_use=False)
        searches = [await _timed(notes.search(question, count_use=False)) for question in questions]
        adds = [await _timed(notes.remember(texts.some(5), narrative=texts.some(28))) for _ in range(_ASKED)]
    times = (first, statistics.median(searches), statistics.median(adds))
    line = [*(f"{1e3 * each:.2f}" for each in times), f"{most_memory_mb():.0f}", *_disk_mb(home, cache)]
    sys.stdout.write("\t".join(line))


def _disk_mb(*places: str) -> list[str]:
    """Return the size of the files, and nothing for a database."""
    if "://" in places[0]:
        return []
    size = sum(each.stat().st_size for place in places for each in Path(place).rglob("*") if each.is_file())
    return [f"{size / 1e6:.1f}"]


async def _timed(work: Awaitable[object]) -> float:
    begin = time.process_time()
    await work
    return time.process_time() - begin


def measured(rows: int, url: str) -> str:
    """Fill a memory and return its line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        home = f"{url}#scale-{uuid4().hex[:8]}" if url else f"{folder}/memory"
        cache = f"{folder}/cache"
        asyncio.run(fill(home, cache, rows))
        command = [sys.executable, __file__, "--in", home, cache]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603 - ours
    return f"{'postgresql' if url else 'files'}\t{rows}\t{found}"


def kept(lines: Sequence[str] = ()) -> dict[tuple[str, int], list[float]]:
    """Add lines to the table and return all figures by storage and rows."""
    known = {tuple(line.split("\t")[:2]): line for line in TABLE.read_text().splitlines()[1:]} if TABLE.exists() else {}
    known |= {tuple(line.split("\t")[:2]): line for line in lines}
    ordered = sorted(known.values(), key=lambda line: (line.split("\t")[0], int(line.split("\t")[1])))
    TABLE.write_text("\n".join(["\t".join(["storage", "rows", *FIGURES]), *ordered]) + "\n")
    split = [line.split("\t") for line in ordered]
    return {(storage, int(rows)): [float(each) for each in values] for storage, rows, *values in split}


def drawn(table: dict[tuple[str, int], list[float]]) -> str:
    """The picture: a plot for each figure, both axes logarithmic, with the figure at each size."""
    size = f'width="{_WIDTH * 2}" height="{_HEIGHT * 3}"'
    style = 'font-family="sans-serif" font-size="11" fill="#333"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}><rect {size} fill="#fff"/>']
    for number, (name, title) in enumerate(FIGURES.items()):
        left, top = _WIDTH * (number % 2) + _LEFT, _HEIGHT * (number // 2) + _TOP
        shown = {key: values[number] for key, values in table.items() if len(values) > number}
        if not shown:
            continue
        lowest, highest = min(shown.values()) / 2, max(shown.values()) * 2
        parts.append(f'<g id="{name}"><text x="{left - 30}" y="{top - 14}" font-weight="bold">{escape(title)}</text>')
        for storage, color in COLORS.items():
            points = [
                (
                    left + (log10(rows) - 3) / 3 * (_WIDTH - _LEFT - 40),
                    top + (1 - log10(value / lowest) / log10(highest / lowest)) * (_HEIGHT - _TOP - 32),
                    value,
                )
                for (kind, rows), value in shown.items()
                if kind == storage
            ]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
            for x, y, value in points:
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
                said = f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
                parts.append(f'<text x="{x - 8:.1f}" y="{y - 7:.1f}" fill="{color}">{said}</text>')
        for power, label in enumerate(("1,000", "10,000", "100,000", "1,000,000")):
            x = left + power / 3 * (_WIDTH - _LEFT - 40) - 14
            parts.append(f'<text x="{x:.1f}" y="{top + _HEIGHT - _TOP - 14}" fill="#777">{label}</text>')
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="sizes to measure, with commas between")
    parser.add_argument("--url", default="", help="a database that `chatbot storage create` has prepared")
    parser.add_argument("--in", nargs=2, dest="inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        asyncio.run(measure(*given.inside))
        return
    for rows in map(int, filter(None, given.rows.split(","))):
        kept([measured(rows, given.url)])
    (HERE / "scale.svg").write_text(drawn(kept()))


if __name__ == "__main__":
    main()
