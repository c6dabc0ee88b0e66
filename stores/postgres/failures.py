"""From what PostgreSQL says went wrong to an error that says what to do."""

from __future__ import annotations

import psycopg
from psycopg import errors

from chatbot.stores.errors import ReadOnlyFolder, StoreBusy, StoreError, StoreFailed

MIGRATE = "chatbot storage migrate"
_PASSING = (errors.SerializationFailure, errors.DeadlockDetected)
_TOO_BUSY = (errors.LockNotAvailable, errors.QueryCanceled, errors.TooManyConnections)
_NO_ROOM = (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded)


def is_passing(error: psycopg.Error) -> bool:
    """Return True for a conflict between transactions, after which nothing was done and all may be tried again."""
    return isinstance(error, _PASSING)


def is_broken(error: psycopg.Error) -> bool:
    """Return True where the connection ended: the server stopped, restarts, or the network broke."""
    ended = (
        errors.AdminShutdown,
        errors.CrashShutdown,
        errors.CannotConnectNow,
        errors.IdleInTransactionSessionTimeout,
    )
    return isinstance(error, ended) or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)


def unknown_end(error: psycopg.Error, where: str) -> StoreError:
    """Return the error for a write with an unknown outcome."""
    return StoreFailed(
        f"{where}: the connection broke while something was written, and it is not known whether it was kept: "
        f"look before you repeat it ({_short(error)})"
    )


def explained(error: psycopg.Error, where: str) -> StoreError:
    """Return the error that says what happened at `where`, a URL without its password, and what to do."""
    if isinstance(error, _TOO_BUSY) or is_passing(error):
        return StoreBusy(f"{where}: the database is busy, try again ({_short(error)})")
    if isinstance(error, _NO_ROOM):
        return StoreFailed(f"{where}: the database has no room, nothing was written ({_short(error)})")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return ReadOnlyFolder(
            f"{where} may only be read: name the primary server, or add target_session_attrs=read-write"
        )
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)):
        return StoreFailed(f"{where} has no tables of chatbot: run `{MIGRATE}`")
    if isinstance(error, errors.InsufficientPrivilege):
        whole = "for database" in str(error)
        remedy = "--url` with the owner of the database" if whole else "--role NAME` as the owner of the tables"
        return StoreFailed(f"{where}: {_short(error)}: run `{MIGRATE} {remedy}")
    return StoreFailed(f"{where}: {_hint(error) or _short(error)}")


_NO_PRIMARY = "none of its servers may be written to: wait until one is promoted, or promote one (pg_ctl promote)"
_HINTS = {
    "session is read-only": _NO_PRIMARY,
    "server is in hot standby mode": _NO_PRIMARY,
    "password authentication failed": "the password is wrong: correct url in [storage]",
    "no password supplied": "a password is needed: put it into url in [storage], PGPASSWORD or ~/.pgpass",
    "no pg_hba.conf entry": "the server refuses connections from here: see its pg_hba.conf",
    "could not translate host name": "host not found: correct url in [storage]",
    "failed to resolve host": "host not found: correct url in [storage]",
    "Name or service not known": "host not found: correct url in [storage]",
    "Connection refused": "no PostgreSQL answers there: start it, or correct url in [storage]",
    "No such file or directory": "no PostgreSQL answers there: start it, or correct url in [storage]",
    "timeout expired": "no PostgreSQL answers there: start it, or correct url in [storage]",
    "too many clients": "the database has no connection left: raise max_connections, or put PgBouncer before it",
    "too many connections": "the database has no connection left: raise max_connections, or put PgBouncer before it",
    "remaining connection slots": "the database has no connection left: raise max_connections, or use PgBouncer",
    "is starting up": "the database is starting: try again",
    "shutting down": "the database is stopping: try again",
}


def _hint(error: psycopg.Error) -> str:
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:  # it quotes what it could not read
        return "the address cannot be read: correct url in [storage], and write % in a password as %25"
    text = str(error)
    if "database" in text and "does not exist" in text:
        return "the database does not exist: create it with createdb, or correct url in [storage]"
    if "role" in text and "does not exist" in text:
        return "the role does not exist: create it with createuser, or correct url in [storage]"
    return next((hint for part, hint in _HINTS.items() if part in text), "")


def _short(error: psycopg.Error) -> str:
    if str(error) == "the connection is closed" and isinstance(error.__context__, psycopg.Error):
        return _short(error.__context__)  # why it was
    return str(error).strip().partition("\n")[0] or type(error).__name__
