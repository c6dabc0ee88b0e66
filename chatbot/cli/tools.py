"""`chatbot tools list`: which tools the agent's model would be offered. Writes nothing."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json, say_table, warn
from chatbot.runtime import Options, Runtime
from chatbot.stores.base import ObservationStore
from chatbot.stores.plugins import load


async def run(args: argparse.Namespace) -> Exit:
    """Print the tools in the order in which the model sees them."""
    options = Options(config=args.config, identity=args.identity, agent=args.agent, model=args.model, ephemeral=True)
    async with Runtime(options) as runtime:
        session = await runtime.new_session() if _keeps_observations(runtime) else None
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
    return Exit.OK


def _keeps_observations(runtime: Runtime) -> bool:
    """Return True if a session has the stores that the memory tools need."""
    folder = runtime.setup.settings.plugins_beside
    return any(issubclass(load(name, beside=folder), ObservationStore) for name in runtime.setup.agent_settings.memory)


def _why_none(runtime: Runtime) -> str:
    settings = runtime.setup.agent_settings
    if not runtime.model.supports_tools:
        return f"the model {runtime.model.name} takes no tools"
    if not settings.tools:
        return f"the agent {runtime.agent!r} has no tools: name some in [agents.{runtime.agent}] tools"
    return f"no tools: the stores of the agent {runtime.agent!r} keep no memories, which memory tools need"
