"""Opens the memory of an identity and runs one verb on it."""

from __future__ import annotations

import argparse
import sys
from typing import Any, get_args

from chatbot import operation as kinds
from chatbot.cli.bind import given_of
from chatbot.cli.exits import Exit
from chatbot.cli.memory.verb_run import VerbRun, redacting
from chatbot.cli.own_verbs import OF_MEMORY, OF_OPERATIONS
from chatbot.operation import Operation
from chatbot.operations import OPERATIONS
from chatbot.runtime import Options, Setup
from chatbot.stores.access import SENSITIVITIES
from chatbot.words import TaskStatus

_KEPT = (kinds.Line, kinds.Name)
"""Fields that may hold secrets, which are removed."""


async def run(args: argparse.Namespace) -> Exit:
    """Run one of them. Only `extract` needs a model."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent, model=args.model))
    async with setup.open_memory(observations=setup.observation_store()) as memory:
        await run_verb(VerbRun(args, setup, memory))
        sys.stdout.flush()  # the answer, before caches are written
    return Exit.OK


async def run_verb(run: VerbRun) -> None:
    """Run what the command line asks for."""
    if own := OF_MEMORY.get(run.args.action):
        await own(run)
        return
    name = run.args.operation
    if getattr(run.args, "all", False) and name == "list_tasks":
        await run_operation(run, OPERATIONS[name], statuses=get_args(TaskStatus))
    elif name in OF_OPERATIONS:
        await OF_OPERATIONS[name](run)
    else:
        await run_operation(run, OPERATIONS[name])


async def run_operation(run: VerbRun, operation: Operation, **more: Any) -> None:
    """Run an operation with what stands on the command line, and show what it gives."""
    from chatbot.cli.memory.results import show

    given = await given_of(run, operation.at("cli").values(), SENSITIVITIES)
    if any(each.name == "ask" for each in operation.parameters):
        given["ask"] = SENSITIVITIES
    if operation.effect == "adds":
        kept = [each.name for each in operation.parameters if each.item in _KEPT and each.name in given]
        given |= dict(zip(kept, redacting(*(given[name] for name in kept)), strict=True))
    given |= more
    show(run, operation, await operation.run(run.context, "cli", given), given)
