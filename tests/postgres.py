"""A real PostgreSQL for the tests: one server for all workers of a run, or the one that `CHATBOT_TEST_POSTGRES` names.

Each test has an identity of its own, which tries that they are apart, and a role that row-level security holds for.
"""

import fcntl
import os
import tempfile
import warnings
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

import psycopg

from chatbot.stores.home import Address
from chatbot.stores.postgres import schema
from chatbot.stores.postgres.backend import PostgresBackend
from chatbot.stores.postgres.database import Database
from chatbot.stores.postgres.log import PostgresLog
from chatbot.stores.postgres.observations import PostgresShelf
from chatbot.stores.postgres.place import Leases, PostgresPlace

OWN = "CHATBOT_TEST_POSTGRES"
SERVER = "TEST_POSTGRES_AS_SERVER"
"""The URL by which processes of the tests find the database."""
ROLE = "chatbot_server"
LAPSES_AFTER_S = 1.0


def running() -> Iterator[str]:
    """The URL of a database with our tables, for a role that owns nothing; the fixture `postgres`."""
    with _one_at_a_time():  # two that start the server at once could both make its folder, and one of them fail
        url = _prepared(os.environ.get(OWN) or _started())
    os.environ[SERVER] = url
    yield url
    Database.close_all()
    del os.environ[SERVER]
    _place(".lock").unlink(missing_ok=True)


def address(folder: Path) -> Address:
    """The identity that stands for a folder."""
    return Address(os.environ[SERVER], f"t{blake2b(os.fsencode(folder), digest_size=12).hexdigest()}")


def open_backend(folder: Path) -> PostgresBackend:
    """The backend that stands for a folder; its leases lapse soon."""
    backend = PostgresBackend(address(folder))
    Leases.of(backend.database).lapses_after_s = LAPSES_AFTER_S
    return backend


def open_log(folder: Path) -> PostgresLog:
    """The log that stands for a folder."""
    return PostgresLog(address(folder))


def open_shelf(folder: Path) -> PostgresShelf:
    """The shelf that stands for a folder; its right to make pieces lapses soon."""
    where = address(folder)
    database = Database.of(where.url)
    Leases.of(database).lapses_after_s = LAPSES_AFTER_S
    return PostgresShelf(PostgresPlace(where, database), "kit")


def fresh_database(name: str) -> str:
    """The URL of a database of its own with empty tables, for the role of servers."""
    with psycopg.connect(owner_url(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY FILE_COPY")
    owner = owner_url().replace("/postgres?", f"/{name}?")
    schema.create(owner, role=ROLE)
    return owner.replace("//postgres@", f"//{ROLE}@")


def owner_url() -> str:
    """The URL of the database for its owner."""
    return os.environ[SERVER].replace(f"//{ROLE}@", "//postgres@")


def _place(suffix: str = "") -> Path:
    """Where the server of this run is, which its own user must reach; the same for all workers."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return Path(tempfile.gettempdir(), f"chatbot-postgres-{run}{suffix}")


def _started() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR
        import pgserver.postgres_server
    # It is stopped by the last process that asked for it.
    server = pgserver.postgres_server.get_server(_place(), cleanup_mode="delete")
    return f"postgresql://postgres@/postgres?host={quote(str(server.get_postmaster_info().socket_dir))}"


def _prepared(owner: str) -> str:
    """Make database, role and tables, unless another worker has."""
    with psycopg.connect(owner, autocommit=True) as connection:
        if os.environ.get(OWN) is None:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone():
            connection.execute(f"CREATE ROLE {ROLE} LOGIN")
    schema.create(owner, role=ROLE)
    return owner.replace("//postgres@", f"//{ROLE}@")


class _one_at_a_time:  # noqa: N801 - a context manager
    def __enter__(self) -> None:
        self._file = _place(".lock").open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()
