# /// script
# requires-python = ">=3.11"
# ///
"""Measure every goal of speed: `uv run benchmarks/all.py` takes about a quarter of an hour.

Runs the other scripts one after the other, each with its own peers, and prints a row of a table for each goal.
The beginning of a script's name as argument runs only that one. If a script fails, it is named and its rows are empty.
"""

import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Row(NamedTuple):
    """A goal, and the pattern of the measured number in the output: its group, or the group `it` divided by `by`."""

    work: str
    goal: str
    pattern: str


_AGENTS = r"[^\n]*takes ([\d.]+)"


def _mean(name: str) -> str:
    return rf" +mean +(?P<{name}>\d+)"


def _found(rows: str, engine: str) -> str:
    return rf"(?s)\n{rows} rows.*?8-12 words  {engine} +mean[^\n]*?([\d.]+) x"


SCRIPTS: dict[str, tuple[Row, ...]] = {
    "startup.py": (
        Row("`chatbot --help`", "≤ 6 × python -c pass", r"chatbot --help.*?([\d.]+) ×"),
        Row("first prompt, keeping nothing", "≤ 20 × python -c pass", r"prompt, ephemeral.*?([\d.]+) ×"),
        Row("first prompt, a long past", "≤ 20 × python -c pass", r"prompt, long past.*?([\d.]+) ×"),
    ),
    "startup.py --ask": (
        Row("a whole `ask`, nothing remembered", "≤ 600 ms of CPU", r"ask, +0 rows +([\d.]+)"),
        Row("a whole `ask`, 1,000 rows", "≤ 600 ms of CPU", r"ask, +1,000 rows +([\d.]+)"),
        Row("a whole `ask`, 10,000 rows", "≤ 600 ms of CPU", r"ask, +10,000 rows +([\d.]+)"),
    ),
    "footprint.py --rows 10000": (
        Row("first question of a process, 10,000 rows", "≤ 600 ms of CPU", r"later process: first question (\d+)"),
        Row("default recall, 10,000 rows", "≤ 30 ms of CPU", r"later process.*?then ([\d.]+) ms"),
        Row("memory of that process", "≤ 150 MB", r"later process.*?(\d+) MB at most"),
    ),
    "turns.py --rows 10000 --turns 200": (
        Row("recall, prompt and two appends", "≤ 0.5 × LiteLLM's stream", r"two appends.*?([\d.]+) of the stream"),
        Row("the last 50 turns of 200", "≤ 1.05 × the first 50", r"last 50 of[^(]*\(([\d.]+)\)"),
    ),
    "sessions.py --sessions 2000": (
        Row("append one message durably", "≤ 0.8 × Agents SDK", rf"(?s)append one.*?Agents SDK{_AGENTS}"),
        Row("the same", "≤ 2 × bare append", rf"(?s)append one.*?bare append{_AGENTS}"),
        Row("50 appends at once", "≤ 0.2 × fifty bare ones", rf"(?s)50 appends at once.*?50 × bare{_AGENTS}"),
        Row("read the last 20", "≤ 0.3 × Agents SDK", rf"(?s)read the last 20, un.*?Agents SDK{_AGENTS}"),
        Row("create a session, 2,000 there", "≤ 1 × Agents SDK", rf"(?s)create a session.*?Agents SDK{_AGENTS}"),
        Row("the same", "≤ 1 × LangGraph", rf"(?s)create a session.*?LangGraph{_AGENTS}"),
        Row("open one of 2,000, read its last 20", "≤ 0.4 × Agents SDK", rf"(?s)open one of.*?Agents SDK{_AGENTS}"),
        Row("16 processes × 200 appends, longest wait", "≤ 0.3 s", r"longest wait ([\d.]+)"),
    ),
    "observations.py --rows 10000": (
        Row("one remember, durable and found", "≤ 1.2 × FTS5", r"one remember.*?([\d.]+) x fts5"),
        Row("bulk load with the index", "≥ 5000 rows a CPU second", r"bulk load.*?(\d+) with the index"),
        Row("a whole search by words", "≤ 0.5 × FTS5's own query", r"whole search.*?([\d.]+) x fts5"),
        Row(
            "longest search while a batch is indexed",
            "≤ 3 × the median",
            r"(?s)  search +(?P<by>[\d.]+).*?longest search.*?, (?P<it>\d+) ms",
        ),
    ),
    "recall.py --rows 10000,100000 --without Whoosh,hidden": (
        Row("find by 8–12 words, warm, 10,000 rows", "≤ 0.08 × FTS5", _found("10000", "ours")),
        Row("the same, cold", "≤ 0.15 × FTS5", _found("10000", "ours, cold")),
        Row("the same of 100,000, warm", "≤ 0.05 × FTS5", _found("100000", "ours")),
        Row("the same, cold", "≤ 0.08 × FTS5", _found("100000", "ours, cold")),
        Row(
            "the same, warm",
            "≤ 1.5 × bm25s",
            rf"(?s)\n100000 rows.*?8-12 words  ours {_mean('it')}.*?bm25s {_mean('by')}",
        ),
    ),
    "streaming.py": (Row("a streamed chunk through `serve`", "≤ 1.25 × LiteLLM's own", r"ratio +([\d.]+)"),),
    "postgres.py --rows 10000 --rounds 40": (
        Row("PostgreSQL: append", "≤ 1.5 × INSERT and COMMIT", r"(?m)^\| append, [^|]*\| ([\d.]+)"),
        Row("PostgreSQL: search by 2–4 words", "≤ 0.5 × tsvector", r"(?m)^\| search, warm, 2-4 words[^|]*\| ([\d.]+)"),
        Row(
            "PostgreSQL: search by 8–12 words", "≤ 0.5 × tsvector", r"(?m)^\| search, warm, 8-12 words[^|]*\| ([\d.]+)"
        ),
    ),
}


def table_row(row: Row, output: str) -> str:
    """Return a row of the table: the number, whether the goal is met, and the line of the output with the number."""
    output = f"\n{output}\n"
    found = re.search(row.pattern, output)
    if found is None:
        return f"| {row.work} | {row.goal} | not measured | | |"
    named = found.groupdict()
    measured = float(named["it"]) / float(named["by"]) if named else float(found[1])
    sign, bound = row.goal.split()[:2]
    is_met = measured <= float(bound) if sign == "≤" else measured >= float(bound)
    line = output[output.rindex("\n", 0, found.end()) : output.index("\n", found.end())]
    said = " ".join(line.replace("|", " ").split())
    return f"| {row.work} | {row.goal} | {measured:,.4g} | {'met' if is_met else '**missed**'} | {said} |"


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    print("| work | goal | measured | | as the script says it |\n|---|---|---|---|---|", flush=True)
    for command, rows in SCRIPTS.items():
        if not command.startswith(wanted):
            continue
        script, *arguments = command.split()
        run = ["uv", "run", "--quiet", "--refresh-package", "chatbot-runtime", str(HERE / script), *arguments]
        begun, cpu = time.monotonic(), _cpu()
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        for row in rows:
            print(table_row(row, done.stdout), flush=True)
        print(f"{command}: {time.monotonic() - begun:.0f} s, {_cpu() - cpu:.0f} s of CPU", file=sys.stderr)
        if done.returncode:
            print(f"{command}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}", file=sys.stderr)


def _cpu() -> float:
    """Return the CPU seconds of all scripts that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


if __name__ == "__main__":
    main()
