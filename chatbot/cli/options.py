"""Conversion of parsed arguments to runtime options."""

from __future__ import annotations

import argparse

from chatbot.memory import SessionHandle
from chatbot.options import Options
from chatbot.runtime import Runtime


def options_of(args: argparse.Namespace) -> Options:
    """Return the options that the flags set."""
    return Options(
        config=args.config,
        identity=args.identity,
        agent=args.agent,
        model=args.model,
        persona=args.persona,
        ephemeral=args.ephemeral,
        budget_usd=args.budget_usd,
        project=args.project,
    )


def is_new_session(args: argparse.Namespace) -> bool:
    """Return whether `chosen_session` makes a session of its own for these flags."""
    return args.fork is None and args.resume is None and not args.continue_last


async def chosen_session(runtime: Runtime, args: argparse.Namespace, *, last: bool = False) -> SessionHandle | None:
    """Return the session that the flags name, or a new one, or the `last` one; None for an agent that keeps none."""
    if args.fork is not None:
        record = await runtime.find(args.fork)
        return await runtime.memory.fork_session(record.id)
    if args.resume:
        return await runtime.resume(args.resume)
    if args.continue_last or (last and not args.new):
        return await runtime.resume()
    return await runtime.new_session()
