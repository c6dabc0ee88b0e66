"""`chatbot stores`, `chatbot tools`, `chatbot hooks`: list plug-ins with their settings, order and recent failures."""

import argparse
import inspect
from dataclasses import asdict
from typing import Any

from msgspec.structs import replace

from chatbot.cli.from_arguments import options_of, setup_of
from chatbot.cli.output import say, say_json, say_marked, say_table, warn
from chatbot.config import without_keys
from chatbot.hooks.hook import HOOKS, Failure, Failures, HookPlan, planned_hooks
from chatbot.options import Setup
from chatbot.runtime import Runtime
from chatbot.stores.base import ObservationStore, contracts_of
from chatbot.stores.errors import StoreError
from chatbot.stores.plugins import STORES, load, settings_of


async def list_stores(args: argparse.Namespace) -> None:
    """Print the installed store plug-ins, and those that the configuration names."""
    setup = setup_of(args)
    used = setup.agent_settings.memory
    described = [_describe_store(name, setup, is_used=name in used) for name in sorted({*STORES.installed(), *used})]
    if args.json:
        say_json(described)
        return
    rows = []
    for each in described:
        settings = ", ".join(f"{key}={value}" for key, value in each["settings"].items())
        is_used = "yes" if each["used"] else "no"
        rows.append([each["name"], is_used, ", ".join(each["keeps"]), settings, each["about"]])
    say_table(("store", "used", "keeps", "settings", "about"), rows)


def _describe_store(name: str, setup: Setup, *, is_used: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"name": name, "used": is_used, "keeps": [], "settings": {}}
    try:
        store = load(name, beside=setup.settings.plugins_beside)
    except StoreError as error:
        return described | {"about": str(error)}
    own = setup.config.memory.get(name, {})
    settings = {key: own.get(key, parameter.default) for key, parameter in settings_of(store).items()}
    about = (inspect.getdoc(store) or "").partition("\n")[0]
    return described | {"keeps": contracts_of(store), "settings": without_keys(settings), "about": about}


async def list_tools(args: argparse.Namespace) -> None:
    """Print the tools in the order in which the model sees them."""
    async with Runtime(replace(options_of(args), ephemeral=True)) as runtime:
        beside, names = runtime.setup.settings.plugins_beside, runtime.setup.agent_settings.memory
        has_memory = any(issubclass(load(each, beside=beside), ObservationStore) for each in names)
        session = await runtime.new_session() if has_memory else None
        toolbox = runtime.tools(session)
        for complaint in await toolbox.complete():
            warn(complaint)
        offered = toolbox.specs
        if args.json:
            tools = [asdict(spec) for spec in offered]
            say_json({"model": runtime.model.name, "supports_tools": runtime.model.supports_tools, "tools": tools})
        elif offered:
            say_table(("tool", "about"), ((spec.name, spec.description.partition("\n")[0]) for spec in offered))
        else:
            say(_why_none(runtime))


def _why_none(runtime: Runtime) -> str:
    settings = runtime.setup.agent_settings
    if not runtime.model.supports_tools:
        return f"the model {runtime.model.name} does not support tools"
    if not settings.tools:
        return f"the agent {runtime.agent!r} has no tools: name some in [agents.{runtime.agent}] tools"
    return f"no tools: the stores of the agent {runtime.agent!r} keep no memories, which memory tools need"


async def list_hooks(args: argparse.Namespace) -> None:
    """Print the hooks by topic, in the order in which they are called."""
    setup = setup_of(args)
    plans = planned_hooks(setup.config.hooks, beside=setup.settings.plugins_beside)
    failures = {failure.hook: failure for failure in Failures(setup.home).read()}
    described = [_describe_hook(plan, failures.get(plan.name)) for plan in plans]
    if args.json:
        say_json(described)
        return
    rows = [
        [
            hook["name"],
            "on" if hook["enabled"] else "off",
            topic or "(called by others)",
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
            say_marked(f"{hook['name']} last failed at {failure['topic']}, {failure['at']}: {failure['message']}")


def _describe_hook(plan: HookPlan, failure: Failure | None) -> dict[str, Any]:
    return {
        "name": plan.name,
        "topics": list(plan.hook.topics),
        "priority": plan.priority,
        "timeout_s": plan.timeout_s,
        "enabled": plan.enabled,
        "background": plan.hook.background,
        "settings": without_keys(plan.all_settings()),
        "source": HOOKS.own.get(plan.name) or f"{plan.hook.__module__}:{plan.hook.__qualname__}",
        "last_failure": failure and {"at": failure.at, "topic": failure.topic, "message": failure.message},
        "about": (inspect.getdoc(plan.hook) or "").partition("\n")[0],
    }
