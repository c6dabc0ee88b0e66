"""One pool of connections to a database, shared by all identities of this process. Blocking.

A statement is a transaction in one round trip for one identity: it sets `chatbot.identity`, by which the database
itself refuses rows of others. `transaction` holds a connection for several; all statements of its thread for
that identity join it. Some connections are kept free, so that a thread that holds one never waits for another.
"""

import atexit
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar, TypeVar

import psycopg
from msgspec import Struct
from psycopg_pool import ConnectionPool, PoolTimeout

from chatbot.stores.errors import ClosedResource, MissingFolder, StoreBusy, StoreError, UnknownOutcome
from chatbot.stores.home import without_password
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database_connection import (
    BEGIN,
    MOST_SKEW_S,
    Row,
    RowResult,
    Statement,
    TimedConnection,
    Transaction,
    answer_of,
    check_clock,
    configure,
    encode_statement,
    expect_iso_dates,
    explain,
    has_ended,
    is_broken,
    is_conflict,
    is_read_only,
    send,
    settings_of,
    skew_of,
    unknown_end,
)
from chatbot.stores.postgres.schema import check_version
from chatbot.stores.span import count

MOST_CONNECTIONS = 10
"""Maximum connections of a process, whatever the number of users."""
_KEPT_FREE = 2
_LONGEST_WAIT_S = 30.0
"""Longest wait for a connection, and for a lock."""
_ATTEMPTS = 6
_FIRST_PAUSE_S = 0.01
_IDLE_S = 300.0
_CLOSING_S = 2.0
_MOST_BEGUN = 10_000
COMPARED_EVERY_S = 60.0

T = TypeVar("T")


class TurnRead(Struct, frozen=True):
    """A read that is made together with taking a turn's lease; `keep` is given its rows."""

    database: "Database"
    identity: str
    statement: str
    values: dict[str, Any]
    keep: Callable[[list[Row]], None]


class QueuedWrite(Struct, frozen=True):
    """A row to add with the next operation of the thread; see `Database.together`."""

    statement: Statement
    write: Callable[..., None]
    report: Callable[[StoreError], None]

    def write_alone(self, unknown: UnknownOutcome | None) -> None:
        """Write it by itself, after the error of an earlier try that may have succeeded; report its failure."""
        try:
            self.write(unknown=unknown)
        except StoreError as error:
            self.report(error)


