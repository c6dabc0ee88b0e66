"""Backups: a sync with one file, which holds everything of an identity; and copies between storages, through a backup.

A backup is a zip archive of the files of a sync, with `backup.json` at its end. All of it is checked before anything is
written. After a restore, the storage has the digest of the backup: both hold the same.
"""

import asyncio
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.memory.scope import utc_now
from chatbot.stores.errors import DamagedFile, LaterFormat, MissingFolder, StoreBusy, StoreError, StoreFailed
from chatbot.stores.fields import texts_in
from chatbot.stores.files import writing
from chatbot.stores.home import Home
from chatbot.stores.plugins import SECRET
from chatbot.stores.query import Progress
from chatbot.stores.records import format_time, parse_time
from chatbot.stores.text.redaction import without_secrets
from chatbot.transfer.sync import Sync
from chatbot.transfer.sync_place import NAME, ArchivePlace, counts_text
from chatbot.transfer.sync_storage import Storage, digest_of_storage, unreadable
from chatbot.transfer.union import digest_of_all
from chatbot.transfer.untrusted import VERSION
from chatbot.trust import leaves

_HEAD = "backup.json"
BACKUP_NAME = "{}-{:%Y-%m-%d}.chatbot"
_ATTEMPTS = 5
INTERRUPTIONS = (StoreBusy, StoreFailed)
"""Errors after which a restore can be continued: the backup is good, but the storage failed."""


class Backup(msgspec.Struct, frozen=True):
    """Head of a backup: name and settings of the identity, its time, files and digest, and what was `left_out`."""

    name: str
    made_at: str
    settings: str
    files: list[str]
    digest: str
    left_out: list[str] = []
    version: int = VERSION


async def backup(
    home: Home,
    file: BinaryIO,
    *,
    name: str,
    settings: Path | None = None,
    progress: Progress | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Backup:
    """Write everything that is kept of an identity into an open file, while other processes go on writing.

    `settings` is its `identity.toml`, which is kept without keys. If something is erased meanwhile, the backup starts
    again, so the finished file holds nothing that was erased.
    """
    text = await asyncio.to_thread(lambda: settings.read_text("utf-8") if settings and settings.is_file() else "")
    text, made_at = _without_keys(text), now()
    async with MemorySystem(home) as memory, Storage.opened(home) as storage:
        for _ in range(_ATTEMPTS):
            file.seek(0)
            file.truncate()
            place = ArchivePlace(file, name, is_new=True)
            sync = Sync(memory, storage, place, now=now, takes=False, is_own=True, progress=progress)
            try:
                await sync.run()
                if not await sync.is_outdated():
                    damage = await unreadable(storage, sync.report.aside)
                    made = Backup(name, format_time(made_at), text, place.names(), digest_of_all(sync.texts), damage)
                    place.write(_HEAD, msgspec.json.encode(made))
                    place.close()
                    return made
            finally:
                place.abandon()
    raise StoreBusy("memories or messages are being erased all the time: try again later")


def _without_keys(settings: str) -> str:
    """Return the text of settings without keys, and without everything that looks like one."""
    keys = list[str]()
    with suppress(ValueError, RecursionError):  # what is not TOML is nobody's settings
        found = leaves(tomllib.loads(settings.removeprefix("\ufeff")))
        keys = texts_in([value for _, place, value in found if not SECRET.isdisjoint(place)])
    return without_secrets(settings, (each for each in keys if not each.startswith("env:")))


def verify(file: BinaryIO, key: str) -> Backup:
    """Check that a backup lacks no file, and return its head. Raises `DamagedFile` or `LaterFormat`."""
    try:
        place = ArchivePlace(file, key)
        head = msgspec.json.decode(place.read(_HEAD), type=Backup)
        parse_time(head.made_at)
    except (LookupError, ValueError, RecursionError) as error:
        raise DamagedFile(f"{key} is not a complete backup of chatbot: {error}") from error
    if head.version > VERSION:
        raise LaterFormat(f"{key} was written by a later release: upgrade chatbot to restore it")
    if sorted(place.names()) != sorted([*head.files, _HEAD]) or NAME not in head.files:
        raise DamagedFile(f"{key} is damaged: it lacks a file that it lists, or holds another one")
    return head


async def restore(
    file: BinaryIO, key: str, home: Home, progress: Progress | None = None, now: Callable[[], datetime] = utc_now
) -> dict[str, int]:
    """Restore a verified backup into a storage that is empty, or that only holds what the backup holds.

    Returns how many sessions, memories and billed calls were written; the storage then has the digest of the backup.
    Raises `ConfigError` if the storage holds something else, and `DamagedFile` if a record is invalid: nothing is
    written then. A later error says how much was written.
    """
    head = await asyncio.to_thread(verify, file, key)
    async with MemorySystem(home) as memory, Storage.opened(home) as storage:
        sync = Sync(memory, storage, ArchivePlace(file, key), now=now, gives=False, is_own=True, progress=progress)
        taken = sync.report.taken
        try:
            await sync.run()
            digest = await digest_of_storage(storage)
            if digest != head.digest:
                raise ConfigError(f"the target holds more than {key}: its digest is {digest}, and not {head.digest}")
        except (ConfigError, StoreError) as error:
            if any(taken.values()):
                again = ": repeat the command to continue" if isinstance(error, INTERRUPTIONS) else ""
                error.args = (f"{error}. {counts_text(taken)} had been written{again}",)
            raise
    return {name: taken[name] for name in ("sessions", "memories", "calls")}


async def copy_storage(source: Home, target: Home, progress: Progress | None = None) -> tuple[Backup, dict[str, int]]:
    """Copy everything that is kept of an identity through a backup; return its head, and the counts of `restore`.

    Raises `MissingFolder` if the source holds nothing, and `ConfigError` if the target holds something else.
    """
    if isinstance(source, Path) and not source.is_dir():
        raise MissingFolder(f"folder not found: {source}")
    with writing(Path("the folder for temporary files")), tempfile.TemporaryFile() as file:
        made = await backup(source, file, name="the source", progress=progress)
        if made.digest == digest_of_all(()):
            raise MissingFolder(f"{source} holds no memory: name a folder such as identities/ada/memory")
        return made, await restore(file, "the source", target, progress)
