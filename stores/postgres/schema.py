"""The tables: one SQL file, run completely or not at all by `create`; all others check its version. Blocking."""

from importlib.resources import files
from typing import Any, Literal

import psycopg
from psycopg import errors, sql

from chatbot.stores.errors import BrokenStore, InvalidSettings, LaterFormat, StoreFailed
from chatbot.stores.home import without_password
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database_connection import CREATE, explain

VERSION = 1
TABLES = ("session", "message", "key_value", "head", "line", "document", "lease", "event", "piece")
"""Every table that has rows of identities."""
_BOUNDS = """
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = '30s';
SET LOCAL client_connection_check_interval = '2s'
"""
"""Bounds the wait for locks, and ends a statement soon after its process was killed."""
_ALONE = "LOCK TABLE chatbot.version IN SHARE ROW EXCLUSIVE MODE"
"""Waits for others who grant; everyone may read meanwhile."""

Done = Literal["created", "unchanged"]


def create(url: str, *, role: str = "") -> Done:
    """Create all tables or none; also concurrently. `role` may use them."""
    where = without_password(url)
    try:
        try:
            return _create(url, role, where)
        except (errors.UniqueViolation, errors.DuplicateTable):  # another process created them at the same time
            return _create(url, role, where)
    except errors.UndefinedObject as error:
        raise InvalidSettings(f"{where}: {error}".strip()) from error
    except psycopg.Error as error:
        raise explain(error, where) from error


def text() -> str:
    """Return the SQL that makes the tables."""
    return files("chatbot.stores.postgres").joinpath("schema.sql").read_text(encoding="utf-8")


def check_version(connection: psycopg.Connection[Any], where: str) -> None:
    """Raise a `StoreError` unless the tables are of the version that this release works with, and can hold any text."""
    _check_encoding(connection, where)
    if (row := _version(connection, where)) != (VERSION,):
        raise LaterFormat(
            f"{where}: the tables are of another release (version {row and row[0]}, this one knows {VERSION}): "
            "use that release, or another database"
        )


def _version(connection: psycopg.Connection[Any], where: str) -> tuple[int] | None:
    try:
        return connection.execute(statements.WITHOUT_IDENTITY["version"]).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
        raise StoreFailed(f"{where} has no tables of chatbot yet: run `{CREATE}`") from error
    except errors.UndefinedColumn as error:
        raise BrokenStore(
            f"{where}: the schema `chatbot` there belongs to another program: use another database"
        ) from error


def _check_encoding(connection: psycopg.Connection[Any], where: str) -> None:
    encoding = connection.info.parameter_status("server_encoding") or "UTF8"  # a pooler may not report it
    if encoding != "UTF8":
        raise InvalidSettings(
            f"{where}: the database is encoded in {encoding}, which cannot hold every text: use one that was created "
            "with `createdb --encoding=UTF8 --template=template0`"
        )


def _create(url: str, role: str, where: str) -> Done:
    with psycopg.connect(url.partition("#")[0], connect_timeout=10) as connection:
        connection.execute(_BOUNDS)
        _check_encoding(connection, where)
        done: Done = "unchanged"
        if connection.execute("SELECT to_regclass('chatbot.version')").fetchone() == (None,):
            done = "created"
            connection.execute(sql.SQL(text()))
            connection.execute("INSERT INTO chatbot.version (number) VALUES (%s)", (VERSION,))
        elif role:
            connection.execute(_ALONE)
        check_version(connection, where)
        _grant(connection, role)
        return done


def _grant(connection: psycopg.Connection[Any], role: str) -> None:
    if not role:
        return
    name = sql.Identifier(role)
    for statement in (
        "GRANT USAGE ON SCHEMA chatbot TO {}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA chatbot TO {}",
        "REVOKE INSERT, UPDATE, DELETE ON chatbot.version FROM {}",
    ):
        connection.execute(sql.SQL(statement).format(name))
    partitions = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'chatbot'::regnamespace AND relispartition AND relkind = 'r'"
    )
    for (part,) in partitions.fetchall():  # rows are only reached through the tables that have the policy
        connection.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(sql.Identifier("chatbot", part), name))
