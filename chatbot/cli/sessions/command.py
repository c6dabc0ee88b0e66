"""Opens the memory of an identity and runs one action on its sessions."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from chatbot.cli.exits import Exit
from chatbot.cli.sessions import changing, erasing, looking, moving
from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.runtime import Options, Setup


async def run(args: argparse.Namespace) -> Exit:
    """Do one of them. Needs no model."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    async with setup.open_memory(observations=_store(setup)) as memory:
        if args.action == "import":
            await moving.import_(setup, memory, args)
        else:
            await _ACTIONS[args.action](memory, args)
    return Exit.OK


def _store(setup: Setup) -> str | None:
    """Where the agent's observations are; None where it has no store for them."""
    try:
        return setup.observation_store()
    except ConfigError:
        return None


_ACTIONS: dict[str, Callable[[MemorySystem, argparse.Namespace], Awaitable[None]]] = {
    "list": looking.list_,
    "show": looking.show,
    "search": looking.search,
    "compare": looking.compare,
    "rename": changing.rename,
    "fork": changing.fork,
    "export": moving.export,
    "archive": erasing.archive,
    "delete": erasing.delete,
    "prune": erasing.prune,
}
