"""Opens the memory of an identity and runs one action on its sessions."""

from __future__ import annotations

import argparse
from importlib import import_module

from chatbot.cli.exits import Exit
from chatbot.cli.memory.command import run_operation
from chatbot.cli.memory.verb_run import VerbRun
from chatbot.cli.output import progress
from chatbot.errors import ConfigError
from chatbot.operations import OPERATIONS
from chatbot.runtime import Options, Setup

_ACTIONS = {
    "export": ("moving", "export"),
    "import": ("moving", "import_"),
    "archive": ("erasing", "archive"),
    "delete": ("erasing", "delete"),
    "prune": ("erasing", "prune"),
}
"""Module and function of each; only the one that is asked for is loaded."""
_OF_MEMORIES = frozenset({"search", "export", "import"})
"""Actions that also look at what is remembered."""


async def run(args: argparse.Namespace) -> Exit:
    """Do one of them. Needs no model."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    async with setup.open_memory(observations=_store(setup) if args.action in _OF_MEMORIES else None) as memory:
        if args.action in _ACTIONS:
            module, name = _ACTIONS[args.action]
            action = getattr(import_module(f"chatbot.cli.sessions.{module}"), name)
            await (action(setup, memory, args) if args.action == "import" else action(memory, args))
        else:
            with progress("reading sessions", waits=True) as told:
                await run_operation(VerbRun(args, setup, memory, progress=told), OPERATIONS[args.operation])
    return Exit.OK


def _store(setup: Setup) -> str | None:
    """Home of the agent's observations; None if it has no store for them."""
    try:
        return setup.observation_store()
    except ConfigError:
        return None
