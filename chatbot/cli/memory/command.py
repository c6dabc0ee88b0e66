"""Opens the memory of an identity and runs one action on it."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from chatbot.cli.exits import Exit
from chatbot.setup import Options, Setup

_ACTIONS = {
    "add": ("changing", "add"),
    "edit": ("changing", "edit"),
    "supersede": ("changing", "supersede"),
    "confirm": ("changing", "confirm"),
    "forget": ("changing", "forget"),
    "restore": ("changing", "restore"),
    "purge": ("changing", "purge"),
    "extract": ("extracting", "extract"),
    "search": ("looking", "search"),
    "list": ("looking", "list_"),
    "get": ("looking", "get"),
    "timeline": ("looking", "timeline"),
    "history": ("looking", "history"),
    "stats": ("stats", "stats"),
    "reindex": ("looking", "reindex"),
    "people": ("people", "people"),
    "tasks": ("tasks", "tasks"),
    "facts": ("facts", "facts"),
    "export": ("exporting", "export"),
}
"""Module and function of each; only the one that is asked for is loaded."""


async def run(args: argparse.Namespace) -> Exit:
    """Do one of them. Needs no model, but for `extract`."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent, model=args.model))
    async with setup.open_memory(observations=setup.observation_store()) as memory:
        if args.action == "import":
            from chatbot.cli.sessions.moving import import_

            await import_(setup, memory, args)
        else:
            from chatbot.cli.memory.desk import Desk

            module, name = _ACTIONS[args.action]
            action = getattr(import_module(f"chatbot.cli.memory.{module}"), name)
            await action(Desk.of(memory, setup, args))
        sys.stdout.flush()  # the answer, before caches are written
    return Exit.OK
