"""`chatbot storage`, `maintain`, `backup`, `restore` and `sync`: storage of identities, maintenance and copies."""

import argparse
import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree

from msgspec.structs import replace

from chatbot.cli import output
from chatbot.cli.from_arguments import setup_of
from chatbot.cli.run import Exit
from chatbot.cli.sessions.moving import new_file
from chatbot.config import Config, from_variable
from chatbot.config_layers import Settings
from chatbot.errors import ChatbotError, ConfigError, NotTrusted
from chatbot.hooks.capture import recover_words
from chatbot.identity import FILE_NAME, check_name
from chatbot.memory import MemorySystem
from chatbot.memory.maintenance import MaintenanceReport
from chatbot.memory.scope import utc_now
from chatbot.options import SERVER, Options, Setup, identities_in
from chatbot.server.callers import QUOTAS, TOKENS
from chatbot.stores.errors import InvalidValue, StoreError
from chatbot.stores.fields import how_many
from chatbot.stores.files import locked, make_folder
from chatbot.stores.home import Address, Home, is_address, parse_address, parse_home
from chatbot.stores.plugins import create_tables, open_place
from chatbot.stores.records import expand_home
from chatbot.transfer.backups import BACKUP_NAME, INTERRUPTIONS, backup, copy_storage, restore, verify
from chatbot.transfer.sync import sync
from chatbot.transfer.sync_place import FolderPlace, ServerPlace, SyncReport, counts_text, open_sealed, parse_server
from chatbot.trust import is_loopback


async def run(args: argparse.Namespace) -> Exit:
    """Create the tables, or copy an identity."""
    if args.action == "copy":
        return await _copy(args)
    done = await asyncio.to_thread(create_tables, _address(args), role=args.role)
    lines = ["the tables already exist" if done == "unchanged" else "created the tables"]
    lines += [f"{args.role} may use them"] if args.role else []
    value = {"created": done == "created", "role": args.role or None}
    output.say_result(args, value, "\n".join(lines))
    return Exit.OK


async def _copy(args: argparse.Namespace) -> Exit:
    source, target = (_home(text, args.identity) for text in (args.source, args.target))
    if SERVER in {getattr(each, "identity", "") for each in (source, target)}:
        if not any([await asyncio.to_thread(_copy_document, name, source, target) for name in (TOKENS, QUOTAS)]):
            raise InvalidValue(f"{source} has no tokens and no limits of users: nothing was copied")
        output.say_result(args, {"from": str(source), "to": str(target)}, "copied the tokens and the limits of users")
        return Exit.OK
    with output.progress("copying") as advance:
        made, counts = await copy_storage(source, target, advance)
    value = {"from": str(source), "to": str(target), **counts, "digest": made.digest, "left_out": made.left_out}
    end = f", digest {made.digest}" if made.left_out else f". Both are identical: {made.digest}"
    output.say_result(args, value, f"copied {counts_text(counts)}{end}")
    return _exit_after(made.left_out)


def _copy_document(name: str, source: Home, target: Home) -> bool:
    """Copy a document of the server; return False without one. Raises `ConfigError` if the target has another one."""
    if (data := open_place(source).document(name).read()) is None:
        return False

    def copied(there: bytes | None) -> bytes:
        if there not in {None, data}:
            raise ConfigError(f"{target} has a {name} of its own, which is not replaced")
        return data

    open_place(target).document(name).change(copied)
    return True


def _exit_after(left_out: Sequence[str]) -> Exit:
    for each in left_out:
        output.warn(f"left out: {each}; `chatbot doctor` lists what is damaged")
    return Exit.FAILED if left_out else Exit.OK


def _home(text: str, identity: str | None) -> Home:
    """Return the folder or the address that a text names; an address without an identity gets the given one."""
    text = from_variable(text, "the storage")
    home = parse_home(text)
    return home.of(identity or Config().identity) if isinstance(home, Address) and "#" not in text else home


def _address(args: argparse.Namespace) -> Address:
    if args.url:
        return parse_address(from_variable(args.url, "--url"))
    setup = setup_of(args)
    if not isinstance(setup.home, Address):
        raise ConfigError("memory is stored in files, which need no tables: set url in [storage], or pass --url")
    return setup.home


async def run_maintain(args: argparse.Namespace) -> None:
    """Maintain the identity's memory, or report what would change. Needs no model."""
    setup = setup_of(args)
    policy = setup.config.maintenance
    if args.summarize_old is not None:
        policy = replace(policy, summarize_after_days=args.summarize_old)
    async with setup.open_memory(observations=setup.observation_store()) as memory:
        with output.waiting("maintaining memory"):
            if not args.dry_run:
                await recover_words(memory, setup.config, setup.agent)
                settings = setup.config.sessions
                if settings.ttl_days and (gone := await memory.expire_sessions(keep_memory=settings.ttl_keeps_memory)):
                    output.warn(f"deleted {how_many(len(gone), 'expired session')}")
            report = await memory.maintain(policy, dry_run=args.dry_run, whole=True)
    if args.json:
        output.say_json(report.as_json())
    else:
        _show(report)


def _show(report: MaintenanceReport) -> None:
    if report.skipped:
        output.say("another process is already maintaining this memory")
        return
    rows = [
        (f"{change.kind.removesuffix('e')}ed", str(len(change.ids)), change.why, change.by or "–", " ".join(change.ids))
        for change in report.changes
    ]
    if rows:
        output.say_table(("would be" if report.dry_run else "was", "rows", "why", "into", "which"), rows)
    looked = f"{how_many(report.looked_at, 'row')} checked in {report.seconds:.2f} s"
    output.say(looked if rows else f"nothing to do: {looked}")


