"""`chatbot memory stats`: how much is remembered, how it came together, and how often it helped."""

from __future__ import annotations

import shutil

from chatbot.chat.activity import Activity, count_remembered, count_turns
from chatbot.cli.charts import chart_lines, hit_rate_line, remembering
from chatbot.cli.memory.verb_run import VerbRun
from chatbot.cli.output import say, say_json, say_table
from chatbot.memory.record import utc_now
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.query import Stats

_HEAD = ("", "what", "how many")


async def stats(run: VerbRun) -> None:
    """Counts of what the caller may see, bytes on the disk, and the last days as plots."""
    counted = await run.memories.stats(ask=SENSITIVITIES)
    activity = Activity.of_last(run.args.days, utc_now())
    await count_remembered(activity, run.memories)
    await count_turns(activity, run.system)
    if run.args.json:
        say_json(_as_json(counted, activity))
    else:
        say_table(_HEAD, _rows(counted))
        _draw(activity)


def _draw(activity: Activity) -> None:
    width = shutil.get_terminal_size().columns
    charts = [chart for chart in remembering(activity) if sum(chart.values)]
    for chart in charts:
        say("\n" + "\n".join(chart_lines(chart, width)))
    say(f"\n{hit_rate_line(activity)}" if charts else "")


def _as_json(counted: Stats, activity: Activity) -> dict[str, object]:
    return {
        "by_status": dict(counted.by_status),
        "by_type": dict(counted.by_type),
        "by_visibility": dict(counted.by_visibility),
        "facts": counted.facts,
        "journal_bytes": counted.journal_bytes,
        "cache_bytes": counted.cache_bytes,
        "hit_rate": activity.hit_rate(),
        "days": [day.as_json() for day in activity.days],
    }


def _rows(counted: Stats) -> list[list[str]]:
    rows = [
        [group, name, f"{number:,}"]
        for group, numbers in (
            ("status", counted.by_status),
            ("type", counted.by_type),
            ("visibility", counted.by_visibility),
        )
        for name, number in sorted(numbers.items(), key=lambda each: (-each[1], each[0]))
    ]
    rows.append(["facts", "", f"{counted.facts:,}"])
    sizes = (("journal", counted.journal_bytes), ("caches", counted.cache_bytes))
    return rows + [["bytes", name, f"{size:,}"] for name, size in sizes if size is not None]
