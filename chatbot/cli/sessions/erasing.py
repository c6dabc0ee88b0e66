"""Archive and delete sessions, many at once: each has a dry run, and asks for confirmation."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import asdict

from chatbot import operations
from chatbot.cli.bind import select_sessions
from chatbot.cli.memory.command import VerbRun
from chatbot.cli.output import confirm, progress, reporting, say, say_json, say_result, say_sessions, warn
from chatbot.errors import ChatbotError, SessionNotFound
from chatbot.memory import Erasure, ProjectContent, SessionRecord
from chatbot.memory.session_catalog import SESSIONS_AT_ONCE
from chatbot.stores.errors import InvalidValue, StoreError
from chatbot.stores.fields import how_many
from chatbot.stores.records import chunks

Show = Callable[[], None]
_ALREADY_DELETED = "{} was already deleted by another process"
_UNFINISHED = "sessions that were not deleted may have lost their memories: repeat the command to delete them"


async def archive(run: VerbRun) -> None:
    """Archive sessions, or restore them. Nothing is lost, so it asks only about several sessions."""
    memory, args = run.system, run.args
    if args.undo and not args.with_archived:
        args.archived = True  # only these can be restored
    records = [each for each in await select_sessions(memory, args) if (each.archived_at is not None) == args.undo]
    what = "restore" if args.undo else "archive"
    if len(records) > 1:
        _confirm(records, args, f"{what.removesuffix('e')}ing", f"{what} these?")
    done: list[str] = []
    with reporting(done, lambda: _report("restored" if args.undo else "archived", done, args)):
        for record in records:
            try:
                if not args.dry_run:
                    await memory.archive_session(record.id, undo=args.undo)
                done.append(record.id)
            except SessionNotFound:
                warn(_ALREADY_DELETED.format(record.id))


async def prune(run: VerbRun) -> None:
    """Delete expired sessions."""
    memory, args = run.system, run.args
    expired, keeps_memory = await memory.expired_sessions(), run.setup.config.sessions.ttl_keeps_memory
    if not args.dry_run:
        gone = set(await memory.expire_sessions(keep_memory=keeps_memory, at_once=True))
        expired = [record for record in expired if record.id in gone]
    _report("deleted", [record.id for record in expired], args)


async def erase_project(run: VerbRun) -> None:
    """Delete all of a project permanently, once confirmed."""
    args, name = run.args, run.args.project
    content = await operations.erase_project(run.context, name, dry_run=True)
    if not (args.yes or args.dry_run):
        what = _counts(content, name)
        confirm(f"deleting {what}", f"delete {what} permanently?", "nothing was deleted")
    if not args.dry_run:
        content = await operations.erase_project(run.context, name)
        run.say_typed_lines()
    done = "would be deleted permanently" if args.dry_run else "deleted permanently"
    say_result(args, {"project": name, "dry_run": args.dry_run, **asdict(content)}, f"{done}: {_counts(content, name)}")


def _counts(content: ProjectContent, name: str) -> str:
    return f"{how_many(content.sessions, 'session')} and {how_many(content.memories, 'memory')} of {name}"


async def delete(run: VerbRun) -> None:
    """Delete sessions permanently; first report their memories and whether these are deleted too."""
    memory, args = run.system, run.args
    records = await select_sessions(memory, args)
    keep_memory = bool(records) and _keeps_memory(args)
    parts = list(chunks([record.id for record in records], SESSIONS_AT_ONCE))
    previews = [await memory.preview_delete(*part) for part in parts if args.dry_run or not args.yes]
    if args.dry_run:
        _report_deleted([record.id for record in records], previews, args, keep_memory=keep_memory)
        return
    if records:
        question = f"delete {how_many(len(records), 'session')} permanently?"
        _confirm(records, args, "deleting", question, lambda: _warn_of(previews, keep_memory=keep_memory))
    erased, gone = list[Erasure](), list[str]()
    with reporting(gone, lambda: _report_deleted(gone, erased, args, keep_memory=keep_memory)):
        with progress("deleting", waits=True) as advance:
            for part in parts:
                try:
                    with suppress(SessionNotFound):
                        erased.append(await memory.delete_session(*part, keep_memory=keep_memory))
                except (ChatbotError, StoreError):
                    if not keep_memory:  # its memories go first, and may be gone
                        warn(_UNFINISHED)
                    raise
                finally:
                    gone += [each for each in part if not await memory.is_taken(each)]
                if advance and len(parts) > 1:
                    advance(len(gone), len(records))
        for each in set(gone).difference(*(some.sessions for some in erased)):
            warn(_ALREADY_DELETED.format(each))
    if gone and not args.empty:
        run.say_typed_lines()


def _report_deleted(
    gone: Sequence[str], erased: Sequence[Erasure], args: argparse.Namespace, *, keep_memory: bool
) -> None:
    """Report the deleted sessions, what happened to their memories, and what remains elsewhere."""
    memories, facts, forks = _count(erased, keep_memory=keep_memory)
    forks = [fork for fork in forks if fork not in gone]
    _report("deleted", gone, args, memories=memories, facts=facts, keep_memory=keep_memory, forks=forks)
    if args.json or not gone:
        return
    would = "would be " if args.dry_run else ""
    if keep_memory:
        say(f"their memories {'would be kept' if args.dry_run else 'are kept'}")
    elif content := _content(memories, facts):
        say(f"{would}deleted with them: {content}")
    if forks:
        say(f"forks keep a copy of the messages: {', '.join(forks)}")


def _keeps_memory(args: argparse.Namespace) -> bool:
    """Return whether memory is kept. Raises `InvalidValue` without an option or a terminal to ask on."""
    if args.keep_memory is None and not (args.dry_run or args.empty or sys.stdin.isatty()):
        raise InvalidValue(
            "deleting sessions without a terminal needs --yes, and --with-memory to delete their memories too, "
            "or --keep-memory"
        )
    return bool(args.keep_memory)


def _warn_of(previews: Sequence[Erasure], *, keep_memory: bool) -> None:
    memories, facts, forks = _count(previews, keep_memory=False)
    if content := _content(memories, facts):
        what = "kept" if keep_memory else "deleted too; --keep-memory keeps them"
        warn(f"{content} of these sessions will be {what}")
    if forks:
        warn(f"forks keep a copy of the messages and their own memories: {', '.join(forks)}")


def _count(erased: Sequence[Erasure], *, keep_memory: bool) -> tuple[int, int, list[str]]:
    """Return how many memories and facts are erased, 0 if memory is kept, and the forks that remain."""
    rows = {row.id for each in erased for row in each.observations}
    facts = {fact.id for each in erased for fact in each.facts}
    forks = list(dict.fromkeys(fork for each in erased for fork in each.forks))
    return (0, 0, forks) if keep_memory else (len(rows), len(facts), forks)


def _content(memories: int, facts: int) -> str:
    return " and ".join(how_many(number, one) for number, one in ((memories, "memory"), (facts, "fact")) if number)


def _confirm(
    records: Sequence[SessionRecord],
    args: argparse.Namespace,
    doing: str,
    question: str,
    warn_last: Show = lambda: None,
) -> None:
    """Show the sessions and ask, except with `--yes` or `--dry-run`. Raises `InvalidValue` for any answer but yes."""

    def show() -> None:
        say_sessions(records, aside=True)
        warn_last()

    if not (args.yes or args.dry_run):
        confirm(f"{doing} {how_many(len(records), 'session')}", question, "nothing was changed", show)


def _report(what: str, sessions: Sequence[str], args: argparse.Namespace, **more: object) -> None:
    if args.json:
        say_json({what: list(sessions), "dry_run": args.dry_run, **more})
        return
    would = "would be " if args.dry_run else ""
    for each in sessions:
        say(f"{would}{what} {each}")
    if not sessions:
        say("nothing to delete" if what == "deleted" else "nothing to change")
