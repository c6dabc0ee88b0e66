"""Lines, documents, leases and blobs of an identity, or of one of its sessions, as rows. Blocking.

The place of a deleted session raises `MissingFolder` on writing: each statement also finds and locks the session.
"""

import logging
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from chatbot.stores import backend
from chatbot.stores.errors import ClosedResource, InvalidValue, MissingFolder, StoreError, UnknownOutcome
from chatbot.stores.home import Address
from chatbot.stores.json_lines import encode, readable, record_of
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database import Database, TurnRead
from chatbot.stores.postgres.database_connection import Transaction

logger = logging.getLogger(__name__)

LAPSES_AFTER_S = 10.0
"""How long a lease outlives the process that held it."""
_RENEWALS = 4
"""Renewals per `LAPSES_AFTER_S`."""


class Leases:
    """The leases that this process holds in one database, renewed on one thread while it holds any.

    Times are those of the database, as the clocks of servers may differ. A process that dies, or pauses for longer than
    a lease lasts, loses it.
    """

    _known: ClassVar["WeakKeyDictionary[Database, Leases]"] = WeakKeyDictionary()
    _guard = threading.Lock()

    def __init__(self) -> None:
        self.lapses_after_s = LAPSES_AFTER_S
        self._held: defaultdict[str, set[str]] = defaultdict(set)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, database: Database) -> "Leases":
        """Return the leases of a database."""
        with cls._guard:
            return cls._known.setdefault(database, cls())

    def add(self, database: Database, identity: str, holder: str) -> None:
        """Renew that lease from now on, in the database that these leases are of."""
        with self._changed:
            self._held[identity].add(holder)
            if self._thread is None or not self._thread.is_alive():  # an unexpected error ended it
                self._thread = threading.Thread(target=self._renew, args=(database,), name="leases", daemon=True)
                self._thread.start()

    def drop(self, identity: str, holder: str) -> bool:
        """Stop renewing it; return False if it was not held."""
        with self._changed:
            held = self._held.get(identity, set())
            was_held = holder in held
            held.discard(holder)
            if not held:
                self._held.pop(identity, None)
            if not self._held:
                self._changed.notify_all()
        return was_held

    def _renew(self, database: Database) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._held, self.lapses_after_s / _RENEWALS)
                if not self._held:
                    self._thread = None
                    return
                held = {identity: list(holders) for identity, holders in self._held.items()}
            for identity, holders in held.items():
                self._renew_those(database, identity, holders)

    def _renew_those(self, database: Database, identity: str, holders: list[str]) -> None:
        try:
            rows = database.rows(
                identity, statements.RENEW_LEASES, durable=False, holders=holders, ttl=self.lapses_after_s
            )
        except ClosedResource:
            with self._changed:
                self._held.clear()
            return
        except StoreError as error:
            logger.warning("leases could not be renewed and may expire: %s", error)
            return
        if lost := [each for each in holders if (each,) not in rows and self.drop(identity, each)]:
            logger.warning("%d leases expired while this process was stopped: turns may overlap", len(lost))


_FIRST_PAGE = 64
_PAGE = 1_024
_AT_A_TIME = 2_000


