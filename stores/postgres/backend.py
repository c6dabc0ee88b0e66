"""Backend of an identity in PostgreSQL, its sessions as rows of `chatbot.session`, and its examination. Blocking."""

import json
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from chatbot.stores.backend import Backend, Examination, Flaw, Sessions
from chatbot.stores.errors import MISFITS, DamagedFile, LaterFormat, MissingFolder, StoreError, StoreFailed
from chatbot.stores.fields import how_many
from chatbot.stores.home import Address
from chatbot.stores.json_lines import damage_of, record_of
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database import Database, TurnRead
from chatbot.stores.postgres.database_connection import CREATE, Row
from chatbot.stores.postgres.place import PostgresPlace
from chatbot.stores.records import SessionRecord, SessionRef, decode_record, is_id
from chatbot.stores.row_events import parse_event

logger = logging.getLogger(__name__)

_FIRST_PAGE = 64
"""Sessions of the first page that a search with a limit reads."""
_AT_ONCE = 1_024
_LAST_MOMENT, _LAST_ID = datetime(9999, 12, 31, tzinfo=UTC), "~"
"""A use after every other, and an id that sorts after every other: where the first page begins."""


class PostgresSessions(Sessions):
    """The sessions of an identity."""

    def __init__(self, place: PostgresPlace) -> None:
        self._place = place

    def begin(self, record: SessionRecord) -> SessionRef:
        """Insert a draft row. Drafts of dead processes are deleted after a day."""
        for (stray,) in self._place.rows(statements.DELETE_DRAFTS):
            self._forget(stray)
        self._place.run(statements.BEGIN_SESSION, **_columns(record))
        return self.ref(record.id)

    def publish(self, record: SessionRecord) -> None:
        if not self._place.run(statements.PUBLISH_SESSION, **_columns(record)):
            raise MissingFolder.of(record.id)

    def abandon(self, session_id: str) -> None:
        self._forget(session_id)

    def ref(self, session_id: str) -> SessionRef:
        return SessionRef(_as_id(session_id), Path())

    def turn_reads(self, session_id: str, see: Callable[[SessionRecord], None]) -> Sequence[TurnRead]:
        def keep(rows: list[Row]) -> None:
            for record in filter(None, (_readable(session_id, *row) for row in rows)):
                see(record)

        return [TurnRead(self._place.database, self._place.identity, statements.READ_SESSION, {"id": session_id}, keep)]

    def get(self, session_id: str) -> SessionRecord:
        if not (rows := self._place.rows(statements.READ_SESSION, id=_as_id(session_id))):
            raise MissingFolder.of(session_id)
        return _record(session_id, *rows[0])

    def find(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None = None, *, after_id: str | None = None
    ) -> list[SessionRecord]:
        found: list[SessionRecord] = []
        before, last = _LAST_MOMENT, _LAST_ID
        if after_id is not None:
            rows = self._place.rows(statements.READ_SESSION, id=after_id) if is_id(after_id) else []
            if not rows:
                return found
            before, last = rows[0][1], after_id
        size = _FIRST_PAGE if limit is not None else _AT_ONCE
        while limit is None or len(found) < limit:
            rows = self._place.rows(statements.FIND_SESSIONS, used_at=before, id=last, limit=size)
            found += filter(wanted, filter(None, (_readable(*row) for row in rows)))
            if len(rows) < size:
                break
            last, before, size = rows[-1][0], rows[-1][2], _AT_ONCE
        return found[:limit]

    def ids(self) -> list[str]:
        return [session_id for (session_id,) in self._place.rows(statements.SESSION_IDS)]

    def change(self, session_id: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        place = self._place
        with place.database.transaction(place.identity, statements.LOCK_SESSION, id=_as_id(session_id)) as transaction:
            if not transaction.first:
                raise MissingFolder.of(session_id)
            record = change(_record(session_id, *transaction.first[0]))
            transaction.run(statements.CHANGE_SESSION, **_columns(record))
        return record

    def note_used(self, session_id: str, now: datetime) -> None:
        try:
            self._place.rows(statements.NOTE_USED, durable=False, id=_as_id(session_id), used_at=now)
        except StoreError as error:
            logger.warning("the use of session %s was not noted: %s", session_id, error)

    def delete(self, session_id: str) -> None:
        if not self._forget(_as_id(session_id)):
            raise MissingFolder.of(session_id)
        for (draft,) in self._place.rows(statements.FORKS_BEGUN, id=session_id):
            self._forget(draft)

    def _forget(self, session_id: str) -> bool:
        """Delete a session, then its parts, so that none are added meanwhile; return whether it existed."""
        place = self._place
        with place.database.transaction(place.identity, statements.DELETE_SESSION, id=session_id) as transaction:
            for statement in statements.DELETE_OF_SESSION:
                transaction.run(statement, id=session_id)
            return bool(transaction.first)


def _columns(record: SessionRecord) -> dict[str, Any]:
    text = json.dumps(record.as_json(), ensure_ascii=False)
    return {"id": record.id, "record": text, "used_at": record.used_at}


@lru_cache(maxsize=10_000)  # every page lists the sessions: decoding one takes 30 µs
def _record(session_id: str, text: str, used_at: datetime) -> SessionRecord:
    try:
        record = decode_record(text.encode(), session_id)
    except LaterFormat as error:
        raise LaterFormat(f"session {session_id}: {error}") from error
    except ValueError as error:
        raise DamagedFile(f"the record of session {session_id} is damaged: {error}") from error
    return replace(record, used_at=used_at.astimezone(UTC))


def _readable(session_id: str, text: str, used_at: datetime) -> SessionRecord | None:
    try:
        return _record(session_id, text, used_at)
    except StoreError as error:
        logger.warning("%s: it is skipped", error)
        return None


def _as_id(session_id: str) -> str:
    """Return a valid id. Raises `MissingFolder` for any other text, as PostgreSQL refuses some in its own way."""
    if not is_id(session_id):
        raise MissingFolder.of(session_id)
    return session_id


class PostgresBackend(PostgresPlace, Backend):
    """The rows of one identity. Connects when it is first used."""

    saves_trips = True

    def __init__(self, address: Address) -> None:
        super().__init__(address, Database.of(address.url))
        self._address = address
        self._release = weakref.finalize(self, self.database.release)
        self.sessions: PostgresSessions = PostgresSessions(self)

    def place_of(self, session: SessionRef) -> PostgresPlace:
        return PostgresPlace(self._address, self.database, session.id)

    def write_together(self, writes: Sequence[Callable[[], object]]) -> list[StoreError | None]:
        """Make the writes in one transaction."""
        return self.database.together(self.identity, writes)

    def is_there(self) -> bool:
        return bool(self.rows(statements.IS_THERE))

    def refusal(self) -> OSError | None:
        try:
            self.rows(statements.NOTE_USED, durable=False, id="", used_at="-infinity")  # a write that changes no row
        except StoreError as error:
            return error if isinstance(error, OSError) else StoreFailed(str(error))
        return None

    def why_not_isolated(self) -> str:
        reason = self.database.why_not_isolated()
        return reason and (
            f"{self.database.shown}: its role {reason}, so the database would not keep identities apart: "
            "use a role that `chatbot storage create --role NAME` was run for"
        )

    def examine(self, options: Examination) -> Iterator[Flaw]:
        return examine(self, options)

    def sizes(self) -> Mapping[str, int]:
        return {"sessions": int(self.rows(statements.SIZE_OF_SESSIONS)[0][0])}

    def close(self) -> None:
        self._release()


_NAMED = 3
"""Maximum sessions or lines that a flaw names."""


def examine(backend: PostgresBackend, options: Examination) -> Iterator[Flaw]:
    """Examine the connection, the role, the sessions, and the lines that `options` names."""
    try:
        reason = backend.why_not_isolated()
        closed = backend.database.closed_tables()
        ids = backend.sessions.ids()
        skew = backend.database.clock_skew()
    except StoreError as error:
        yield Flaw("storage", "bad", str(error))
        return
    yield Flaw("storage", "note" if reason else "ok", reason or f"PostgreSQL: {backend.name}")
    if closed:
        remedy = f"run `{CREATE} --role NAME` as the owner of the tables"
        yield Flaw(
            "storage", "bad", f"{backend.database.shown}: its role lacks rights to {', '.join(closed)}: {remedy}"
        )
    elif refusal := backend.refusal():
        yield Flaw("storage", "bad", str(refusal))
    yield Flaw("clock", "ok", f"differs from that of the database by less than {abs(skew) + 0.1:.1f} s")
    yield from _examine_sessions(backend, ids)
    for name, (subject, check) in options.subjects.items():
        yield _examine_lines(subject, _lines_of(backend, name), check, verify=options.verify)


def examine_events(lines: Iterable[bytes], *, verify: bool) -> list[Flaw]:
    """Examine every line of the log of observations; nothing if it is empty."""
    added = 0

    def check(line: bytes) -> None:
        nonlocal added
        added += parse_event(record_of(line)).kind == "add"

    flaw = _examine_lines("memory", lines, check, verify=verify)
    if flaw.state == "ok":
        return [Flaw("memory", "ok", f"{how_many(added, 'memory')} added in total, all readable")] if added else []
    return [flaw]


def _examine_sessions(backend: PostgresBackend, ids: list[str]) -> list[Flaw]:
    found, damaged = list[Flaw](), list[str]()
    for each in sorted({*ids} - {record.id for record in backend.sessions.find(lambda _: True)}):
        try:
            backend.sessions.get(each)
        except LaterFormat as error:
            found.append(Flaw("sessions", "bad", str(error), is_later=True))
        except DamagedFile:
            damaged.append(each)
        except MissingFolder:  # it was deleted meanwhile
            continue
    if damaged:
        what = f"{len(damaged)} of {len(ids)} cannot be read: {', '.join(damaged[:_NAMED])}"
        found.append(Flaw("sessions", "bad", what))
    valid = f"{how_many(len(ids), 'session')}, all valid" if ids else "no sessions yet"
    return found or [Flaw("sessions", "ok", valid)]


def _lines_of(backend: PostgresBackend, name: str) -> Iterator[bytes]:
    before = statements.BEYOND_ALL
    while rows := backend.rows(statements.LINES_BEFORE, name=name, before=before, limit=_AT_ONCE):
        yield from (text.encode() for _, text in rows)
        before = rows[-1][0]


def _examine_lines(subject: str, lines: Iterable[bytes], check: Callable[[bytes], object], *, verify: bool) -> Flaw:
    count, wrong = 0, []
    for line in lines:
        count += 1
        try:
            check(line)
            problem = damage_of(line) if verify else ""
        except LaterFormat as error:
            return Flaw(subject, "bad", str(error), is_later=True)
        except MISFITS as error:
            problem = str(error) or type(error).__name__
        if problem:
            wrong.append(problem)
    if wrong:
        return Flaw(subject, "bad", f"{len(wrong)} of {how_many(count, 'line')} damaged: {'; '.join(wrong[:_NAMED])}")
    return Flaw(subject, "ok", f"{how_many(count, 'line')}, all valid" if count else "empty")
