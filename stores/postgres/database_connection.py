"""Connections to the database with a limit on every wait, and transactions of one thread and identity. Blocking."""

import logging
import select
from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from msgspec import Struct
from psycopg import errors

from chatbot.stores.errors import (
    FullDisk,
    ReadOnlyFolder,
    StoreAway,
    StoreBusy,
    StoreError,
    StoreFailed,
    UnknownOutcome,
)
from chatbot.stores.postgres import statements

if TYPE_CHECKING:
    from chatbot.stores.postgres.database import Database

logger = logging.getLogger(__name__)

LONGEST_S = 60.0
"""Longest wait for an answer; the wait for another transaction's lock is shorter."""
MOST_SKEW_S = 2.0
"""Largest difference between the clock here and that of the database.

With more, messages that two servers write to one session would be out of order for prompts and `/undo`.
"""
_INTERVAL_S = 0.1
"""Seconds between two checks for Ctrl-C, as with psycopg."""
_NETWORK = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Seconds, or milliseconds, after which a dead network is noticed; a URL may override them."""

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_MOST_PREPARED = 200
"""Prepared statements of a connection: enough for all of ours with every combination of types."""

Row = tuple[Any, ...]
T = TypeVar("T")


class TimedConnection(psycopg.Connection[Row]):
    """A connection that breaks when the server gives no answer for too long."""

    has_other_isolation = False
    """True if each transaction must ask for the isolation that we need."""

    def wait(self, gen: Generator[Any, Any, T], interval: float = _INTERVAL_S, timeout: float | None = None) -> T:
        """Wait for an answer. Raises `OperationalError` if none comes."""
        try:
            return super().wait(gen, interval, timeout or LONGEST_S)
        except psycopg.errors._WaitTimeout as error:  # noqa: SLF001 - it has no public name
            if timeout is not None:
                raise
            self.pgconn.finish()  # a late answer would be taken for that of another statement
            raise psycopg.OperationalError(f"the database gave no answer for {LONGEST_S:g} s") from error


def skew_of(connection: psycopg.Connection[Row]) -> float:
    """Return by at least how many seconds this clock is ahead of the database's; negative if behind."""
    begun = datetime.now(UTC)
    [(there,)] = connection.execute(statements.WITHOUT_IDENTITY["clock"]).fetchall()
    ended = datetime.now(UTC)
    ahead = (begun - there) if begun > there else (ended - there) if ended < there else timedelta()
    return ahead.total_seconds()


def check_clock(connection: psycopg.Connection[Row], where: str) -> None:
    """Raise `StoreFailed` if the clocks of this machine and the database differ too much."""
    seconds = skew_of(connection)
    if abs(seconds) > MOST_SKEW_S:
        raise StoreFailed(
            f"the clock here is {abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'} that of {where}: "
            "set both by the network (NTP), as messages are ordered by time"
        )


def settings_of(url: str) -> dict[str, Any]:
    """Return settings of a connection besides those in the URL."""
    network = {name: value for name, value in _NETWORK.items() if name not in url}
    return {"autocommit": True, "prepare_threshold": None, "client_encoding": "utf8", **network}


def expect_iso_dates(connection: psycopg.Connection[Row]) -> None:
    """Undo a `DateStyle` of the role, the database or the environment that psycopg cannot read."""
    if not (connection.info.parameter_status("DateStyle") or "").startswith("ISO"):
        connection.execute(statements.WITHOUT_IDENTITY["dates"])


def has_ended(connection: psycopg.Connection[Row]) -> bool:
    """Return whether the server has closed an idle connection, to which it sends nothing else; if so, close it."""
    poll = select.poll()  # select takes no descriptor above 1023
    poll.register(connection.fileno(), select.POLLIN)
    if has_ended := bool(poll.poll(0)):
        connection.close()
    return has_ended


def is_read_only(connection: psycopg.Connection[Row]) -> bool:
    """Return whether the server has become a standby, which it reports with every answer."""
    names = (b"in_hot_standby", b"default_transaction_read_only")
    return any(connection.pgconn.parameter_status(name) == b"on" for name in names)


def configure(connection: TimedConnection) -> None:
    """Let the database cache plans, unless a pooler may use another connection for each statement.

    All statements use primary keys, so one plan suits all values. Whoever waits for a lock must see what was committed
    meanwhile, whatever isolation the role or the database has.
    """
    expect_iso_dates(connection)
    [(process, isolation)] = connection.execute(statements.WITHOUT_IDENTITY["process"]).fetchall()
    if process == connection.info.backend_pid:  # a pooler, such as PgBouncer, reports a process id of its own
        connection.prepare_threshold = 0
        connection.prepared_max = _MOST_PREPARED
        connection.execute(statements.WITHOUT_IDENTITY["defaults"])
    else:
        connection.has_other_isolation = isolation != "read committed"


