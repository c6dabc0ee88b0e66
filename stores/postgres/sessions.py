"""Catalog of sessions as rows of `chatbot.session`. Blocking."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chatbot.stores.backend import Sessions
from chatbot.stores.errors import DamagedFile, InvalidValue, LaterFormat, MissingFolder, StoreError
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.place import PostgresPlace
from chatbot.stores.records import SessionRecord, SessionRef, decode_record, is_session_id

logger = logging.getLogger(__name__)

_FIRST_PAGE = 64
_PAGE = 1_024
_LAST_MOMENT = datetime(9999, 12, 31, tzinfo=UTC)
_LAST_ID = "~"


class PostgresSessions(Sessions):
    """The sessions of an identity."""

    def __init__(self, place: PostgresPlace) -> None:
        self._place = place

    def begin(self, record: SessionRecord) -> SessionRef:
        """Insert a draft row. Drafts of dead processes are deleted after a day."""
        for (stray,) in self._place.rows(statements.FORGET_DRAFTS):
            self._forget(stray)
        self._place.run(statements.BEGIN_SESSION, **_written(record))
        return self.ref(record.id)

    def publish(self, record: SessionRecord) -> None:
        """Mark the draft row as published; raises `MissingFolder` if there is none."""
        if not self._place.run(statements.PUBLISH_SESSION, **_written(record)):
            raise _missing(record.id)

    def abandon(self, session_id: str) -> None:
        """Delete the draft row."""
        self._forget(session_id)

    def ref(self, session_id: str) -> SessionRef:
        """Return a reference without a folder; raises `MissingFolder` for a malformed id."""
        if not is_session_id(session_id):
            raise MissingFolder(f"{session_id!r} is not a session id")
        return SessionRef(session_id, Path())

    def get(self, session_id: str) -> SessionRecord:
        """Select the record; raises `MissingFolder` if there is none."""
        rows = self._place.rows(statements.READ_SESSION, id=_text(session_id))
        if not rows:
            raise _missing(session_id)
        return _read(session_id, *rows[0])

    def find(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None = None, *, behind: str | None = None
    ) -> list[SessionRecord]:
        """Select sessions page by page, and read no further than needed."""
        found: list[SessionRecord] = []
        before, last = _LAST_MOMENT, _LAST_ID
        if behind is not None:
            rows = self._place.rows(statements.READ_SESSION, id=_text(behind))
            if not rows:
                return found
            before, last = rows[0][1], behind
        size = _FIRST_PAGE if limit is not None else _PAGE
        while limit is None or len(found) < limit:
            rows = self._place.rows(statements.FIND_SESSIONS, used_at=before, id=last, limit=size)
            found += filter(wanted, filter(None, (_readable(*row) for row in rows)))
            if len(rows) < size:
                break
            last, before, size = rows[-1][0], rows[-1][2], _PAGE
        return found[:limit]

    def ids(self) -> list[str]:
        """Select the ids of all sessions."""
        return [session_id for (session_id,) in self._place.rows(statements.SESSION_IDS)]

    def change(self, session_id: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        """Update the record under its row lock."""
        place = self._place
        with place.database.transaction(place.identity, statements.LOCK_SESSION, id=_text(session_id)) as transaction:
            if not transaction.first:
                raise _missing(session_id)
            record = change(_read(session_id, *transaction.first[0]))
            transaction.run(statements.CHANGE_SESSION, **_written(record))
        return record

    def note_used(self, session_id: str, now: datetime) -> None:
        """Update the time of last use; a failure is logged, not raised."""
        try:
            self._place.rows(statements.NOTE_USED, durable=False, id=_text(session_id), used_at=now)
        except StoreError as error:
            logger.warning("the use of session %s was not noted: %s", session_id, error)

    def delete(self, session_id: str) -> None:
        """Delete the row with everything that hangs on it."""
        if not self._forget(_text(session_id)):
            raise _missing(session_id)

    def _forget(self, session_id: str) -> bool:
        """Delete a session, before its parts, so that nothing is added to it; return whether it existed."""
        place = self._place
        with place.database.transaction(place.identity, statements.DELETE_SESSION, id=session_id) as transaction:
            for statement in statements.DELETE_OF_SESSION:
                transaction.run(statement, id=session_id)
            return bool(transaction.first)


def _written(record: SessionRecord) -> dict[str, Any]:
    text = json.dumps(record.as_json(), ensure_ascii=False)
    return {"id": record.id, "record": text, "used_at": record.used_at}


def _read(session_id: str, text: str, used_at: datetime) -> SessionRecord:
    try:
        record = decode_record(text.encode(), session_id)
    except LaterFormat as error:
        raise LaterFormat(f"session {session_id}: {error}") from error
    except InvalidValue as error:
        raise DamagedFile(f"the record of session {session_id} is damaged: {error}") from error
    return replace(record, used_at=used_at.astimezone(UTC))


def _readable(session_id: str, text: str, used_at: datetime) -> SessionRecord | None:
    try:
        return _read(session_id, text, used_at)
    except StoreError as error:
        logger.warning("%s: it is passed over", error)
        return None


def _text(session_id: str) -> str:
    """Return the id, which may be any text; one with a NUL, which no row has, is none."""
    return session_id.replace("\0", "")


def _missing(session_id: str) -> MissingFolder:
    return MissingFolder(f"no session has the id {session_id}")
