"""From parsed arguments to the options, setup, session and files that they name."""

import argparse
import os.path
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatbot.errors import SessionError
from chatbot.options import Options, Setup
from chatbot.stores.errors import InvalidValue, StoreError

if TYPE_CHECKING:
    from chatbot.attachments.read import Upload
    from chatbot.memory import SessionHandle
    from chatbot.runtime import Runtime
    from chatbot.stores.records import TranscriptEntry


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


def hints_about_model(runtime: "Runtime", setup: str, memory: str) -> Iterator[str]:
    """Yield what a user should know about the model; `setup` and `memory` are the commands that help."""
    if runtime.uses_embedded_model:
        yield f"this model is tiny and knows little: {setup} finds keys and model servers, and offers better ones"
    if runtime.remembers and not runtime.uses_tools:
        yield f"this model cannot forget, correct or tick off anything when you ask it to: use {memory}"


async def open_session(
    runtime: "Runtime", args: argparse.Namespace, *, last: bool = False, dry_run: bool = False
) -> "tuple[SessionHandle | None, bool]":
    """Open the session that the flags name, or the `last` one, or create one; return it, and whether it was created.

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


async def discard_empty(
    runtime: "Runtime", session: "SessionHandle | None", end: "Sequence[TranscriptEntry]" = ()
) -> bool:
    """Delete a session if it still ends with `end`, and nothing of it is remembered; return whether it was deleted."""
    if session is None:
        return False
    with suppress(StoreError, SessionError):
        if await session.transcript_read_last(1) == [*end]:
            await runtime.end_session(session)
            if not (await runtime.memory.preview_delete(session.id)).ids:
                await runtime.memory.delete_session(session.id)
                return True
    return False


def upload_from_file(name: str) -> "Upload":
    """Read a file that the user named. Raises `InvalidValue` for one that cannot be read, or is too large. Blocking."""
    from chatbot.attachments.read import LARGEST, Upload, check_size

    path = file_named(name)
    if path is None:
        raise InvalidValue(no_file(name))
    try:
        check_size(path.name, path.stat().st_size)
        with path.open("rb") as file:
            return Upload(path.name, file.read(LARGEST + 1))  # it may grow: `read` checks the size again
    except OSError as error:
        raise InvalidValue(f"{str(path)!r} cannot be read: {error.strerror or error}") from error


def file_named(name: str) -> Path | None:
    """Return the path of the file of that name; None if there is none, or the name is invalid."""
    try:
        path = Path(name).expanduser()
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, or the home of an unknown user
        return None


def no_file(name: str) -> str:
    """Return the error about a name for which `file_named` returns None."""
    is_there = os.path.exists(os.path.expanduser(name))  # noqa: PTH110, PTH111 - they raise nothing for an invalid name
    return f"{'not a file' if is_there else 'file not found'}: {name!r:.200}"
