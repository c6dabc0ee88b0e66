"""Where the sessions of an identity are: the one owner of session folders and of `session.json`.

home/sessions.json, home/sessions.journal.jsonl     the index, see `index`
home/sessions/<id>/session.json                     the truth about one session
home/.drafts/<id>/                                  a session that is being made; published by one rename
home/.trash/<id>/                                   a session that is being deleted
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from chatbot.errors import DamagedSession, SessionNotFound
from chatbot.memory.index import SESSION_NAME, SessionIndex
from chatbot.memory.record import SessionRecord, is_session_id, parse_record
from stores import json_lines
from stores.errors import LaterFormat, MissingFolder
from stores.files import locked, make_folder, opened, sync_folder, translated
from stores.records import SessionRef

logger = logging.getLogger(__name__)

RECEIPTS_NAME = "receipts.jsonl"
_STRAY_AFTER_S = 3600.0

Wanted = Callable[[SessionRecord], bool]


class SessionCatalog(ABC):
    """What `MemorySystem` needs to know of where sessions are."""

    @abstractmethod
    def making(self, record: SessionRecord) -> AbstractAsyncContextManager[SessionRef]:
        """Make a session: it comes into being, whole and durable, when the block ends without an error."""

    @abstractmethod
    async def get(self, session_id: str) -> SessionRecord:
        """The record of a session. Raises `SessionNotFound` or `DamagedSession`."""

    @abstractmethod
    async def find(self, wanted: Wanted, limit: int | None = None) -> list[SessionRecord]:
        """The wanted sessions, the one used last first."""

    @abstractmethod
    async def put(self, record: SessionRecord) -> None:
        """Change the record of a session that is there."""

    @abstractmethod
    async def note_used(self, record: SessionRecord) -> None:
        """Remember that a session was used; cheap, and lost without harm."""

    @abstractmethod
    async def delete(self, session_id: str) -> None:
        """Erase a session. Raises `SessionNotFound`."""

    @abstractmethod
    async def append_receipt(self, session: SessionRef, receipt: dict[str, Any]) -> None:
        """Keep the record of a turn. Durable on return."""

    @abstractmethod
    async def receipts(self, session: SessionRef) -> list[dict[str, Any]]:
        """Every receipt, oldest first."""

    @abstractmethod
    def ref(self, session_id: str) -> SessionRef:
        """How stores are told of the session."""

    async def aclose(self) -> None:
        """Leave everything tidy."""
        return


class FolderCatalog(SessionCatalog):
    """Sessions as folders under `home`, an identity's memory folder. Safe between processes."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._sessions = home / "sessions"
        self._drafts = home / ".drafts"
        self._trash = home / ".trash"
        self._index = SessionIndex(home, self._sessions)
        self._is_ready = False

    @asynccontextmanager
    async def making(self, record: SessionRecord) -> AsyncIterator[SessionRef]:
        """See `SessionCatalog`."""
        await self._ready()
        draft = self._drafts / record.id
        await asyncio.to_thread(self._write_draft, draft, record)
        try:
            yield SessionRef(record.id, draft)
            await asyncio.to_thread(self._publish, draft, record)
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
            raise

    async def get(self, session_id: str) -> SessionRecord:
        """See `SessionCatalog`."""
        return await asyncio.to_thread(self._get, session_id)

    async def find(self, wanted: Wanted, limit: int | None = None) -> list[SessionRecord]:
        """See `SessionCatalog`."""
        if not self._sessions.is_dir():
            return []
        return await asyncio.to_thread(self._index.find, wanted, limit)

    async def put(self, record: SessionRecord) -> None:
        """See `SessionCatalog`."""
        await asyncio.to_thread(self._put, record)

    async def note_used(self, record: SessionRecord) -> None:
        """See `SessionCatalog`."""
        await asyncio.to_thread(self._note_used, record)

    async def delete(self, session_id: str) -> None:
        """See `SessionCatalog`."""
        await self._ready()
        await asyncio.to_thread(self._delete, session_id)

    async def append_receipt(self, session: SessionRef, receipt: dict[str, Any]) -> None:
        """See `SessionCatalog`."""
        await asyncio.to_thread(_append_receipt, session.folder, receipt)

    async def receipts(self, session: SessionRef) -> list[dict[str, Any]]:
        """See `SessionCatalog`."""
        return await asyncio.to_thread(_read_receipts, session.folder)

    def ref(self, session_id: str) -> SessionRef:
        """See `SessionCatalog`."""
        return SessionRef(session_id, self._folder(session_id))

    async def aclose(self) -> None:
        """See `SessionCatalog`."""
        if self._sessions.is_dir():
            await asyncio.to_thread(self._index.fold_if_small)

    async def _ready(self) -> None:
        if not self._is_ready:
            await asyncio.to_thread(self._make_ready)
            self._is_ready = True

    def _make_ready(self) -> None:
        for folder in (self._sessions, self._drafts, self._trash):
            make_folder(folder)
        killed = [path for path in self._drafts.iterdir() if time.time() - path.stat().st_mtime > _STRAY_AFTER_S]
        for stray in (*killed, *self._trash.iterdir()):
            shutil.rmtree(stray, ignore_errors=True)

    def _folder(self, session_id: str) -> Path:
        if not is_session_id(session_id):
            raise SessionNotFound(f"{session_id!r} is not a session id")
        return self._sessions / session_id

    def _write_draft(self, draft: Path, record: SessionRecord) -> None:
        make_folder(draft)
        with opened(draft) as folder:
            folder.create(SESSION_NAME, _render(record))

    def _publish(self, draft: Path, record: SessionRecord) -> None:
        sync_folder(draft)
        with locked(self._home) as home:
            self._index.freshen(home)
            draft.rename(self._folder(record.id))
            sync_folder(self._sessions)
            self._index.note_made(home, record)

    def _get(self, session_id: str) -> SessionRecord:
        try:
            with opened(self._folder(session_id)) as folder:
                return _parse(folder.read(SESSION_NAME), session_id)
        except MissingFolder as error:
            raise SessionNotFound(f"there is no session {session_id}") from error
        except LaterFormat:
            raise
        except (FileNotFoundError, ValueError) as error:
            return self._recover(session_id, error)

    def _recover(self, session_id: str, error: Exception) -> SessionRecord:
        """Write `session.json` anew from the index, the damaged one set aside."""
        known = self._index.find(lambda record: record.id == session_id, 1)
        path = self._folder(session_id) / SESSION_NAME
        if not known:
            raise DamagedSession(f"{path} is damaged and the index does not know the session: {error}") from error
        with locked(path.parent) as folder:
            aside = folder.set_aside(SESSION_NAME) if folder.stamp(SESSION_NAME) else "nothing"
            folder.create(SESSION_NAME, _render(known[0]))
        logger.warning("%s was damaged (%s): set aside as %s and recovered from the index", path, error, aside)
        return known[0]

    def _put(self, record: SessionRecord) -> None:
        with locked(self._folder(record.id)) as folder:
            folder.replace(SESSION_NAME, _render(record))
        self._note_used(record)

    def _note_used(self, record: SessionRecord) -> None:
        with locked(self._home) as home:
            self._index.note_used(home, record)

    def _delete(self, session_id: str) -> None:
        folder = self._folder(session_id)
        grave = self._trash / session_id
        try:
            with locked(folder), translated(grave):
                with locked(self._home) as home:
                    self._index.freshen(home)
                    folder.rename(grave)
                    sync_folder(self._sessions)
                    self._index.note_deleted(home, session_id)
                shutil.rmtree(grave)
        except MissingFolder as error:
            raise SessionNotFound(f"there is no session {session_id}") from error


