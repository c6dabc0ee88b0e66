"""A connection to the database that waits for no answer for ever, and notices what became of its server. Blocking.

Neither a server that is stuck, nor a network that loses everything, nor a commit that waits for a synchronous standby
which is gone ends by itself.
"""

from __future__ import annotations

import select
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

import psycopg

from chatbot.stores.errors import StoreFailed
from chatbot.stores.postgres import statements

LONGEST_S = 60.0
"""Longest wait for an answer; that for a lock of another transaction is shorter."""
MOST_SKEW_S = 2.0
"""Largest difference between the clock here and that of the database.

With more, messages of one session that two servers write have times in the wrong order, by which prompts and `/undo`
choose them.
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
"""Seconds, and milliseconds, after which a network that loses everything is noticed; a URL may say others."""

_MOST_PREPARED = 200
"""Statements that a connection keeps prepared: all of ours, each with the types that its values come in."""

Row = tuple[Any, ...]
T = TypeVar("T")


class PatientConnection(psycopg.Connection[Row]):
    """A connection that breaks when the server gives no answer for too long."""

    def wait(self, gen: Generator[Any, Any, T], interval: float = _INTERVAL_S, timeout: float | None = None) -> T:
        """Wait for an answer. Raises `OperationalError` if none comes."""
        try:
            return super().wait(gen, interval, timeout or LONGEST_S)
        except psycopg.errors._WaitTimeout as error:  # noqa: SLF001 - it has no public name
            if timeout is not None:
                raise
            self.pgconn.finish()  # what comes yet would be taken for the answer to something else
            raise psycopg.OperationalError(f"the database gave no answer for {LONGEST_S:g} s") from error


def skew_of(connection: psycopg.Connection[Row]) -> float:
    """Return by how many seconds the clock here is ahead of that of the database, at least; negative if behind."""
    begun = datetime.now(UTC)
    [(there,)] = connection.execute(statements.WITHOUT_IDENTITY["clock"]).fetchall()
    ended = datetime.now(UTC)
    ahead = (begun - there) if begun > there else (ended - there) if ended < there else timedelta()
    return ahead.total_seconds()


def check_clock(connection: psycopg.Connection[Row], where: str) -> None:
    """Raise `StoreFailed` if the clock of this machine is wrong by that of the database."""
    seconds = skew_of(connection)
    if abs(seconds) > MOST_SKEW_S:
        raise StoreFailed(
            f"the clock here is {abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'} that of {where}: "
            "set both by the network (NTP), for messages are ordered by their times"
        )


def settings_of(url: str) -> dict[str, Any]:
    """Return settings of a connection besides those in the URL."""
    network = {name: value for name, value in _NETWORK.items() if name not in url}
    return {"autocommit": True, "prepare_threshold": None, **network}


def check(connection: psycopg.Connection[Row]) -> None:
    """Raise for a connection that the server has closed: nothing is ever sent to one that waits, but its end."""
    readable, _, _ = select.select([connection.fileno()], [], [], 0)
    if readable:
        connection.close()
        raise psycopg.OperationalError("the server closed the connection")


def is_read_only(connection: psycopg.Connection[Row]) -> bool:
    """Return whether the server has become a standby, which it reports with any answer."""
    names = (b"in_hot_standby", b"default_transaction_read_only")
    return any(connection.pgconn.parameter_status(name) == b"on" for name in names)


def is_direct(connection: psycopg.Connection[Row]) -> bool:
    """Return False if there is a pooler such as PgBouncer in between: it reports a process id of its own."""
    [(process,)] = connection.execute(statements.WITHOUT_IDENTITY["process"]).fetchall()
    return bool(process == connection.info.backend_pid)


def configure(connection: psycopg.Connection[Row]) -> None:
    """Have the database keep the plans of our statements, unless a pooler may give each of them another connection.

    All go by primary keys, so one plan is right for all values.
    """
    if is_direct(connection):
        connection.prepare_threshold = 0
        connection.prepared_max = _MOST_PREPARED
        connection.execute(statements.WITHOUT_IDENTITY["plans"])


def fetched(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """Return the rows of a statement; none for one that returns none."""
    return cursor.fetchall() if cursor.description else []


@cache
def prepared(statement: str) -> bytes:
    """Return the statement, one of our constants, as it is sent."""
    return statement.encode()
