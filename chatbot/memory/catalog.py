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
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from chatbot.errors import DamagedSession, SessionError, SessionNotFound
from chatbot.memory import receipt_lines
from chatbot.memory.index import SESSION_NAME, SessionIndex
from chatbot.memory.receipt_lines import Receipt
from chatbot.memory.record import SessionRecord, decode_record, is_session_id
from stores.errors import LaterFormat, MissingFolder, StoreError
from stores.files import FOLDER_MODE, locked, make_folder, opened, stamp, sync_folder, translated
from stores.records import SessionRef, format_time

logger = logging.getLogger(__name__)

_NOBODYS = "00000000-0000-7000-8000-000000000000"
_STRAY_AFTER_S = 3600.0
_OLD_AFTER_S = 60.0
_GLANCE_BYTES = 16 * 1024

Wanted = Callable[[SessionRecord], bool]
Change = Callable[[SessionRecord], SessionRecord]


class SessionCatalog(ABC):
    """What `MemorySystem` needs to know of where sessions are."""

    used_last: str | None = None
    """The session that was last noted as used here; it need not be noted again at once."""

    @abstractmethod
    def making(self, record: SessionRecord) -> AbstractAsyncContextManager[SessionRef]:
        """Make a session: it comes into being, whole and durable, when the block ends without an error."""

    @abstractmethod
    async def get(self, session_id: str) -> SessionRecord:
        """The record of a session. Raises `SessionNotFound` or `DamagedSession`."""

    async def get_another(self, *, is_there: bool) -> None:  # noqa: ARG002 - here it takes no steps worth a word
        """Take the steps of `get` for some other session, which is there or is not, and tell nothing of it."""
        return

    @abstractmethod
    async def find(self, wanted: Wanted, limit: int | None = None, *, behind: str | None = None) -> list[SessionRecord]:
        """The wanted sessions, the one used last first; where `behind` names one, those that come after it."""

    @abstractmethod
    async def change(self, session_id: str, change: Change) -> SessionRecord:
        """Change the record of a session, as it is by now, and return it. Raises like `get`."""

    @abstractmethod
    async def note_used(self, session_id: str, now: datetime) -> None:
        """Remember that a session was used; cheap, and lost without harm."""

    @abstractmethod
    async def delete(self, session_id: str) -> None:
        """Erase a session. Raises `SessionNotFound`."""

    async def reorder(self) -> None:
        """Bring sessions that came in with a past of their own into the order of their last use."""
        return

    @abstractmethod
    async def append_receipt(self, session: SessionRef, receipt: dict[str, Any]) -> None:
        """Keep the record of a turn. Durable on return."""

    @abstractmethod
    async def receipts(self, session: SessionRef) -> list[dict[str, Any]]:
        """Every receipt, oldest first."""

    async def receipts_since(self, session: SessionRef, moment: datetime) -> list[dict[str, Any]]:
        """Every receipt from `moment` on, newest first."""
        return list(takewhile(receipt_lines.since(moment), reversed(await self.receipts(session))))

    @abstractmethod
    async def take_back(self, session: SessionRef, at: datetime) -> None:
        """The turn that began then was taken back: its receipt keeps what it cost, and loses what was said.

        A title that this turn has given goes too. Durable on return.
        """

    @abstractmethod
    async def remembering(self, ids: Collection[str]) -> list[str]:
        """The sessions in which something was said that is remembered under one of these ids."""

    @abstractmethod
    async def unsay(self, sessions: Sequence[SessionRef], ids: Collection[str]) -> None:
        """What was remembered under these ids was erased: no receipt and no title of the sessions tells of it.

        A session that is gone tells nothing. Durable on return.
        """

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
        self._has_written = False
        self._another: str | None = None

    @asynccontextmanager
    async def making(self, record: SessionRecord) -> AsyncIterator[SessionRef]:
        """See `SessionCatalog`."""
        await self._ready()
        draft = self._drafts / record.id
        try:
            await asyncio.to_thread(self._write_draft, draft, record)
            yield SessionRef(record.id, draft)
            await asyncio.to_thread(self._publish, draft, record)
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
            raise

    async def get(self, session_id: str) -> SessionRecord:
        """See `SessionCatalog`. A whole `session.json` is small, and read at once; only trouble takes a thread."""
        known = self._glance(session_id)
        return known if known is not None else await asyncio.to_thread(self._get, session_id)

    async def get_another(self, *, is_there: bool) -> None:
        """See `SessionCatalog`."""
        if self._another is None:
            self._another = next((record.id for record in await self.find(lambda _: True, 1)), None)
        try:
            await self.get(self._another if is_there and self._another else _NOBODYS)
        except (SessionError, StoreError):
            self._another = None if is_there else self._another

    async def find(self, wanted: Wanted, limit: int | None = None, *, behind: str | None = None) -> list[SessionRecord]:
        """See `SessionCatalog`."""
        if not self._sessions.is_dir():
            return []
        return await asyncio.to_thread(self._index.find, wanted, limit, behind=behind)

    async def change(self, session_id: str, change: Change) -> SessionRecord:
        """See `SessionCatalog`."""
        return await asyncio.to_thread(self._change, session_id, change)

    async def note_used(self, session_id: str, now: datetime) -> None:
        """See `SessionCatalog`."""
        self.used_last = session_id
        await asyncio.to_thread(self._note_used, session_id, now)

    async def delete(self, session_id: str) -> None:
        """See `SessionCatalog`."""
        await self._ready()
        await asyncio.to_thread(self._delete, session_id)

    async def reorder(self) -> None:
        """See `SessionCatalog`. The index is built anew when it is next needed."""
        await asyncio.to_thread(self._reorder)

    async def append_receipt(self, session: SessionRef, receipt: dict[str, Any]) -> None:
        """See `SessionCatalog`."""
        await asyncio.to_thread(receipt_lines.append, session.folder, receipt)

    async def receipts(self, session: SessionRef) -> list[dict[str, Any]]:
        """See `SessionCatalog`."""
        return await asyncio.to_thread(receipt_lines.read, session.folder)

    async def receipts_since(self, session: SessionRef, moment: datetime) -> list[dict[str, Any]]:
        """See `SessionCatalog`; reads no further back."""
        return await asyncio.to_thread(receipt_lines.read_since, session.folder, moment)

    async def take_back(self, session: SessionRef, at: datetime) -> None:
        """See `SessionCatalog`."""
        await asyncio.to_thread(self._take_back, session, at)

    async def remembering(self, ids: Collection[str]) -> list[str]:
        """See `SessionCatalog`; reads the receipts of all sessions."""
        return await asyncio.to_thread(self._remembering, ids)

    async def unsay(self, sessions: Sequence[SessionRef], ids: Collection[str]) -> None:
        """See `SessionCatalog`."""
        await asyncio.to_thread(self._unsay, sessions, ids)

    def ref(self, session_id: str) -> SessionRef:
        """See `SessionCatalog`."""
        return SessionRef(session_id, self._folder(session_id))

    async def aclose(self) -> None:
        """See `SessionCatalog`."""
        if self._has_written:
            self._has_written = False
            await asyncio.to_thread(self._fold)

    async def _ready(self) -> None:
        if not self._is_ready:
            await asyncio.to_thread(self._make_ready)
            self._is_ready = True

    def _make_ready(self) -> None:
        for folder in (self._sessions, self._drafts, self._trash):
            make_folder(folder)
        for stray in (*filter(_is_old, self._drafts.iterdir()), *self._trash.iterdir()):
            shutil.rmtree(stray, ignore_errors=True)

    def _folder(self, session_id: str) -> Path:
        if not is_session_id(session_id):
            raise SessionNotFound(f"{session_id!r} is not a session id")
        return self._sessions / session_id

    def _write_draft(self, draft: Path, record: SessionRecord) -> None:
        make_folder(draft.parent)
        with translated(draft):
            draft.mkdir(FOLDER_MODE, exist_ok=True)  # nobody waits for the disk: a power cut may take a draft along
        with opened(draft) as folder:
            folder.create(SESSION_NAME, _render(record))

    def _publish(self, draft: Path, record: SessionRecord) -> None:
        if time.time() - record.used_at.timestamp() > _OLD_AFTER_S:
            _backdate(draft, record.used_at)
        sync_folder(draft)
        with locked(self._home) as home:
            self._index.freshen(home)
            draft.rename(self._folder(record.id))
            self._index.note_put(home, record)
            self._has_written = True
        sync_folder(self._sessions)

    def _reorder(self) -> None:
        if self._sessions.is_dir():
            with locked(self._home):
                self._index.distrust()

    def _read(self, session_id: str) -> SessionRecord:
        with opened(self._folder(session_id)) as folder:
            return decode_record(folder.read(SESSION_NAME), session_id)

    def _glance(self, session_id: str) -> SessionRecord | None:
        """The record, if one short read tells, which takes less time than a hop into a thread; trouble is `_get`'s."""
        try:
            with opened(self._folder(session_id)) as folder:
                return decode_record(folder.read(SESSION_NAME, 0, _GLANCE_BYTES), session_id)
        except (OSError, ValueError):
            return None

    def _get(self, session_id: str) -> SessionRecord:
        try:
            return self._read(session_id)
        except MissingFolder as error:
            raise SessionNotFound(f"there is no session {session_id}") from error
        except LaterFormat as error:
            raise LaterFormat(f"{self._folder(session_id) / SESSION_NAME}: {error}") from error
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

    def _change(self, session_id: str, change: Change) -> SessionRecord:
        self._get(session_id)  # which mends a damaged one
        try:
            with locked(self._folder(session_id)) as folder:
                record = change(self._read(session_id))
                draft = folder.draft(SESSION_NAME, _render(record))
                with locked(self._home) as home:  # in which nobody waits for our disk
                    self._index.freshen(home)
                    self._index.distrust()  # until the new record is noted, lest a kill in between go unnoticed
                    folder.rename(draft, SESSION_NAME, durable=False)
                    self._index.note_put(home, record)
                    self._has_written = True
                folder.sync()
        except MissingFolder as error:
            raise SessionNotFound(f"there is no session {session_id}") from error
        return record

    def _take_back(self, session: SessionRef, at: datetime) -> None:
        given: set[str] = set()

        def withdrawn(receipt: Receipt) -> Receipt:
            if not receipt_lines.is_of(receipt, at):
                return receipt
            given.add(str(receipt.get("title", "")))
            return receipt_lines.withdrawn(receipt)

        receipt_lines.rewrite(session.folder, withdrawn, holding=format_time(at))
        self._untitle([session], given)

    def _remembering(self, ids: Collection[str]) -> list[str]:
        folders = self._sessions.iterdir() if self._sessions.is_dir() else ()
        return [each.name for each in folders if is_session_id(each.name) and receipt_lines.remembers(each, ids)]

    def _unsay(self, sessions: Sequence[SessionRef], ids: Collection[str]) -> None:
        kept = [session for session in sessions if session.folder.is_dir()]
        told = receipt_lines.told_of(
            (receipt for session in kept for receipt in receipt_lines.read(session.folder)), ids
        )
        for session in kept:
            with suppress(MissingFolder):
                receipt_lines.rewrite(session.folder, told.taken_from)
        self._untitle(kept, told.titles)

    def _untitle(self, sessions: Iterable[SessionRef], titles: Collection[str]) -> None:
        """Take these titles from the sessions, and from the index and its journal."""
        if not any(titles):
            return
        for session in sessions:
            with suppress(SessionError):  # it is gone, or damaged
                if self._get(session.id).title in titles:
                    self._change(session.id, lambda record: record.renamed("") if record.title in titles else record)
        with locked(self._home) as home:
            self._index.fold(home, durable=True)

    def _note_used(self, session_id: str, now: datetime) -> None:
        try:
            with locked(self._home) as home:
                record = self._read(session_id)  # another process may have changed it
                self._index.note_used(home, record.used(now))
                self._has_written = True
        except (OSError, ValueError) as error:
            logger.warning("the use of session %s was not noted: %s", session_id, error)

    def _fold(self) -> None:
        try:
            self._index.fold_if_small()
        except StoreError as error:
            logger.warning("the index of sessions stays as it is: %s", error)

    def _delete(self, session_id: str) -> None:
        folder = self._folder(session_id)
        grave = self._trash / session_id
        try:
            with locked(folder), translated(grave):
                with locked(self._home) as home:
                    self._index.freshen(home)
                    folder.rename(grave)
                    self._index.note_deleted(home, session_id)
                    self._has_written = True
                sync_folder(self._sessions)
                _erase(grave)
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

    async def find(self, wanted: Wanted, limit: int | None = None, *, behind: str | None = None) -> list[SessionRecord]:
        """See `SessionCatalog`."""
        records = list(reversed(self._records.values()))
        begin = next((place + 1 for place, record in enumerate(records) if record.id == behind), len(records))
        return list(filter(wanted, records[begin if behind else 0 :]))[:limit]

    async def change(self, session_id: str, change: Change) -> SessionRecord:
        """See `SessionCatalog`."""
        record = change(await self.get(session_id))
        del self._records[session_id]
        self._records[session_id] = record
        return record

    async def note_used(self, session_id: str, now: datetime) -> None:
        """See `SessionCatalog`."""
        self.used_last = session_id
        await self.change(session_id, lambda record: record.used(now))

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

    async def take_back(self, session: SessionRef, at: datetime) -> None:
        """See `SessionCatalog`."""
        receipts = self._receipts.get(session.id, [])
        for number in filter(lambda number: receipt_lines.is_of(receipts[number], at), range(len(receipts))):
            given = receipts[number].get("title")
            receipts[number] = receipt_lines.withdrawn(receipts[number])
            if given == self._records[session.id].title:
                await self.change(session.id, lambda record: record.renamed(""))

    async def remembering(self, ids: Collection[str]) -> list[str]:
        """See `SessionCatalog`."""
        return [each for each, lines in self._receipts.items() if any(line.get("remembered") in ids for line in lines)]

    async def unsay(self, sessions: Sequence[SessionRef], ids: Collection[str]) -> None:
        """See `SessionCatalog`."""
        kept = [session.id for session in sessions if session.id in self._records]
        told = receipt_lines.told_of((receipt for each in kept for receipt in self._receipts.get(each, ())), ids)
        for each in kept:
            self._receipts[each] = list(map(told.taken_from, self._receipts.get(each, ())))
            if self._records[each].title in told.titles:
                await self.change(each, lambda record: record.renamed(""))

    def ref(self, session_id: str) -> SessionRef:
        """See `SessionCatalog`."""
        return SessionRef(session_id, Path())


def _render(record: SessionRecord) -> bytes:
    return (json.dumps(record.as_json(), ensure_ascii=False, indent=2) + "\n").encode()


def _is_old(path: Path) -> bool:
    found = stamp(path)
    return found is not None and time.time() - found.mtime_ns / 1e9 > _STRAY_AFTER_S


def _backdate(draft: Path, moment: datetime) -> None:
    """Let the files of a session from elsewhere be as old as it is: when the index is built anew, it goes by that."""
    for path in draft.iterdir():
        os.utime(path, (moment.timestamp(), moment.timestamp()))


def _erase(path: Path) -> None:
    """Delete a folder, in which others may still be deleting, or be about to notice that they cannot lock it."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        shutil.rmtree(path)
