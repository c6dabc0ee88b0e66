"""The options, the setup and the session that parsed arguments name."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from chatbot.errors import SessionError
from chatbot.options import Options, Setup
from chatbot.stores.errors import StoreError

if TYPE_CHECKING:
    from chatbot.memory import SessionHandle
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


def setup_of(args: argparse.Namespace, **more: Any) -> Setup:
    """Resolve the settings and the identity that the flags name; `more` are further options."""
    return Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent, **more))


async def chosen_session(
    runtime: Runtime, args: argparse.Namespace, *, last: bool = False, dry_run: bool = False
) -> tuple[SessionHandle | None, bool]:
    """Return the session that the flags name, or the `last` one or a new one, and whether it was created now.

    None for an agent that keeps no sessions. A dry run writes no session, and gets the original in place of a fork.
    """
    if args.fork is not None and not dry_run:
        record = await runtime.find(args.fork)
        return await runtime.memory.fork_session(record.id), True
    if named := args.resume or args.fork:
        return await runtime.resume(named), False
    goes_on = args.continue_last or (last and not args.new)
    if goes_on and (session := await runtime.latest_session()) is not None:
        return session, False
    return await runtime.new_session(for_dry_run=dry_run), True


async def discard_empty(runtime: Runtime, session: SessionHandle | None) -> bool:
    """Delete a session in which nothing was said or remembered; return whether it was deleted."""
    if session is None:
        return False
    with suppress(StoreError, SessionError):
        if not await session.transcript_count():
            await runtime.end_session(session)
            if not (await runtime.memory.preview_delete(session.id)).ids:
                await runtime.memory.delete_session(session.id)
                return True
    return False
