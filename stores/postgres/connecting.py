"""Connections as we open and check them, and how a statement is sent."""

from __future__ import annotations

import select
from functools import cache
from typing import Any

import psycopg

from chatbot.stores.postgres import statements

Row = tuple[Any, ...]
_CONNECT_S = 10
_MOST_PREPARED = 200
"""Statements that a connection keeps prepared: all of ours, each with the types that its values come in."""


def how() -> dict[str, Any]:
    """Return the arguments of a connection."""
    return {"autocommit": True, "connect_timeout": _CONNECT_S, "prepare_threshold": None}


def is_direct(connection: psycopg.Connection[Row]) -> bool:
    """Return False where a pooler such as PgBouncer is in between: it tells a process id of its own."""
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


def check(connection: psycopg.Connection[Row]) -> None:
    """Raise for a connection that the server has closed: nothing is ever sent to one that waits, but its end."""
    readable, _, _ = select.select([connection.fileno()], [], [], 0)
    if readable:
        connection.close()
        raise psycopg.OperationalError("the server closed the connection")


def fetched(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """Return the rows of a statement; none for one that returns none."""
    return cursor.fetchall() if cursor.description else []


@cache
def prepared(statement: str) -> bytes:
    """Return the statement, one of our constants, as it is sent."""
    return statement.encode()
