"""`chatbot hooks`: list hooks with topics, order and recent failures."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from chatbot.cli.exits import Exit
from chatbot.cli.output import say_json, say_marked, say_table
from chatbot.hooks.failure_log import Failure, Failures
from chatbot.hooks.plugins import HOOKS, HookPlan, planned_hooks
from chatbot.runtime import Options, Setup


async def run(args: argparse.Namespace) -> Exit:
    """Print the hooks by topic, in the order in which they are called."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    plans = planned_hooks(setup.config.hooks, beside=setup.settings.plugins_beside)
    failures = {failure.hook: failure for failure in Failures(setup.home).read()}
    described = [_describe(plan, failures.get(plan.name)) for plan in plans]
    if args.json:
        say_json(described)
        return Exit.OK
    rows = [
        [
            hook["name"],
            "on" if hook["enabled"] else "off",
            topic or "(asked by others)",
            str(hook["priority"]),
            hook["source"],
            hook["about"],
        ]
        for topic in sorted({topic for hook in described for topic in hook["topics"] or [""]})
        for hook in described
        if topic in (hook["topics"] or [""])
    ]
    say_table(("hook", "", "topic", "order", "source", "about"), rows)
    for hook in described:
        if failure := hook["last_failure"]:
            say_marked(f"{hook['name']} failed last at {failure['topic']}, {failure['at']}: {failure['message']}")
    return Exit.OK


def _describe(plan: HookPlan, failure: Failure | None) -> dict[str, Any]:
    return {
        "name": plan.name,
        "topics": list(plan.hook.topics),
        "priority": plan.priority,
        "timeout_s": plan.timeout_s,
        "enabled": plan.enabled,
        "background": plan.hook.background,
        "settings": {key: _plain(value) for key, value in plan.all_settings().items()},
        "source": HOOKS.own.get(plan.name) or f"{plan.hook.__module__}:{plan.hook.__qualname__}",
        "last_failure": failure and {"at": failure.at, "topic": failure.topic, "message": failure.message},
        "about": (inspect.getdoc(plan.hook) or "").partition("\n")[0],
    }


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else value