@cache
def encode_statement(statement: str) -> bytes:
    """Return the statement, one of our constants, as it is sent."""
    return statement.encode()


CREATE = "chatbot storage create"
_CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected)
_TOO_BUSY = (errors.LockNotAvailable, errors.QueryCanceled, errors.TooManyConnections)
_OF_CONNECTIONS = "08"
"""Class of connection errors, also used by PgBouncer if it reaches no server."""
_ENDED = ("57P", "25P03", "25P04")
"""States of a server that stops, and of a session or transaction that it ended because it took too long."""
_NO_ROOM = (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded)


def is_conflict(error: psycopg.Error) -> bool:
    """Return True for a conflict between transactions: nothing was done, and all can be retried."""
    return isinstance(error, _CONFLICTS)


def is_broken(error: psycopg.Error) -> bool:
    """Return True if the connection ended: the server stopped, restarts or ended it, or the network broke."""
    state = error.sqlstate or (_OF_CONNECTIONS if isinstance(error, psycopg.OperationalError) else "")
    return state.startswith((_OF_CONNECTIONS, *_ENDED))


def unknown_end(error: psycopg.Error, where: str) -> UnknownOutcome:
    """Return the error for a write with an unknown outcome."""
    return UnknownOutcome.of(f"{where}: the connection broke", _short(error))


def explain(error: psycopg.Error, where: str) -> StoreError:
    """Return the error with what happened at `where`, a URL without its password, and what to do."""
    full = _hint_for(_FULL, error)
    if full or isinstance(error, _TOO_BUSY) or is_conflict(error):
        return StoreBusy(f"{where}: {full or f'the database is busy, try again ({_short(error)})'}")
    if isinstance(error, _NO_ROOM):
        kind = FullDisk if isinstance(error, errors.DiskFull) else StoreFailed
        return kind(f"{where}: the database has no room, nothing was written ({_short(error)})")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return ReadOnlyFolder(f"{where} is read-only: name the primary server, or add target_session_attrs=read-write")
    if fault := _fault(error):
        return StoreFailed(f"{where}{fault}")
    if is_broken(error):
        return StoreAway(f"{where}: {_hint_for(_TEMPORARY_FAULTS, error) or _short(error)}")
    return StoreFailed(f"{where}: {_short(error)}")


_PERMANENT_FAULTS = {
    "password authentication failed": "the password is wrong: correct url in [storage]",
    "no password supplied": "a password is needed: put it into url in [storage], PGPASSWORD or ~/.pgpass",
    "no pg_hba.conf entry": "the server refuses connections from here: see its pg_hba.conf",
}
_NO_PRIMARY = "no server that answers accepts writes: wait until one is promoted, or promote one (pg_ctl promote)"
_NO_SERVER = "no PostgreSQL answers there: start it, or correct url in [storage]"
_NO_HOST = "host not found: correct url in [storage]"
_FULL = dict.fromkeys(
    ("too many clients", "too many connections", "remaining connection slots"),
    "the database has no connection left: raise max_connections or the CONNECTION LIMIT of the role, or put PgBouncer "
    "in front",
)
"""Errors of a database that has no connection left: those that we have still work."""
_TEMPORARY_FAULTS = {
    "session is read-only": _NO_PRIMARY,
    "server is in hot standby mode": _NO_PRIMARY,
    "could not translate host name": _NO_HOST,
    "failed to resolve host": _NO_HOST,
    "Name or service not known": _NO_HOST,
    "Connection refused": _NO_SERVER,
    "No such file or directory": _NO_SERVER,
    "timeout expired": _NO_SERVER,
    "is starting up": "the database is starting: try again",
    "not yet accepting connections": "the database is starting: try again",
    "recovery mode": "the database is starting: try again",
    "shutting down": "the database is stopping: try again",
}


def _fault(error: psycopg.Error) -> str:
    """Return what to fix; empty for a temporary or unknown error."""
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)):
        return f" has no tables of chatbot: run `{CREATE}`"
    if isinstance(error, errors.InsufficientPrivilege):
        is_database = "for database" in str(error)
        remedy = "--url` with the owner of the database" if is_database else "--role NAME` as the owner of the tables"
        return f": {_short(error)}: run `{CREATE} {remedy}"
    hint = _hint(error)
    return hint and f": {hint}"


