"""`chatbot maintain`: run all maintenance now; otherwise a part of it runs when a session ends."""

from __future__ import annotations

import argparse
from dataclasses import replace

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json, say_table, waiting
from chatbot.memory.maintenance.policy import MaintenanceReport
from chatbot.runtime import Options, Setup
from chatbot.stores.fields import how_many

_PAST = {
    "consolidate": "consolidated",
    "archive": "archived",
    "delete": "deleted",
    "compress": "compressed",
    "summarize": "summarized",
    "erase": "erased",
}


async def run(args: argparse.Namespace) -> Exit:
    """Maintain the identity's memory, or report what that would do. Needs no model."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    policy = setup.policy
    if args.summarize_old is not None:
        policy = replace(policy, summarize_after_days=args.summarize_old)
    async with setup.open_memory(observations=setup.observation_store()) as memory:
        with waiting("maintaining memory"):
            report = await memory.maintain(policy, dry_run=args.dry_run, whole=True)
    if args.json:
        say_json(report.as_json())
    else:
        _show(report)
    return Exit.OK


def _show(report: MaintenanceReport) -> None:
    if report.skipped:
        say("another process is already maintaining this memory")
        return
    rows = [
        (_PAST[deed.kind], str(len(deed.ids)), deed.why, deed.by or "–", " ".join(deed.ids)) for deed in report.deeds
    ]
    if rows:
        say_table(("would be" if report.dry_run else "was", "rows", "why", "into", "which"), rows)
    looked = f"{how_many(report.looked_at, 'row')} looked at in {report.seconds:.2f} s"
    say(looked if rows else f"nothing to do: {looked}")
