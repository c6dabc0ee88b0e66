"""A shelf in SQLite: pieces and the list are rows, and who is alone holds the one transaction that may write."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from chatbot.stores.errors import MissingFolder, StoreBusy, StoreFailed
from chatbot.stores.log import Hands, Piece, Shelf

NAME = "shelf.sqlite"
_RIGHT = "making.sqlite"
_BUSY_S = 30.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS pieces (name TEXT PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS list (stamp INTEGER NOT NULL, value TEXT NOT NULL)",
)


class SqliteShelf(Shelf):
    """The file `shelf.sqlite` in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder
        self._alone = threading.RLock()
        self._database: sqlite3.Connection | None = None

    def prepare(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._alone, _translated(self.name):
            self._database = self._database or _connected(self._folder / NAME, _BUSY_S)
            for statement in _SCHEMA:
                self._database.execute(statement)

    def stamp(self) -> int | None:
        return next((stamp for (stamp,) in self._query("SELECT stamp FROM list")), None)

    def listed(self) -> Any:
        return next((json.loads(value) for (value,) in self._query("SELECT value FROM list")), None)

    def names(self) -> Collection[str]:
        return [name for (name,) in self._query("SELECT name FROM pieces")]

    @contextmanager
    def opened(self, name: str) -> Iterator[Piece]:
        for (data,) in self._query("SELECT data FROM pieces WHERE name = ?", name):
            yield SqlitePiece(data)
            return
        raise FileNotFoundError(f"{self.name} holds no {name}")

    @contextmanager
    def alone(self) -> Iterator[Hands]:
        with self._alone, _translated(self.name):
            database = self._found()
            if database is None:
                raise MissingFolder(f"{self.name} is not there")
            database.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteHands(database)
                database.execute("COMMIT")
            finally:
                if database.in_transaction:
                    database.execute("ROLLBACK")

    def making(self, *, wait: bool) -> ExitStack | None:
        with ExitStack() as held:
            right = _connected(self._folder / _RIGHT, _BUSY_S if wait else 0)
            held.callback(right.close)
            try:
                right.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                return None
            return held.pop_all()

    def clear(self) -> None:
        if self._found() is not None:
            with self.alone():
                self._query("DELETE FROM pieces")
                self._query("DELETE FROM list")

    def _found(self) -> sqlite3.Connection | None:
        if self._database is None and (self._folder / NAME).exists():
            self.prepare()
        return self._database

    def _query(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        with self._alone, _translated(self.name):
            database = self._found()
            return [] if database is None else database.execute(statement, values).fetchall()


class SqliteHands:
    """The transaction: it is given up as a whole where anything fails."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        self._database.execute("INSERT OR REPLACE INTO pieces VALUES (?, ?)", (name, data))

    def publish(self, value: Any, *, durable: bool = True) -> int:
        stamp = secrets.randbits(62)
        self._database.execute("DELETE FROM list")
        self._database.execute("INSERT INTO list VALUES (?, ?)", (stamp, json.dumps(value)))
        return stamp

    def remove(self, names: Collection[str]) -> None:
        self._database.executemany("DELETE FROM pieces WHERE name = ?", [(name,) for name in names])

    def sync(self) -> None:
        pass  # the transaction does it


class SqlitePiece:
    """The bytes of a piece."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def read(self, begin: int, end: int) -> bytes:
        return self._data[begin:end]


def _connected(path: Path, timeout_s: float) -> sqlite3.Connection:
    path.touch(0o600)
    database = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA secure_delete = ON")
    return database


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        kind = StoreBusy if "locked" in str(error) else StoreFailed
        raise kind(f"{name}: {error}") from error
