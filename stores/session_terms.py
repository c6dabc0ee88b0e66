"""What each session speaks of, kept in the cache folder so that a search does not read every transcript. Blocking.

For each session the terms of its entries, as numbers, with how many entries hold each; the stamp of the transcript says
whether that still holds. It is only a cache: one that is damaged, or holds terms of another version, is thrown away,
and it can be done without.
"""

from __future__ import annotations

import logging
import os
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from chatbot.stores.analysis import VERSION
from chatbot.stores.cache import Cache
from chatbot.stores.errors import StoreError
from chatbot.stores.files import FILE_MODE
from chatbot.stores.home import Home

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)

NAME = "sessions.sqlite"
_BUSY_S = 10.0
_MOST = 255
_ITEM = 4
_SCHEMA = "CREATE TABLE IF NOT EXISTS spoken (id TEXT PRIMARY KEY, stamp TEXT NOT NULL, terms BLOB NOT NULL)"

Counts = Mapping[str, int]
"""How many entries of a session hold each term."""
Row = tuple[str, str, bytes]
"""A session, the stamp of its transcript, and the terms as `pack` writes them."""
T = TypeVar("T")


class SessionTerms:
    """Asked for the sessions that hold some terms, and told of those that have changed.

    Without a cache everything is kept in memory.
    """

    def __init__(self, cache: Cache | None) -> None:
        self._cache = cache
        self._rows: dict[str, Row] = {}

    @classmethod
    def of(cls, home: Home | None, root: Path | None = None) -> SessionTerms:
        """Those of the memory in `home`, in the caches below `root` or the user's; in memory alone for None."""
        return cls(None if home is None else Cache(home, root))

    def look(self, terms: Sequence[str]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """For each session that is known: the stamp that it had, and how many entries hold each of the terms."""
        numbers = [number_of(term) for term in terms]
        return {
            session: (stamp, tuple(_count(packed, number) for number in numbers))
            for session, stamp, packed in self._all()
        }

    def put(self, rows: Sequence[Row]) -> None:
        """Keep what sessions speak of by now."""
        if self._cache is None:
            self._rows |= {row[0]: row for row in rows}
            return
        statement = "INSERT OR REPLACE INTO spoken VALUES (?, ?, ?)"
        self._try(lambda database: database.executemany(statement, rows))

    def forget(self, sessions: Collection[str]) -> None:
        """Erase what is known of sessions, so that no byte of it is left."""
        if self._cache is None:
            for session in sessions:
                self._rows.pop(session, None)
        elif sessions and (self._cache.folder / NAME).exists():
            self._try(
                lambda database: database.executemany(
                    "DELETE FROM spoken WHERE id = ?", [(session,) for session in sessions]
                )
            )

    def forget_others(self, sessions: Collection[str]) -> None:
        """Erase what is known of all sessions but these: they were deleted by hand, or elsewhere."""
        if self._cache is not None and not (self._cache.folder / NAME).exists():
            return
        self.forget([session for session in self._ids() if session not in sessions])

    def _ids(self) -> list[str]:
        if self._cache is None:
            return list(self._rows)
        found = self._try(lambda database: database.execute("SELECT id FROM spoken").fetchall())
        return [session for (session,) in found or ()]

    def _all(self) -> Iterable[Row]:
        if self._cache is None:
            return list(self._rows.values())
        return self._try(lambda database: database.execute("SELECT id, stamp, terms FROM spoken").fetchall()) or ()

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """The outcome of the work; None where there can be no cache. A damaged one is begun anew."""
        import sqlite3

        for _ in range(2):
            try:
                with self._opened() as database:
                    return work(database)
            except sqlite3.OperationalError as error:  # busy, full or read-only
                logger.warning("what sessions speak of could not be kept: %s", error)
                return None
            except sqlite3.DatabaseError as error:
                logger.warning("%s is damaged and begun anew: %s", NAME, error)
                self._remove()
            except (StoreError, OSError) as error:
                logger.warning("what sessions speak of could not be kept: %s", error)
                return None
        return None

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        import sqlite3

        path = self._path()
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE))
        with closing(sqlite3.connect(path, timeout=_BUSY_S)) as database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute("PRAGMA secure_delete = ON")
            if database.execute("PRAGMA user_version").fetchone() != (VERSION,):
                database.execute("DROP TABLE IF EXISTS spoken")
                database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute(_SCHEMA)
            with database:
                yield database

    def _remove(self) -> None:
        for name in (NAME, f"{NAME}-journal"):
            (self._path().parent / name).unlink(missing_ok=True)

    def _path(self) -> Path:
        assert self._cache is not None  # noqa: S101 - who has none asks for no path
        return self._cache.prepare() / NAME


def pack(counts: Counts) -> bytes:
    """The numbers of the terms in order, then how many entries hold each, a byte each."""
    held: dict[int, int] = {}
    for term, count in counts.items():
        number = number_of(term)
        held[number] = held.get(number, 0) + count
    numbers = array("I", sorted(held))
    return numbers.tobytes() + bytes(min(held[number], _MOST) for number in numbers)


def number_of(term: str) -> int:
    """A term as a number; two terms of one number are told apart when the session is read."""
    return zlib.crc32(term.encode())


def _count(packed: bytes, number: int) -> int:
    size = len(packed) // (_ITEM + 1)
    numbers = memoryview(packed)[: size * _ITEM].cast("I")
    place = bisect_left(numbers, number)
    return packed[size * _ITEM + place] if place < size and numbers[place] == number else 0
