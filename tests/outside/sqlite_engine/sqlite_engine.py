"""An engine for observations on SQLite: the log of events is a table, everything above it is shared.

Each line stands at the number of bytes before it, as in a file, so erasure can use the same function as files do.
"""

import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from chatbot.stores.errors import StoreFailed
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.log import LineChange, LinePlace, Log, LogMark, Writing, rewrite_lines
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.row_events import Event, parse_event

NAME = "observations.sqlite"
_BUSY_S = 30.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS lines (start INTEGER PRIMARY KEY, line BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS generation (number INTEGER NOT NULL)",
)


class SqliteObservations(LoggedObservations):
    """Keeps observations in `observations.sqlite`."""

    home: Path

    def open_log(self, home: Path) -> Log:
        return SqliteLog(home)


class SqliteLog(Log):
    """The table of lines, and how far it was read. A rewritten table is of another generation."""

    def __init__(self, home: Path) -> None:
        self.path = home / NAME
        self.name = str(self.path)
        self._alone = threading.RLock()
        self._opening = threading.Lock()  # not that of writers: readers may hold what a writer waits for
        self._database: sqlite3.Connection | None = None
        self._generation = 0
        self._position = 0

    @property
    def position(self) -> int:
        return self._position

    def mark(self) -> LogMark:
        return LogMark(self._generation, self._position, self._digest())

    def resume(self, mark: LogMark) -> bool:
        if self._current_generation() != mark.inode or self._end() < mark.size:
            return False
        self._generation, self._position = mark.inode, mark.size
        if self._digest() == mark.digest:
            return True
        self.start_again()
        return False

    def is_replaced(self) -> bool:
        return bool(self._generation) and self._current_generation() != self._generation

    def start_again(self) -> None:
        self._generation = self._position = 0

    def read_new(self) -> Iterator[tuple[LinePlace, bytes]]:
        if not self._generation:
            self._generation = self._current_generation()
        for start, line in self._query("SELECT start, line FROM lines WHERE start >= ? ORDER BY start", self._position):
            yield (start, len(line)), line
            self._position = start + len(line) + 1

    def event_at(self, place: LinePlace) -> Event:
        lines = self._query("SELECT start, line FROM lines WHERE start = ?", place[0])
        return parse_event(record_of(lines[0][1] if lines else b""))

    @contextmanager
    def locked(self) -> Iterator[Writing]:
        with self._alone, _translated(self.name):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            database = self._opened(make=True)
            assert database is not None
            database.execute("BEGIN IMMEDIATE")
            try:
                if not self._current_generation():
                    database.execute("INSERT INTO generation VALUES (?)", (_new_generation(),))
                yield SqliteWriting(self, database)
            finally:
                if database.in_transaction:
                    database.execute("COMMIT")

    def was_written(self) -> bool:
        return self.path.exists()

    def close(self) -> None:
        with self._opening:
            if self._database is not None:
                self._database.close()
                self._database = None

    def take_as_read(self, generation: int, position: int) -> None:
        """Take everything up to that position as ours."""
        self._generation, self._position = generation, position

    def _opened(self, *, make: bool = False) -> sqlite3.Connection | None:
        with self._opening:
            if self._database is None and (make or self.path.exists()):
                self.path.touch(0o600)
                self._database = sqlite3.connect(
                    self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
                )
                self._database.execute("PRAGMA synchronous = EXTRA")
                self._database.execute("PRAGMA secure_delete = ON")
                for statement in _SCHEMA:
                    self._database.execute(statement)
            return self._database

    def _query(self, statement: str, *values: int) -> list[tuple[int, bytes]]:
        with _translated(self.name):
            database = self._opened()
            return [] if database is None else database.execute(statement, values).fetchall()

    def _current_generation(self) -> int:
        found = self._query("SELECT number, x'' FROM generation")
        return found[0][0] if found else 0

    def _end(self) -> int:
        found = self._query("SELECT start, line FROM lines ORDER BY start DESC LIMIT 1")
        return found[0][0] + len(found[0][1]) + 1 if found else 0

    def _digest(self) -> str:
        """A digest of the last line that was read."""
        statement = "SELECT start, line FROM lines WHERE start < ? ORDER BY start DESC LIMIT 1"
        found = self._query(statement, self._position)
        return blake2b(found[0][1], digest_size=16).hexdigest() if found else ""


class SqliteWriting:
    """The one transaction that may write. A process that dies takes it along, so nothing is ever torn."""

    def __init__(self, log: SqliteLog, database: sqlite3.Connection) -> None:
        self._log = log
        self._database = database

    def append(self, event: Event) -> LinePlace:
        line = encode(event.as_json()).rstrip(b"\n")
        start = self._log.position
        self._database.execute("INSERT INTO lines VALUES (?, ?)", (start, line))
        self._log.take_as_read(self._log._current_generation(), start + len(line) + 1)
        return start, len(line)

    def release(self) -> None:
        self._database.execute("COMMIT")  # which is durable as well

    def sync(self) -> None:
        pass

    def rewrite(self, change: LineChange, more: Iterable[Event] = ()) -> dict[int, LinePlace]:
        lines = self._database.execute("SELECT line FROM lines ORDER BY start").fetchall()
        kept, moved = rewrite_lines(b"".join(line + b"\n" for (line,) in lines), change)
        data = kept + b"".join(encode(event.as_json()) for event in more)
        generation = _new_generation()
        self._database.execute("DELETE FROM lines")
        start = 0
        for line in data.split(b"\n")[:-1]:
            self._database.execute("INSERT INTO lines VALUES (?, ?)", (start, line))
            start += len(line) + 1
        self._database.execute("UPDATE generation SET number = ?", (generation,))
        self._database.execute("COMMIT")
        self._log.take_as_read(generation, len(data))
        self._database.execute("BEGIN IMMEDIATE")
        return moved


def _new_generation() -> int:
    return secrets.randbits(62) | 1


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreFailed(f"{name}: {error}") from error