class Database:
    """The database at a URL, opened when first used, and closed when its last user has called `release`."""

    _known: ClassVar["dict[str, Database]"] = {}
    _guard = threading.Lock()
    _released: ClassVar["SimpleQueue[Database]"] = SimpleQueue()
    """Databases, one entry for each use that was released."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.shown = without_password(url)
        self._is_one_of_several = "target_session_attrs" in url
        """True if the URL may name another server to use instead of a read-only one."""
        self._users = 0
        self._is_closed = False
        self._pool: ConnectionPool[TimedConnection] | None = None
        self._opening = threading.Lock()
        self._looking = threading.Lock()
        """Held while one thread checks whether the database is there."""
        self._looks = 0
        self._absence: StoreError | None = None
        """The error of the last look; None if it found the database."""
        self._compared_at, self._offset = time.monotonic(), _offset()
        """When the clocks were last compared, and the setting of the clock here at that time."""
        self.holding = threading.BoundedSemaphore(MOST_CONNECTIONS - _KEPT_FREE)
        """Limits the transactions that hold a connection, so that some stay free."""
        self._of_thread = threading.local()
        self._begun: set[tuple[str, str, str]] = set()
        """Lines that have their row in `chatbot.head`, by identity, session and name."""

    @property
    def longest_wait_s(self) -> float:
        """Longest wait for a connection, and for a lock."""
        return _LONGEST_WAIT_S

    def begin_values(self, identity: str, *, durable: bool) -> dict[str, str]:
        """Return the values of the first statement of a transaction."""
        return {"identity": identity, "commit": "on" if durable else "off", "longest_wait": f"{_LONGEST_WAIT_S:g}s"}

    @classmethod
    def of(cls, url: str) -> "Database":
        """Return the database of that URL, counting one more user."""
        with cls._guard:
            database = cls._known.get(url)
            if database is None:
                database = cls._known[url] = cls(url)
            database._users += 1
        cls._close_unused()
        return database

    def release(self) -> None:
        """Give up one use of the database: the last one closes its connections.

        The garbage collector may call this in a thread that holds `_guard`, so it never waits: that thread closes it.
        """
        self._released.put(self)
        self._close_unused()

    @classmethod
    def _close_unused(cls) -> None:
        while not cls._released.empty() and cls._guard.acquire(blocking=False):
            try:
                unused = cls._without_users()
            finally:
                cls._guard.release()
            for database in unused:
                database.close()

    @classmethod
    def _without_users(cls) -> "list[Database]":
        """Return the databases without users. Needs `_guard`."""
        unused = []
        while not cls._released.empty():
            database = cls._released.get_nowait()
            database._users -= 1  # noqa: SLF001 - it is one of us
            if not database._users:  # noqa: SLF001
                unused.append(database)
                if cls._known.get(database.url) is database:
                    del cls._known[database.url]
        return unused

    def close(self) -> None:
        """Close the connections."""
        with self._opening:
            self._is_closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(timeout=_CLOSING_S)

    @classmethod
    def close_all(cls) -> None:
        """Close the connections to every database: at the end of the process, for users who did not release them."""
        with cls._guard:
            databases = list(cls._known.values())
            cls._known.clear()
        cls._close_unused()
        for database in databases:
            database.close()

    def rows(self, identity: str, statement: str, *, durable: bool = True, **values: Any) -> list[Row]:
        """Run one statement that only reads, or that may be run twice, and return its rows."""
        [answer] = self._at_once(identity, [(statement, values)], durable=durable, is_safe=True)
        return answer.rows

    def rows_along(
        self, identity: str, statement: str, reads: Sequence[TurnRead], *, durable: bool = True, **values: Any
    ) -> tuple[list[Row], list[list[Row]]]:
        """Return the rows of a statement as `rows` does, and those of `reads` after it, in one round trip."""
        also = [(read.statement, read.values) for read in reads]
        first, *others = self._at_once(identity, [(statement, values), *also], durable=durable, is_safe=True)
        return first.rows, [each.rows for each in others]

    def run(self, identity: str, statement: str, *, durable: bool = True, **values: Any) -> int:
        """Run a writing statement, commit; return the rows touched. Raises `StoreFailed` if the result is unknown."""
        [answer] = self._at_once(identity, [(statement, values)], durable=durable, is_safe=False)
        return answer.touched

    def append(
        self, identity: str, statement: str, missing: str, *, unknown: UnknownOutcome | None = None, **values: Any
    ) -> None:
        """Append rows, also the first ones of their lines. Raises `MissingFolder` if their session is gone.

        The statement `missing` appends those that are missing, if the connection breaks, or after the error `unknown`.
        """
        try:
            if unknown is not None:
                raise unknown
            is_there = self.run(identity, statement, **values) > 0
        except UnknownOutcome as error:
            lock = (statements.LOCK_LINES, values | {"count": 0})
            is_there = bool(self.find_out(identity, error, lock, (missing, values))[0])
        if not is_there:
            raise MissingFolder.of(values["session"])
        if len(self._begun) >= _MOST_BEGUN:
            self._begun.clear()
        self._begun.add((identity, values["session"], values["name"]))

    def find_out(self, identity: str, unknown: UnknownOutcome, *wanted: Statement) -> list[list[Row]]:
        """Run statements after a write with an unknown outcome, all or none; return the rows of each.

        Raises `unknown` if they fail. The first one should take the lock of that write, to wait for its end.
        """
        try:
            return [each.rows for each in self._at_once(identity, wanted, durable=True, is_safe=True)]
        except StoreError:
            raise unknown from unknown.__cause__

    def add(
        self, identity: str, statement: str, write: Callable[..., None], *, session: str, name: str, **values: Any
    ) -> bool:
        """Add a row to lines to which `append` has appended; return False if it has not, or if they are gone.

        Within `together` the row waits for the next operation. If the row cannot be added so, `write` does it, which
        gets the error `unknown` if that try may have succeeded.
        """
        if (identity, session, name) not in self._begun:
            return False
        values |= {"session": session, "name": name}
        if self.held.get(identity) is None and (queued := self._queued.get(identity)) is not None:
            queued.append(QueuedWrite((statement, values), write, self._of_thread.failed))
            return True
        try:
            return self.run(identity, statement, **values) == 1
        except UnknownOutcome as error:
            write(unknown=error)
        return True

    def together(self, identity: str, writes: Sequence[Callable[[], object]]) -> list[StoreError | None]:
        """Make these writes, in one transaction if they only add rows; see `Backend.write_together`."""
        failed: list[StoreError | None] = [None] * len(writes)
        self._queued[identity] = []
        try:
            for number, write in enumerate(writes):
                self._of_thread.failed = partial(failed.__setitem__, number)
                try:
                    write()
                except StoreError as error:
                    failed[number] = error
        finally:
            try:
                self.write_queued(identity)  # also after an error of another kind, which is raised
            finally:
                del self._queued[identity]
        return failed

    def write_queued(self, identity: str) -> None:
        """Make the queued writes of this thread."""
        self._at_once(identity, [], durable=True, is_safe=True)

    @property
    def held(self) -> dict[str, Transaction]:
        """The transactions that this thread holds, by identity."""
        held: dict[str, Transaction] = self._of_thread.__dict__.setdefault("held", {})
        return held

    @property
    def _queued(self) -> dict[str, list[QueuedWrite]]:
        """Writes of this thread that wait for the next operation, by identity."""
        queued: dict[str, list[QueuedWrite]] = self._of_thread.__dict__.setdefault("queued", {})
        return queued

    @contextmanager
    def transaction(self, identity: str, first: str, *, durable: bool = True, **values: Any) -> Iterator[Transaction]:
        """Hold a transaction that begins with `first`, retried while the database is busy; commit at its end."""
        begun = Transaction(self, identity, durable=durable)
        begun.start(first, values)
        try:
            yield begun
        except BaseException:
            begun.abort()
            raise
        begun.commit()

    def why_not_isolated(self) -> str:
        """Return why the role of this URL may see all identities; empty if it may not."""
        is_super, bypasses, owns = self._ask("rights")[0]
        if is_super:
            return "is a superuser"
        if bypasses:
            return "has BYPASSRLS"
        return "owns the tables" if owns else ""

    def closed_tables(self) -> list[str]:
        """Return the tables that the role of this URL may not read and write."""
        return [name for (name,) in self._ask("closed")]

    def _ask(self, name: str) -> list[Row]:
        with self._translated(), self.connection() as connection:
            return connection.execute(encode_statement(statements.WITHOUT_IDENTITY[name])).fetchall()

    @contextmanager
    def connection(self) -> Iterator[TimedConnection]:
        """Borrow a connection, outside of a transaction. Raises `StoreBusy` or `StoreFailed`."""
        pool = self._open_pool()
        if not isinstance(self._absence, StoreBusy | None):  # one that is full is there
            self._look()
        try:
            connection = pool.getconn()
            while has_ended(connection):  # here, as the pool sleeps longer after each that fails its check
                pool.putconn(connection)
                connection = pool.getconn()
        except PoolTimeout as error:
            self._look()
            why = f"all {MOST_CONNECTIONS} connections of this process were busy for {_LONGEST_WAIT_S:g} s"
            raise StoreBusy(f"{self.shown}: {why}") from error
        try:
            self._compare_clocks(connection)
            yield connection
        finally:
            if self._is_one_of_several and is_read_only(connection):
                connection.close()  # the next one asks each host again
            pool.putconn(connection)

    def retry(self, attempt: Callable[[], T], *, is_safe: bool) -> T:
        """Call `attempt` until it succeeds or fails permanently. `is_safe` says that it may be done twice."""
        pause, give_up = _FIRST_PAUSE_S, time.monotonic() + _LONGEST_WAIT_S
        for left in reversed(range(_ATTEMPTS)):
            try:
                return attempt()
            except psycopg.Error as error:
                is_moving = self._is_one_of_several and isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
                may_repeat = is_conflict(error) or (is_broken(error) and is_safe) or is_moving
                if is_broken(error) and not is_safe:
                    raise unknown_end(error, self.shown) from error
                if not (left and may_repeat and time.monotonic() < give_up):
                    raise explain(error, self.shown) from error
                count("storage_retries", cause=type(error).__name__)
                time.sleep(pause)
                pause *= 2
        raise AssertionError("unreachable")

    def _at_once(self, identity: str, wanted: Sequence[Statement], *, durable: bool, is_safe: bool) -> list[RowResult]:
        """Run statements in one round trip: as one transaction, or within that of this thread."""
        if (held := self.held.get(identity)) is not None:
            with self._translated():
                return [answer_of(send(held.connection, identity, each)) for each in wanted]

        if queued := self._queued.get(identity):
            self._queued[identity] = []
            answers = self._send_with_queued(identity, queued, wanted, is_safe=is_safe)
            if answers is not None:
                return answers
        if not wanted:
            return []
        return self.retry(lambda: self._send(identity, wanted, durable=durable), is_safe=is_safe)

    def _send_with_queued(
        self, identity: str, queued: Sequence[QueuedWrite], wanted: Sequence[Statement], *, is_safe: bool
    ) -> list[RowResult] | None:
        """Run the queued writes and then the wanted statements in one transaction; return None if it fails.

        Then each queued write is made by itself, so that only those that fail report a failure.
        """
        try:
            answers = self._send(identity, [*(each.statement for each in queued), *wanted], durable=True)
        except (psycopg.Error, StoreError) as error:
            unknown = None
            if isinstance(error, psycopg.Error) and is_broken(error):
                unknown = unknown_end(error, self.shown)
            for each in queued:
                each.write_alone(unknown)
            if wanted and unknown and not is_safe:
                raise unknown from error
            return None
        for each, answer in zip(queued, answers, strict=False):
            if answer.touched != 1:
                each.write_alone(None)
        return answers[len(queued) :]

    def _send(self, identity: str, wanted: Sequence[Statement], *, durable: bool) -> list[RowResult]:
        """Run statements as one transaction in one round trip."""
        with self.connection() as connection:
            with connection.pipeline():
                if connection.has_other_isolation:
                    connection.execute(BEGIN)
                connection.execute(encode_statement(statements.ACT), self.begin_values(identity, durable=durable))
                cursors = [send(connection, identity, each) for each in wanted]
                if connection.has_other_isolation:
                    connection.execute("COMMIT")
            return [answer_of(each) for each in cursors]  # before anyone else has the connection

    def _open_pool(self) -> ConnectionPool[TimedConnection]:
        if self._pool is None and not self._is_closed:
            self._look()
        with self._opening:
            if self._is_closed:
                raise ClosedResource(f"the connections to {self.shown} are closed")
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.url.partition("#")[0],
                    min_size=0,
                    connection_class=TimedConnection,
                    max_size=MOST_CONNECTIONS,
                    timeout=_LONGEST_WAIT_S,
                    max_idle=_IDLE_S,
                    reconnect_timeout=2.0,  # then it begins again, as its pauses grow
                    reconnect_failed=_connect_again,
                    kwargs=settings_of(self.url),
                    configure=configure,
                    open=True,
                )
            return self._pool

    def _connect_once(self) -> None:
        """Connect once without the pool, to report a wrong URL at once, and check versions and clocks."""
        where = self.url.partition("#")[0]
        with self._translated(), TimedConnection.connect(where, **settings_of(self.url)) as connection:
            expect_iso_dates(connection)
            check_version(connection, self.shown)
            check_clock(connection, self.shown)

    def _look(self) -> None:
        """Connect once for all who wait meanwhile: one after the other, each would wait for a dead network.

        Raises why the database cannot be used.
        """
        looks = self._looks
        with self._looking:
            if self._looks == looks:
                try:
                    self._connect_once()
                    self._absence = None
                except StoreError as error:
                    self._absence = error
                self._looks += 1
            if self._absence is not None:
                raise type(self._absence)(str(self._absence)) from self._absence

    def _compare_clocks(self, connection: psycopg.Connection[Row]) -> None:
        """Raise `StoreFailed` if the clocks differ, compared once a minute and when the clock here was set."""
        now, offset = time.monotonic(), _offset()
        if now >= self._compared_at + COMPARED_EVERY_S or abs(offset - self._offset) > MOST_SKEW_S / 2:
            check_clock(connection, self.shown)
            self._compared_at, self._offset = now, offset

    def clock_skew(self) -> float:
        """Return by how many seconds this clock is ahead of that of the database."""
        with self._translated(), self.connection() as connection:
            return skew_of(connection)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise explain(error, self.shown) from error


atexit.register(Database.close_all)


def _connect_again(pool: ConnectionPool[Any]) -> None:
    """Let the pool try to connect again, if anyone waits."""
    if pool.get_stats()["requests_waiting"]:
        pool.check()


def _offset() -> float:
    """Return a number that changes when the clock of this machine is set."""
    return time.time() - time.monotonic()