class PostgresPlace(backend.Place):
    """The rows of an identity, or of one of its sessions. Nothing is created before the first write."""

    def __init__(self, address: Address, database: Database, session: str = "") -> None:
        self.database = database
        self.identity = address.identity
        self.session = session
        self.name = f"{address}{f' session {session}' if session else ''}"

    def lines(self, name: str) -> backend.Lines:
        return PostgresLines(self, backend.checked_name(name))

    def document(self, name: str) -> backend.Document:
        return PostgresDocument(self, backend.checked_name(name))

    def lease(self, name: str) -> backend.Lease:
        return PostgresLease(self, backend.checked_name(name))

    def blobs(self, name: str) -> backend.Blobs:
        return PostgresBlobs(self, backend.checked_name(name))

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement that may be run twice; see `Database.rows`."""
        return self.database.rows(self.identity, statement, session=self.session, **values)

    def run(self, statement: str, **values: Any) -> int:
        """Run a statement that writes; see `Database.run`."""
        return self.database.run(self.identity, statement, session=self.session, **values)

    @contextmanager
    def transaction(self, first: str, *, durable: bool = True, **values: Any) -> Iterator[Transaction]:
        """Hold a transaction; see `Database.transaction`. Raises `MissingFolder` if `first` finds no session."""
        with self.database.transaction(
            self.identity, first, durable=durable, session=self.session, **values
        ) as transaction:
            if not transaction.first:
                raise self.missing()
            yield transaction

    def missing(self) -> MissingFolder:
        """Return the error for a deleted session."""
        return MissingFolder.of(self.session)


class PostgresLines(backend.Lines):
    """Rows of `chatbot.line`, numbered by their row of `chatbot.head`; writing requires its lock."""

    def __init__(self, place: PostgresPlace, name: str) -> None:
        self._place = place
        self._name = name

    @contextmanager
    def alone(self) -> Iterator[backend.RecordWriter]:
        head: dict[str, Any] = {"name": self._name, "generation": new_generation(), "count": 0}
        with self._place.transaction(statements.LOCK_LINES, **head):
            yield _PostgresRecordWriter(self._place, self._name)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        place = self._place
        where = {"session": place.session, "name": self._name}
        write = partial(self._append, records)
        if len(records) == 1:
            one = {**where, "record": _text(records[0])}
            if place.database.add(place.identity, statements.ADD_LINE, write, **one):
                return
        if records:
            write()

    def _append(self, records: Sequence[Mapping[str, Any]], *, unknown: UnknownOutcome | None = None) -> None:
        """Append, also if there are no lines yet."""
        place, values = self._place, append_values(self._name, records) | {"session": self._place.session}
        place.database.append(place.identity, statements.APPEND, statements.APPEND_MISSING, unknown=unknown, **values)

    def newest_first(self) -> Iterator[backend.Record]:
        before, limit = statements.BEYOND_ALL, _FIRST_PAGE
        while True:
            rows = self._place.rows(statements.LINES_BEFORE, name=self._name, before=before, limit=limit)
            yield from self._readable(text for _, text in rows)
            if len(rows) < limit:
                return
            before, limit = rows[-1][0], _PAGE

    def since(self, mark: backend.Mark | None) -> backend.Reading:
        """Select at most 2,000 lines after the mark, in one round trip."""
        generation, n = mark if isinstance(mark, tuple) else (0, 0)
        rows = self._place.rows(statements.LINES_SINCE, name=self._name, generation=generation, n=n, limit=_AT_A_TIME)
        if not rows:
            return backend.Reading([], None, starts_over=True)
        starts_over = rows[0][0] != generation or rows[0][1] < n  # the database may have lost lines
        found = [(number, text) for _, _, number, text in rows if number is not None]
        end = found[-1][0] if found else (0 if starts_over else n)
        records = list(self._readable(text for _, text in found))
        return backend.Reading(records, (rows[0][0], end), starts_over, may_go_on=len(rows) == _AT_A_TIME)

    def _readable(self, texts: Iterable[str]) -> Iterator[backend.Record]:
        return readable((text.encode() for text in texts), f"{self._place.name} {self._name}")


class _PostgresRecordWriter:
    """A `RecordWriter` that writes while the row in `chatbot.head` is locked."""

    def __init__(self, place: PostgresPlace, name: str) -> None:
        self._place = place
        self._name = name

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        if records:
            self._place.run(statements.APPEND, **append_values(self._name, records))

    def rewrite(self, change: backend.RecordChange, *, holding: Collection[str] = ()) -> None:
        everything = {"before": statements.BEYOND_ALL, "limit": statements.BEYOND_ALL}
        lines = self._place.rows(statements.LINES_BEFORE, name=self._name, **everything)
        dropped, has_changed = [], False
        for n, text in reversed(lines):
            if holding and not any(each in text for each in holding):
                continue
            try:
                before = record_of(text.encode())
            except InvalidValue:
                continue
            after = change(before)
            if after is None:
                dropped.append(n)
            elif after != before:
                has_changed = True
                self._place.run(statements.CHANGE_LINE, name=self._name, n=n, record=_text(after))
        if dropped:
            self._place.run(statements.DROP_LINES, name=self._name, numbers=dropped)
        if dropped or has_changed:
            self._place.run(statements.RENEW_GENERATION, name=self._name, generation=new_generation())


class PostgresDocument(backend.Document):
    """A row of `chatbot.document`. Reading transfers the value only if it has changed."""

    def __init__(self, place: PostgresPlace, name: str) -> None:
        self._place = place
        self._name = name
        self.name = f"{place.name} {name}"
        self._known: tuple[int, bytes | None] = (0, None)

    def read(self) -> bytes | None:
        known, before = self._known
        if not (rows := self._place.rows(statements.READ_DOCUMENT, name=self._name, version=known)):
            self._known = (0, None)
        elif rows[0][0] != known:
            value = bytes(rows[0][1])
            self._known = (rows[0][0], before if value == before else value)
        return self._known[1]

    def change(self, change: Callable[[bytes | None], bytes], *, durable: bool = True) -> bytes:
        with self._place.transaction(statements.LOCK_DOCUMENT, durable=durable, name=self._name) as transaction:
            found = transaction.first[0][0]
            before = None if found is None else bytes(found)
            value = change(before)
            if value != before:
                self._write(transaction, value)
        return value

    def _write(self, transaction: Transaction, value: bytes) -> None:
        version, where = new_generation(), {"session": self._place.session, "name": self._name}
        try:
            transaction.commit((statements.WRITE_DOCUMENT, {**where, "value": value, "version": version}))
        except UnknownOutcome as unknown:
            lock, read = (statements.LOCK_DOCUMENT, where), (statements.READ_DOCUMENT, {**where, "version": version})
            if self._place.database.find_out(self._place.identity, unknown, lock, read)[1] != [(version, None)]:
                raise

    def set_aside(self) -> str:
        aside = f"{self._name}.{secrets.token_hex(4)}"
        return aside if self._place.run(statements.SET_DOCUMENT_ASIDE, name=self._name, aside=aside) else ""


class PostgresLease(backend.Lease):
    """A row of `chatbot.lease`, renewed by this process; expires soon after it dies."""

    def __init__(self, place: PostgresPlace, name: str) -> None:
        self._place = place
        self._name = name
        self._holder = secrets.token_hex(12)

    def take(self) -> bool:
        """Take the lease without waiting, not durably: a crash of the database ends all leases."""
        return self.take_with(())

    def take_with(self, reads: Sequence[object]) -> bool:
        place, leases = self._place, Leases.of(self._place.database)
        own = [each for each in reads if isinstance(each, TurnRead)]
        joined = [each for each in own if (each.database, each.identity) == (place.database, place.identity)]
        values = {"session": place.session, "name": self._name, "holder": self._holder}
        [(is_there, is_taken)], seen = place.database.rows_along(
            place.identity, statements.TAKE_LEASE, joined, durable=False, **values, ttl=leases.lapses_after_s
        )
        if not is_there:
            raise place.missing()
        if is_taken:
            leases.add(place.database, place.identity, self._holder)
            for read, rows in zip(joined, seen, strict=True):
                read.keep(rows)
        return bool(is_taken)

    def release(self) -> None:
        if Leases.of(self._place.database).drop(self._place.identity, self._holder):
            self._place.rows(statements.RELEASE_LEASE, durable=False, holder=self._holder)


def append_values(name: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of a statement that appends records."""
    return {"name": name, "generation": new_generation(), "count": len(records), "records": list(map(_text, records))}