def _hint(error: psycopg.Error) -> str:
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:  # it quotes the URL
        return "the address cannot be read: correct url in [storage], and write % in a password as %25"
    text = str(error)
    if "database" in text and "does not exist" in text:
        return "the database does not exist: create it with createdb, or correct url in [storage]"
    if "role" in text and "does not exist" in text:
        return "the role does not exist: create it with createuser, or correct url in [storage]"
    return _hint_for(_PERMANENT_FAULTS, error)


def _hint_for(hints: Mapping[str, str], error: psycopg.Error) -> str:
    return next((hint for part, hint in hints.items() if part in str(error)), "")


def _short(error: psycopg.Error) -> str:
    if str(error) == "the connection is closed" and isinstance(error.__context__, psycopg.Error):
        return _short(error.__context__)  # the cause
    return str(error).strip().partition("\n")[0] or type(error).__name__


Statement = tuple[str, dict[str, Any]]


class RowResult(Struct, frozen=True):
    """The rows that a statement returned, and how many it touched."""

    rows: list[Row]
    touched: int


class Transaction:
    """A transaction of the thread that began it, or a part of the one that it already holds."""

    def __init__(self, database: "Database", identity: str, *, durable: bool) -> None:
        self._database = database
        self._durable = durable
        self._outer = database.held.get(identity)
        self.connection: psycopg.Connection[Row]
        self._pool_exit: Any = None
        self.first: list[Row] = []
        self._identity = identity

    def start(self, first: str, values: dict[str, Any]) -> None:
        """Begin, and run the first statement."""
        if self._outer is not None:
            self.connection = self._outer.connection
            self.first = self.rows(first, **values)
            return
        database = self._database
        database.write_queued(self._identity)
        if not database.holding.acquire(timeout=database.longest_wait_s):
            raise StoreBusy(f"{database.shown}: too many changes at once for {database.longest_wait_s:g} s")
        try:
            database.retry(lambda: self._begin(first, values), is_safe=True)
        except BaseException:
            database.holding.release()
            raise
        database.held[self._identity] = self

    def commit(self, *last: Statement) -> None:
        """Run the `last` statements and commit in one round trip. Raises `StoreFailed` if the result is unknown."""
        if self._outer is not None:
            for statement, values in last:
                self.run(statement, **values)
        elif self._pool_exit is not None:
            try:
                with self.connection.pipeline():
                    for each in last:
                        send(self.connection, self._identity, each)
                    self.connection.execute("COMMIT")
            except psycopg.Error as error:
                if is_broken(error):
                    raise unknown_end(error, self._database.shown) from error
                self._roll_back()
                raise explain(error, self._database.shown) from error
            finally:
                self._end()

    def abort(self) -> None:
        """Undo everything; a part of another transaction is undone with that one."""
        if self._outer is None and self._pool_exit is not None:
            try:
                self._roll_back()
            finally:
                self._end()

    def rows(self, statement: str, **values: Any) -> list[Row]:
        """Run a statement and return its rows; none for one that returns none."""
        return self._ask(statement, values).rows

    def run(self, statement: str, **values: Any) -> int:
        """Run a statement; return how many rows it touched."""
        return self._ask(statement, values).touched

    def _ask(self, statement: str, values: dict[str, Any]) -> RowResult:
        try:
            return answer_of(send(self.connection, self._identity, (statement, values)))
        except psycopg.Error as error:
            raise explain(error, self._database.shown) from error

    def _roll_back(self) -> None:
        try:
            self.connection.execute("ROLLBACK")
        except psycopg.Error as error:
            logger.debug("a transaction ended with its connection: %s", error)

    def _begin(self, first: str, values: dict[str, Any]) -> None:
        borrowed = self._database.connection()
        connection = borrowed.__enter__()
        try:
            with connection.pipeline():
                connection.execute(BEGIN)
                connection.execute(
                    encode_statement(statements.ACT), self._database.begin_values(self._identity, durable=self._durable)
                )
                cursor = send(connection, self._identity, (first, values))
            self.first = answer_of(cursor).rows
        except BaseException:
            if not connection.closed:
                connection.rollback()
            borrowed.__exit__(None, None, None)
            raise
        self.connection, self._pool_exit = connection, borrowed

    def _end(self) -> None:
        self._database.held.pop(self._identity, None)
        borrowed, self._pool_exit = self._pool_exit, None
        borrowed.__exit__(None, None, None)
        self._database.holding.release()


def send(connection: psycopg.Connection[Row], identity: str, wanted: Statement) -> psycopg.Cursor[Row]:
    """Send a statement in the name of an identity."""
    statement, values = wanted
    return connection.execute(encode_statement(statement), values | {"identity": identity})


def answer_of(cursor: psycopg.Cursor[Row]) -> RowResult:
    """Return the answer to a statement."""
    return RowResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)