class EphemeralCatalog(SessionCatalog):
    """Sessions that leave no trace: they live as long as the catalog."""

    def __init__(self) -> None:
        self._records: dict[str, SessionRecord] = {}
        self._receipts: dict[str, list[dict[str, Any]]] = {}

    @asynccontextmanager
    async def making(self, record: SessionRecord) -> AsyncIterator[SessionRef]:
        """See `SessionCatalog`."""
        yield self.ref(record.id)
        self._records[record.id] = record

    async def get(self, session_id: str) -> SessionRecord:
        """See `SessionCatalog`."""
        if session_id not in self._records:
            raise SessionNotFound(f"there is no session {session_id}")
        return self._records[session_id]

    async def find(self, wanted: Wanted, limit: int | None = None) -> list[SessionRecord]:
        """See `SessionCatalog`."""
        return list(filter(wanted, reversed(self._records.values())))[:limit]

    async def put(self, record: SessionRecord) -> None:
        """See `SessionCatalog`."""
        self._records.pop(record.id, None)
        self._records[record.id] = record

    async def note_used(self, record: SessionRecord) -> None:
        """See `SessionCatalog`."""
        await self.put(record)

    async def delete(self, session_id: str) -> None:
        """See `SessionCatalog`."""
        await self.get(session_id)
        del self._records[session_id]
        self._receipts.pop(session_id, None)

    async def append_receipt(self, session: SessionRef, receipt: dict[str, Any]) -> None:
        """See `SessionCatalog`."""
        self._receipts.setdefault(session.id, []).append(receipt)

    async def receipts(self, session: SessionRef) -> list[dict[str, Any]]:
        """See `SessionCatalog`."""
        return list(self._receipts.get(session.id, ()))

    def ref(self, session_id: str) -> SessionRef:
        """See `SessionCatalog`."""
        return SessionRef(session_id, Path())


def _render(record: SessionRecord) -> bytes:
    return (json.dumps(record.as_json(), ensure_ascii=False, indent=2) + "\n").encode()


def _parse(data: bytes, session_id: str) -> SessionRecord:
    """The folder's name is the id, whatever the file says: a copied folder is a session of its own."""
    return replace(parse_record(json.loads(data)), id=session_id)


def _append_receipt(path: Path, receipt: dict[str, Any]) -> None:
    with locked(path) as folder:
        folder.append(RECEIPTS_NAME, json_lines.encode(receipt))


def _read_receipts(path: Path) -> list[dict[str, Any]]:
    with opened(path) as folder:
        return json_lines.read(folder, RECEIPTS_NAME)