def new_generation() -> int:
    """Return an unused number."""
    return secrets.randbits(62) | 1


def _text(record: Mapping[str, Any]) -> str:
    """Return the record as one line of JSON, in which a NUL is an escape."""
    return encode(record).decode().rstrip("\n")


class PostgresBlobs(backend.Blobs):
    """The blobs of one kind in a place. Deleted with their session, as documents are."""

    def __init__(self, place: PostgresPlace, kind: str) -> None:
        self._place = place
        self._kind = kind

    def put(self, data: bytes, suffix: str = "") -> str:
        name = backend.blob_name(data, suffix)
        PostgresDocument(self._place, self._row(name)).change(lambda _: data)
        return name

    def read(self, name: str) -> bytes | None:
        row = self._row(backend.checked_blob_name(name))
        rows = self._place.rows(statements.READ_DOCUMENT, name=row, version=0)
        return backend.checked_blob(name, bytes(rows[0][1])) if rows else None

    def sizes(self) -> dict[str, int]:
        rows = self._place.rows(statements.SIZES_OF_BLOBS, kind=f"{self._kind}/")
        return dict(sorted((name.partition("/")[2], size) for name, size in rows))

    def drop(self, name: str) -> None:
        self._place.run(statements.DROP_DOCUMENT, name=self._row(backend.checked_blob_name(name)))

    def _row(self, name: str) -> str:
        return f"{self._kind}/{name}"
