"""Opens the memory of an identity and runs one action on its sessions."""

from __future__ import annotations

import argparse

from chatbot.cli.exits import Exit
from chatbot.cli.memory.command import run_operation
from chatbot.cli.memory.verb_run import VerbRun
from chatbot.cli.output import progress
from chatbot.cli.own_verbs import OF_SESSIONS
from chatbot.errors import ConfigError
from chatbot.operations import OPERATIONS
from chatbot.runtime import Options, Setup


async def run(args: argparse.Namespace) -> Exit:
    """Do one of them. Needs no model."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    own = OF_SESSIONS.get(args.action)
    has_memories = own.memories if own else OPERATIONS[args.operation].memories
    async with setup.open_memory(observations=_store(setup) if has_memories else None) as memory:
        if own:
            await own(VerbRun(args, setup, memory))
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
