"""From what PostgreSQL says went wrong to an error that says what to do."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import errors

from chatbot.stores.errors import ReadOnlyFolder, StoreAway, StoreBusy, StoreError, StoreFailed, UnknownOutcome

CREATE = "chatbot storage create"
_PASSING = (errors.SerializationFailure, errors.DeadlockDetected)
_TOO_BUSY = (errors.LockNotAvailable, errors.QueryCanceled, errors.TooManyConnections)
_OF_CONNECTIONS = "08"
"""Class of the errors of connections, by which PgBouncer too says that it reaches no server."""
_NO_ROOM = (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded)


def is_passing(error: psycopg.Error) -> bool:
    """Return True for a conflict between transactions, after which nothing was done and all may be tried again."""
    return isinstance(error, _PASSING)


def is_broken(error: psycopg.Error) -> bool:
    """Return True if the connection ended: the server stopped, restarts, or the network broke."""
    ended = (
        errors.AdminShutdown,
        errors.CrashShutdown,
        errors.CannotConnectNow,
        errors.IdleInTransactionSessionTimeout,
    )
    state = error.sqlstate or _OF_CONNECTIONS
    return isinstance(error, ended) or (isinstance(error, psycopg.OperationalError) and state[:2] == _OF_CONNECTIONS)


def unknown_end(error: psycopg.Error, where: str) -> StoreError:
    """Return the error for a write with an unknown outcome."""
    return UnknownOutcome(
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
    if fault := _fault(error):
        return StoreFailed(f"{where}{fault}")
    if is_broken(error):
        return StoreAway(f"{where}: {_found(_ABSENCES, error) or _short(error)}")
    return StoreFailed(f"{where}: {_short(error)}")


_FAULTS = {
    "password authentication failed": "the password is wrong: correct url in [storage]",
    "no password supplied": "a password is needed: put it into url in [storage], PGPASSWORD or ~/.pgpass",
    "no pg_hba.conf entry": "the server refuses connections from here: see its pg_hba.conf",
}
"""Errors of a connection that stay until somebody mends them."""
_NO_PRIMARY = "none of its servers may be written to: wait until one is promoted, or promote one (pg_ctl promote)"
_NOBODY = "no PostgreSQL answers there: start it, or correct url in [storage]"
_NO_HOST = "host not found: correct url in [storage]"
_FULL = "the database has no connection left: raise max_connections, or put PgBouncer before it"
_ABSENCES = {
    "session is read-only": _NO_PRIMARY,
    "server is in hot standby mode": _NO_PRIMARY,
    "could not translate host name": _NO_HOST,
    "failed to resolve host": _NO_HOST,
    "Name or service not known": _NO_HOST,
    "Connection refused": _NOBODY,
    "No such file or directory": _NOBODY,
    "timeout expired": _NOBODY,
    "too many clients": _FULL,
    "too many connections": _FULL,
    "remaining connection slots": _FULL,
    "is starting up": "the database is starting: try again",
    "not yet accepting connections": "the database is starting: try again",
    "recovery mode": "the database is starting: try again",
    "shutting down": "the database is stopping: try again",
}
"""Errors of a connection that may pass by themselves."""


def _fault(error: psycopg.Error) -> str:
    """Return what has to be fixed; empty for an error that may pass by itself, or an unknown one."""
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)):
        return f" has no tables of chatbot: run `{CREATE}`"
    if isinstance(error, errors.InsufficientPrivilege):
        whole = "for database" in str(error)
        remedy = "--url` with the owner of the database" if whole else "--role NAME` as the owner of the tables"
        return f": {_short(error)}: run `{CREATE} {remedy}"
    hint = _hint(error)
    return hint and f": {hint}"


def _hint(error: psycopg.Error) -> str:
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:  # it quotes what it could not read
        return "the address cannot be read: correct url in [storage], and write % in a password as %25"
    text = str(error)
    if "database" in text and "does not exist" in text:
        return "the database does not exist: create it with createdb, or correct url in [storage]"
    if "role" in text and "does not exist" in text:
        return "the role does not exist: create it with createuser, or correct url in [storage]"
    return _found(_FAULTS, error)


def _found(hints: Mapping[str, str], error: psycopg.Error) -> str:
    return next((hint for part, hint in hints.items() if part in str(error)), "")


def _short(error: psycopg.Error) -> str:
    if str(error) == "the connection is closed" and isinstance(error.__context__, psycopg.Error):
        return _short(error.__context__)  # why it was
    return str(error).strip().partition("\n")[0] or type(error).__name__
