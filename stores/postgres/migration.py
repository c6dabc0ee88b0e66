"""Tables of a release: numbered SQL files, applied in order and never undone. Blocking.

Only `migrate` changes tables, with a role that owns them. Everyone else looks at the version, and refuses to work with
tables of another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import errors, sql

from chatbot.stores.errors import BrokenStore, InvalidSettings, LaterFormat, StoreFailed
from chatbot.stores.home import without_password
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.failures import MIGRATE, explained

_TABLES = "chatbot"
_BEGIN = f"""
CREATE SCHEMA IF NOT EXISTS {_TABLES};
CREATE TABLE IF NOT EXISTS {_TABLES}.migration (
    version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
);
"""
_ATTEMPTS = 10
_BOUNDS = """
SET LOCAL lock_timeout = '30s';
SET LOCAL client_connection_check_interval = '2s'
"""
"""Longest wait for what running servers do. A migration ends soon after its process was killed, not with its step."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a version to the next."""

    version: int
    name: str
    text: str


def migrations() -> list[Migration]:
    """Return every migration of this release, in order."""
    return sorted(_found(), key=lambda each: each.version)


def newest() -> int:
    """Return the version of the tables that this release works with."""
    return migrations()[-1].version


def migrate(url: str, *, role: str = "") -> list[str]:
    """Bring the tables to the version of this release; the names of what was applied. Whole or not at all.

    `role` is given the right to use them. Two at once apply everything once. Raises a `StoreError`.
    """
    where = without_password(url)
    for left in reversed(range(_ATTEMPTS)):
        try:
            with psycopg.connect(url.partition("#")[0], connect_timeout=10) as connection:
                applied = _apply(connection, where)
                _grant(connection, role)
                return applied
        except (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateSchema) as error:
            if not left:  # another process created the first table at the same time
                raise explained(error, where) from error
        except errors.UndefinedObject as error:
            raise InvalidSettings(f"{where}: {error}".strip()) from error
        except psycopg.Error as error:
            raise explained(error, where) from error
    raise AssertionError("unreachable")


TABLES = ("session", "message", "key_value", "head", "line", "document", "lease", "event", "piece")
"""Every table that has rows of identities, and is distributed by them."""


def distribution() -> list[str]:
    """Return the statements that distribute the tables with Citus, so that an identity is on one server."""
    first, *others = TABLES
    return [
        f"SELECT create_distributed_table('chatbot.{first}', 'identity');",
        *(
            f"SELECT create_distributed_table('chatbot.{each}', 'identity', colocate_with => 'chatbot.{first}');"
            for each in others
        ),
    ]


def check_version(connection: psycopg.Connection[Any], where: str) -> None:
    """Raise a `StoreError` unless the tables are of the version that this release works with."""
    try:
        found = _version(connection)
    except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
        raise StoreFailed(f"{where} has no tables of chatbot yet: run `{MIGRATE}`") from error
    except errors.UndefinedColumn as error:
        raise _somebody_elses(where) from error
    if found > newest():
        raise LaterFormat(
            f"{where}: written by a later release (version {found}, this one knows {newest()}): upgrade chatbot"
        )
    if found < newest():
        raise StoreFailed(f"{where} has tables of version {found}, and {newest()} is needed: run `{MIGRATE}`")


def _apply(connection: psycopg.Connection[Any], where: str) -> list[str]:
    connection.execute(_BOUNDS)
    connection.execute(_BEGIN)
    connection.execute("LOCK TABLE chatbot.migration IN SHARE ROW EXCLUSIVE MODE")
    try:
        done = _version(connection)
    except errors.UndefinedColumn as error:
        raise _somebody_elses(where) from error
    if done > newest():
        raise LaterFormat(f"{where}: written by a later release (version {done}): upgrade chatbot")
    waiting = [each for each in migrations() if each.version > done]
    for each in waiting:
        connection.execute(sql.SQL(each.text))
        connection.execute("INSERT INTO chatbot.migration (version, name) VALUES (%s, %s)", (each.version, each.name))
    return [f"{each.version:04} {each.name}" for each in waiting]


def _grant(connection: psycopg.Connection[Any], role: str) -> None:
    if not role:
        return
    name = sql.Identifier(role)
    for statement in (
        "GRANT USAGE ON SCHEMA chatbot TO {}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA chatbot TO {}",
        "REVOKE INSERT, UPDATE, DELETE ON chatbot.migration FROM {}",
    ):
        connection.execute(sql.SQL(statement).format(name))
    for part in _parts(connection):  # rows are only reached through the tables that have the policy
        connection.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(sql.Identifier("chatbot", part), name))


def _parts(connection: psycopg.Connection[Any]) -> list[str]:
    rows = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'chatbot'::regnamespace AND relispartition AND relkind = 'r'"
    )
    return [name for (name,) in rows]


def _version(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(statements.WITHOUT_IDENTITY["version"]).fetchone()
    return int(row[0]) if row else 0


def _somebody_elses(where: str) -> BrokenStore:
    return BrokenStore(f"{where}: the schema `chatbot` there belongs to another program: use another database")


def _found() -> Iterator[Migration]:
    for each in files("chatbot.stores.postgres").joinpath("migrations").iterdir():
        number, _, name = each.name.removesuffix(".sql").partition("_")
        if each.name.endswith(".sql") and number.isdigit():
            yield Migration(int(number), name.replace("_", " "), each.read_text(encoding="utf-8"))
