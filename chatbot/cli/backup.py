"""`chatbot backup`, `restore` and `sync`: everything of an identity in one file, or on several machines."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict
from getpass import getpass
from pathlib import Path

from chatbot.cli.exits import Exit
from chatbot.cli.output import printable, progress, say, say_json, warn
from chatbot.cli.sessions.moving import new_file
from chatbot.config import Settings
from chatbot.errors import ConfigError
from chatbot.identity import FILE_NAME, check_name
from chatbot.memory.scope import utc_now
from chatbot.redaction import without_secrets
from chatbot.runtime import Options, Setup
from chatbot.stores.errors import InvalidValue
from chatbot.stores.fields import how_many
from chatbot.stores.files import make_folder
from chatbot.stores.home import is_address
from chatbot.stores.records import format_time
from chatbot.transfer.storage_copy import backup, restore, verified
from chatbot.transfer.sync import sync
from chatbot.transfer.sync_place import FolderPlace, sealed
from chatbot.transfer.sync_sessions import SyncReport


async def run(args: argparse.Namespace) -> Exit:
    """Run the command that was asked for."""
    runs = {"backup": _backup, "restore": _restore, "sync": _sync}
    return await runs[args.command](args)


async def _backup(args: argparse.Namespace) -> Exit:
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    name, now = setup.identity.name, utc_now()
    path = args.file or Path(f"{name}-{now:%Y-%m-%d}.chatbot")
    settings = setup.identity.file.read_text(encoding="utf-8") if setup.identity.file.is_file() else ""
    with progress("backing up") as tell, new_file(path.expanduser(), force=args.force) as file:
        told = {"name": name, "settings": without_secrets(settings), "made_at": format_time(now)}
        done = await backup(setup.home, file, progress=tell, **told)
    if args.json:
        say_json({"file": str(path), "identity": name, "digest": done.digest})
    else:
        say(f"wrote {path}: everything of {name}, digest {done.digest}. It is not encrypted")
    return Exit.OK


async def _restore(args: argparse.Namespace) -> Exit:
    path = args.file.expanduser()
    if not path.is_file():
        raise InvalidValue(f"backup not found: {path}")
    with progress("checking"):
        found = await asyncio.to_thread(verified, path)
    name = args.name or found.name
    check_name(name)
    outline = Settings.read(args.config).combined()
    folder = Settings.read(args.config).folder / outline.identities / name
    if not (folder / FILE_NAME).exists():  # a name without one is no identity
        await asyncio.to_thread(_write_settings, folder, found.settings)
    setup = Setup.resolve(Options(config=args.config, identity=name))
    with progress("restoring"):
        done = await restore(path, setup.home)
    if done.digest != found.digest:
        raise ConfigError(f"{name} has the digest {done.digest}, and its backup {found.digest}: restore it anew")
    if args.json:
        say_json({"identity": name, "made_at": found.made_at, **asdict(done)})
    else:
        say(
            f"restored {name} as of {found.made_at}: {how_many(done.sessions, 'session')}, "
            f"{how_many(done.events, 'change')} of memory, digest {done.digest}"
        )
    return Exit.OK


def _write_settings(folder: Path, text: str) -> None:
    make_folder(folder)
    with new_file(folder / FILE_NAME, force=False) as file:
        file.write(text.encode())


async def _sync(args: argparse.Namespace) -> Exit:
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    places = [args.place] if args.place else list(setup.config.sync.places)
    if not places:
        raise InvalidValue("no place to sync with: name a folder, or set places in [sync]")
    reports = []
    async with setup.open_memory(observations=setup.observation_store()) as memory:
        for text in places:
            asked = _passphrase if args.passphrase else None
            place = await asyncio.to_thread(sealed, _folder(text), memory.backend, asked)
            with progress(f"syncing with {text}", waits=True) as tell:
                reports.append(await sync(memory, place, now=utc_now, dry_run=args.dry_run, progress=tell))
    if args.json:
        say_json([report.as_json() for report in reports])
    else:
        for report in reports:
            _show(report, is_sealed=args.passphrase)
    return Exit.FAILED if any(report.aside for report in reports) else Exit.OK


def _folder(text: str) -> FolderPlace:
    if is_address(text):
        raise InvalidValue(f"{text} is not a folder: sync takes folders only")
    return FolderPlace(Path(text).expanduser())


def _passphrase() -> str:
    """Ask for a passphrase on the terminal, or read it from standard input."""
    return getpass("passphrase of the place (not shown): ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")


def _show(report: SyncReport, *, is_sealed: bool) -> None:
    if report.is_new and not is_sealed:
        warn(f"{report.place} can read everything that is synced there: encrypt a new place with --passphrase")
    for counts, said, would in ((report.taken, "took", "would take"), (report.given, "gave", "would give")):
        parts = [how_many(count, *_WORDS[what]) for what, count in counts.items() if count]
        if parts:
            say(f"{would if report.dry_run else said} {', '.join(parts)}")
    for session in report.forks:
        say(f"a session was continued on both sides: its other part is {session}")
    for name, why in report.aside:
        warn(f"set aside {printable(name)}: {printable(why)}")
    if not any([*report.taken.values(), *report.given.values()]):
        say(f"{report.place}: nothing new")


_WORDS = {
    "memories": ("change of memory", "changes of memory"),
    "sessions": ("session",),
    "calls": ("billed call",),
    "erased": ("erasure",),
}
