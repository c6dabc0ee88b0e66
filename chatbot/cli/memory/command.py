"""Opens the memory of an identity and runs one verb on it."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any, get_args

from chatbot import operation as kinds
from chatbot.cli.bind import asked_in, given_of
from chatbot.cli.exits import Exit
from chatbot.cli.memory.verb_run import VerbRun, redacting
from chatbot.operation import Operation
from chatbot.operations import OPERATIONS
from chatbot.runtime import Options, Setup
from chatbot.words import TaskStatus

_SPECIAL = {
    "extract": ("extracting", "extract"),
    "stats": ("stats", "stats"),
    "profile": ("profile", "profile"),
    "reindex": ("changing", "reindex"),
    "export": ("memory_export", "export"),
    **{
        name: ("changing", name)
        for name in (
            *("remember", "change_memory", "confirm_memory", "forget_memory", "restore_memory", "purge_memories"),
            *("list_people", "purge_fact"),
        )
    },
}
"""Verbs that ask, look or read more than their operation does, and those that have none: module and function."""


_KEPT = (kinds.Line, kinds.Name)
"""What may hold secrets, which are taken out of it."""


async def run(args: argparse.Namespace) -> Exit:
    """Run one of them. Only `extract` needs a model."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent, model=args.model))
    async with setup.open_memory(observations=setup.observation_store()) as memory:
        if args.action == "import":
            from chatbot.cli.sessions.moving import import_

            await import_(setup, memory, args)
        else:
            await run_verb(VerbRun(args, setup, memory))
        sys.stdout.flush()  # the answer, before caches are written
    return Exit.OK


async def run_verb(desk: VerbRun) -> None:
    """Run what the command line asks for."""
    name = desk.args.operation
    if getattr(desk.args, "all", False) and name == "list_tasks":
        await run_operation(desk, OPERATIONS[name], statuses=get_args(TaskStatus))
    elif name in _SPECIAL:
        module, function = _SPECIAL[name]
        await getattr(import_module(f"chatbot.cli.memory.{module}"), function)(desk)
    else:
        await run_operation(desk, OPERATIONS[name])


async def run_operation(desk: VerbRun, operation: Operation, **more: Any) -> None:
    """Run an operation with what stands on the command line, and show what it gives."""
    from chatbot.cli.memory.results import show

    given = await given_of(desk, operation.at("cli").values(), asked_in(operation, desk))
    if any(each.name == "ask" for each in operation.parameters):
        given["ask"] = desk.ask
    if operation.effect == "adds":
        kept = [each.name for each in operation.parameters if each.item in _KEPT and each.name in given]
        given |= dict(zip(kept, redacting(*(given[name] for name in kept)), strict=True))
    given |= more
    show(desk, operation, await operation.run(desk.context, "cli", given), given)
