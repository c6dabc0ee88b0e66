"""Sessions of an identity on disk: the one owner of session folders and of `session.json`. Blocking.

home/sessions.json, home/sessions.journal.jsonl     the index, see `session_index`
home/sessions/<id>/session.json                     the record of one session, from which the index is rebuilt
home/.drafts/<id>.<random>/                         a session that is being made; published by one rename
home/.trash/<id>.<random>/                          a session that is being deleted
"""

import logging
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from chatbot.stores import files
from chatbot.stores.backend import SessionFile, Sessions
from chatbot.stores.errors import DamagedFile, LaterFormat, MissingFolder, StoreError, StoreFailed, UnsafePath
from chatbot.stores.on_disk.session_index import SESSION_NAME, SessionIndex
from chatbot.stores.records import SessionRecord, SessionRef, decode_record, is_id

logger = logging.getLogger(__name__)

STRAY_AFTER_S = 3600.0
_OLD_AFTER_S = 60.0
_GLANCE_BYTES = 16 * 1024
_CHUNK_BYTES = 64 * 1024


class FolderSessions(Sessions):
    """Sessions as folders under `home`, an identity's memory folder. Safe between processes."""

    def __init__(self, home: Path) -> None:
        """Raise `UnsafePath` if one of its folders is a link: such a link could point anywhere."""
        self._home = home
        self._sessions = home / "sessions"
        self._drafts = home / ".drafts"
        self._trash = home / ".trash"
        self._begun: dict[str, Path] = {}
        self.index = SessionIndex(home, self._sessions)
        self._is_ready = False
        self._last_use: datetime | None = None
        self._check_links()

    def begin(self, record: SessionRecord) -> SessionRef:
        """Create a draft folder with `session.json`, hidden until `publish`."""
        self._make_ready()
        files.make_folder(self._drafts)
        draft = self._drafts / f"{record.id}.{secrets.token_hex(8)}"
        with files.translated(self._drafts):  # not synced: a killed process may leave a draft
            draft.mkdir(files.FOLDER_MODE)
        self._begun[record.id] = draft
        with files.opened(draft) as folder:
            folder.create(SESSION_NAME, render(record))
        return SessionRef(record.id, draft)

    def publish(self, record: SessionRecord) -> None:
        """Move the draft folder to its place and add it to the index."""
        draft = self._begun[record.id]
        is_old = time.time() - record.used_at.timestamp() > _OLD_AFTER_S
        if is_old:  # a rebuilt index uses the times of the files
            for path in draft.iterdir():
                os.utime(path, (record.used_at.timestamp(),) * 2)
        files.sync_folder(draft)
        with files.locked(self._home) as home:
            self.index.freshen(home)
            draft.rename(self._folder(record.id))
            self.index.note_put(home, record, is_use=not is_old or self._is_last_used(record))
            self._last_use = self._last_use if is_old else None
        del self._begun[record.id]
        files.sync_folder(self._sessions)

    def _is_last_used(self, record: SessionRecord) -> bool:
        """Return whether a session from elsewhere was used last, also if its import is killed. Reads the index once."""
        if self._last_use is None:
            self._last_use = next((each.used_at for each in self.index.find(lambda _: True, 1)), record.used_at)
        self._last_use = max(self._last_use, record.used_at)
        return self._last_use == record.used_at

    def abandon(self, session_id: str) -> None:
        if (draft := self._begun.pop(session_id, None)) is not None:
            with suppress(OSError):
                files.erase(draft)

    def ref(self, session_id: str) -> SessionRef:
        return SessionRef(session_id, self._folder(session_id))

    def glance(self, session_id: str) -> SessionRecord | None:
        """Read a small intact `session.json` at once; None for any fault, which `get` reports."""
        try:
            return self._read(session_id, _GLANCE_BYTES)
        except (OSError, ValueError):
            return None

    def get(self, session_id: str) -> SessionRecord:
        try:
            return self._read(session_id)
        except MissingFolder:
            raise
        except LaterFormat as error:
            raise LaterFormat(f"{self._folder(session_id) / SESSION_NAME}: {error}") from error
        except (FileNotFoundError, ValueError) as error:
            return self._index_record(session_id, error)

    def find(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None = None, *, after_id: str | None = None
    ) -> list[SessionRecord]:
        return self.index.find(wanted, limit, after_id=after_id) if self._sessions.is_dir() else []

    def ids(self) -> list[str]:
        folders = self._sessions.iterdir() if self._sessions.is_dir() else ()
        return [each.name for each in folders if is_id(each.name)]

    def change(self, session_id: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        if self.glance(session_id) is None:
            self.mend(session_id)
        with files.locked(self._folder(session_id)) as folder:
            before = self._read(session_id)
            record = change(before)
            draft = folder.draft(SESSION_NAME, render(record))
            with files.locked(self._home) as home:  # held without waiting for the disk
                self.index.freshen(home)
                self.index.distrust()  # until the new record is in the index, in case of a kill in between
                folder.rename(draft, SESSION_NAME, durable=False)
                self.index.note_put(home, record, is_use=record.used_at > before.used_at)
            folder.sync()
        return record

    def note_used(self, session_id: str, now: datetime) -> None:
        """Record the time of last use in the index only; a failure is no error."""
        try:
            if self.glance(session_id) is None:
                self.mend(session_id)
            with files.locked(self._home) as home:
                record = self._read(session_id)  # another process may have changed it
                self.index.note_used(home, record.used(now))
        except (OSError, ValueError) as error:
            logger.warning("the use of session %s was not noted: %s", session_id, error)

    def mend(self, session_id: str) -> str:
        """Write a missing or damaged `session.json` from the index again; return the new name of a damaged one."""
        record = self.get(session_id)
        aside = ""
        with files.locked(self._folder(session_id)) as folder:
            try:
                self._read(session_id)
            except (FileNotFoundError, ValueError):
                if folder.stamp(SESSION_NAME):
                    aside = folder.set_aside(SESSION_NAME)
                    logger.warning("%s: %s was set aside as %s", folder.path, SESSION_NAME, aside)
                folder.create(SESSION_NAME, render(record))
        return aside

    def delete(self, session_id: str) -> None:
        """Move the folder to the trash, drop it from the index, then erase it, and the drafts of its forks."""
        self._make_ready()
        folder = self._folder(session_id)
        grave = self._trash / f"{session_id}.{secrets.token_hex(8)}"
        with files.locked(folder), files.translated(grave):
            with files.locked(self._home) as home:
                self.index.freshen(home)
                folder.rename(grave)
                self.index.note_deleted(home, session_id)
            files.sync_folder(self._sessions)
            try:
                files.erase(grave)  # other processes may still be at work in it
            except OSError as error:
                self._is_ready = False  # the next new or deleted session tries again
                rest = "the session is deleted, but not all of its files: `chatbot doctor --fix` deletes the rest"
                raise StoreFailed(f"{grave}: {error.strerror}: {rest}") from error
        for draft in self._drafts.iterdir():  # a process that was killed may have left a copy
            with suppress(OSError, ValueError), files.opened(draft) as fork:
                if decode_record(fork.read(SESSION_NAME), draft.name.partition(".")[0]).parent == session_id:
                    files.erase(draft)

    def reorder(self) -> None:
        """Rebuild the index from the folders, which orders it by last use."""
        if self._sessions.is_dir():
            with files.locked(self._home) as home:
                self.index.distrust()
                self.index.freshen(home)

    def drop_former(self) -> None:
        """Fold the index, so that it keeps no former titles."""
        with files.locked(self._home) as home:
            self.index.freshen(home)
            self.index.fold(home, durable=True)

    @property
    def is_tidy(self) -> bool:
        return not self.index.has_changed

    def tidy(self) -> None:
        """Fold a small index into one file; a failure is logged, not raised."""
        if self.is_tidy:
            return
        try:
            self.index.fold_if_small()
        except StoreError as error:
            logger.warning("the index of sessions stays as it is: %s", error)

    def files(self, session: SessionRef) -> list[SessionFile]:
        with files.translated(session.folder):
            found = [
                SessionFile(entry.name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC).isoformat())
                for entry in os.scandir(session.folder)
                if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False)
                for status in [entry.stat(follow_symlinks=False)]
            ]
        return sorted(found, key=lambda file: file.name)

    async def stream_file(self, session: SessionRef, name: str) -> AsyncIterator[bytes]:
        import aiofiles

        with files.translated(session.folder):
            path = files.path_inside(session.folder, name)
            async with aiofiles.open(path, "rb", opener=_open_safely) as file:
                while chunk := await file.read(_CHUNK_BYTES):
                    yield chunk

    def _check_links(self) -> None:
        for folder in (self._home, self._sessions, self._drafts, self._trash):
            try:
                with files.translated(folder):
                    mode = os.lstat(folder).st_mode
            except FileNotFoundError:  # also while another thread makes it
                continue
            if stat.S_ISLNK(mode):
                raise UnsafePath(f"{folder} is a link, and sessions are only kept in a real folder: replace the link")
            if not stat.S_ISDIR(mode):
                raise UnsafePath(f"{folder} is not a folder: move it away")

    def _make_ready(self) -> None:
        if self._is_ready and self._sessions.is_dir():
            return
        self._check_links()
        for folder in (self._sessions, self._drafts, self._trash):
            files.make_folder(folder)
        old = time.time() - STRAY_AFTER_S
        for stray in (*self._drafts.iterdir(), *self._trash.iterdir()):
            with suppress(OSError):
                if stray.parent == self._trash or stray.lstat().st_mtime < old:
                    files.erase(stray)
        self._is_ready = True

    def _folder(self, session_id: str) -> Path:
        if not is_id(session_id):
            raise MissingFolder(f"{session_id!r:.80} is not a session id")
        return self._sessions / session_id

    def _read(self, session_id: str, end: int | None = None) -> SessionRecord:
        with files.opened(self._folder(session_id)) as folder:
            return decode_record(folder.read(SESSION_NAME, 0, end), session_id)

    def _index_record(self, session_id: str, error: Exception) -> SessionRecord:
        """Return the index record of a session whose file is damaged, leaving that file as it is."""
        known = self.index.find(lambda record: record.id == session_id, 1)
        path = self._folder(session_id) / SESSION_NAME
        if not known:
            raise DamagedFile(f"{path} is damaged and the index does not know the session: {error}") from error
        self.index.warn_once("%s is damaged (%s): the index is used instead", path, error)
        return known[0]


def render(record: SessionRecord) -> bytes:
    """Return a record as its `session.json`."""
    return msgspec.json.format(msgspec.json.encode(record.as_json()), indent=2) + b"\n"


def _open_safely(path: str, flags: int) -> int:
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    files.checked_status(file, Path(path))
    return file