async def run_backup(args: argparse.Namespace) -> Exit:
    """Back up an identity to a file."""
    setup = setup_of(args)
    path = args.file or Path(BACKUP_NAME.format(setup.identity.name, utc_now()))
    if str(path) == "-":  # an export goes to standard output then
        raise InvalidValue("a backup is not written to standard output: name a file")
    with output.progress("backing up") as advance, new_file(expand_home(path), force=args.force) as file:
        done = await backup(setup.home, file, name=setup.identity.name, settings=setup.identity.file, progress=advance)
    value = {"file": str(path), "identity": done.name, "digest": done.digest, "left_out": done.left_out}
    what = f"a part of {done.name}" if done.left_out else f"all of {done.name}"
    output.say_result(args, value, f"wrote {path}: {what}, digest {done.digest}. It is not encrypted")
    return _exit_after(done.left_out)


async def run_restore(args: argparse.Namespace) -> Exit:
    """Restore an identity from a file."""
    path = expand_home(args.file)
    if not path.is_file():
        raise InvalidValue(f"backup not found: {path}")
    with path.open("rb") as file, output.progress("restoring") as advance:
        head = await asyncio.to_thread(verify, file, str(path))
        name = args.identity or head.name
        with _new_setup(args.config, name, head.settings) as setup:
            counts = await restore(file, str(path), setup.home, advance)
    value = {"identity": name, "made_at": head.made_at, **counts, "digest": head.digest, "left_out": head.left_out}
    output.say_result(args, value, f"restored {name} as of {head.made_at}: {counts_text(counts)}, digest {head.digest}")
    return _exit_after(head.left_out)


@contextmanager
def _new_setup(config: Path | None, name: str, text: str) -> Iterator[Setup]:
    """Yield the setup of an identity, which is created with this `identity.toml` if it does not exist.

    If the restore fails, everything created is deleted again, except after an error such as a full disk: then it can be
    continued. An `identity.toml` that needs trust stays, to be reviewed and trusted before the next attempt.
    """
    check_name(name)
    settings = Settings.read(config)
    folder = identities_in(settings, settings.combined()) / name
    is_new, has_settings = not os.path.lexists(folder), (folder / FILE_NAME).exists()
    if not has_settings:
        make_folder(folder)
        with locked(folder) as opened:
            opened.replace(FILE_NAME, text.encode())
    try:
        yield Setup.resolve(Options(identity=name, settings=settings))
    except NotTrusted as error:
        raise ConfigError(f"{error}. Then restore again", at=folder / FILE_NAME) from error
    except (ChatbotError, StoreError) as error:
        if is_new and not isinstance(error, INTERRUPTIONS):
            rmtree(folder)
        elif not has_settings:
            (folder / FILE_NAME).unlink()
        raise


async def run_sync(args: argparse.Namespace) -> Exit:
    """Sync with the given place, or with all places in `[sync]`."""
    setup = setup_of(args)
    folder = setup.settings.folder
    places = [each if is_address(each) else str(folder / expand_home(each)) for each in setup.config.sync.places]
    if not (places := [args.place] if args.place else places):
        raise InvalidValue("no place to sync with: name a folder, or set places in [sync]")
    reports: list[SyncReport] = []
    show = partial(_show_sync, is_sealed=args.passphrase)
    with output.reporting(reports, lambda: output.say_results(args, reports, show)):
        async with setup.open_memory(observations=setup.observation_store()) as memory:
            for text in places:
                place = _place(text, setup, memory, asks=args.passphrase)
                with output.progress(f"syncing with {text}", waits=True) as advance:
                    reports.append(await sync(memory, place, now=utc_now, dry_run=args.dry_run, progress=advance))
    return Exit.FAILED if any(report.aside for report in reports) else Exit.OK


def _place(text: str, setup: Setup, memory: MemorySystem, *, asks: bool) -> FolderPlace | ServerPlace:
    if is_address(text):
        servers, server = map(parse_server, filter(is_address, setup.config.sync.places)), parse_server(text)
        if server.scheme == "http" and not is_loopback(server.hostname or ""):
            output.warn(f"{text} is not encrypted: what is synced, and the token, can be read on the way: use https")
        is_listed = server[:2] in {each[:2] for each in servers}  # http is not https
        return ServerPlace(text, from_variable(setup.config.sync.token, "token in [sync]") if is_listed else "")
    ask = partial(output.ask_unseen, f"passphrase of {text} (not shown): ")
    return open_sealed(FolderPlace(expand_home(text)), memory.backend, ask if asks else None)


def _show_sync(report: SyncReport, *, is_sealed: bool) -> None:
    if report.is_new and not is_sealed:
        output.warn(f"{report.place} shows its readers all that is synced: encrypt a new place with --passphrase")
    for counts, said, would in ((report.taken, "received", "would receive"), (report.given, "sent", "would send")):
        if some := {what: count for what, count in counts.items() if count}:
            output.say(f"{would if report.dry_run else said} {counts_text(some)}")
    for session in report.forks:
        output.say(f"a session was continued on both sides: its other part is {session}")
    for each in report.aside:
        output.warn(f"set aside {each.file}: {each.why}")
    if not any([*report.taken.values(), *report.given.values()]):
        output.say(f"{report.place}: nothing new")
