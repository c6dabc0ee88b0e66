"""Plug-in `observations` for an identity in PostgreSQL: only its log and its shelves differ from those of files."""

import asyncio
import json
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

from chatbot.stores.access import View
from chatbot.stores.backend import Flaw
from chatbot.stores.base import CapOrNone, Days
from chatbot.stores.errors import MissingFolder, StoreError
from chatbot.stores.home import Address
from chatbot.stores.log import Log, Shelf, ShelfWriter
from chatbot.stores.loops import in_thread
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.observations.writer import Request
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.backend import examine_events
from chatbot.stores.postgres.database import Database, TurnRead
from chatbot.stores.postgres.database_connection import Transaction
from chatbot.stores.postgres.log import PostgresLog
from chatbot.stores.postgres.place import PostgresPlace, new_generation
from chatbot.stores.records import SessionRef
from chatbot.stores.row_events import Event, Outcome


class PostgresObservations(LoggedObservations):
    """Keeps observations in `chatbot.event`; see `LoggedObservations`."""

    def __init__(self, home: Address, *, max_observations: CapOrNone = 0, ttl_days: Days = 0, cache: str = "") -> None:
        self._address = home
        self._place = PostgresPlace(home, Database.of(home.url))
        self._release = weakref.finalize(self, self._place.database.release)
        self._log = PostgresLog(home)
        self._shelves: dict[str, PostgresShelf] = {}
        super().__init__(home, max_observations=max_observations, ttl_days=ttl_days, cache=cache)

    def turn_reads(self, session: SessionRef, fresh_at: float) -> Sequence[TurnRead]:  # noqa: ARG002 - it is the identity's
        """Return the reads of what others have written to the log."""

        def catch_up() -> None:
            with suppress(StoreError), self._replica.reading():  # who needs the rows reads again, or reports the error
                self._log.note_known(fresh_at)

        return self._log.turn_reads(catch_up)

    def blocking_commit(self, view: View, events: Sequence[Event]) -> Callable[[], list[Outcome]]:
        return partial(self._commit_now, view, events)

    def _commit_now(self, view: View, events: Sequence[Event]) -> list[Outcome]:
        """Commit without a group; blocking."""
        request = Request(view, events)
        if self._writer.commit([request]):
            self._writer.compact()
        self._index_soon()
        return request.outcomes

    def open_log(self, home: Address) -> Log:  # noqa: ARG002 - it is open
        return self._log

    def open_shelf(self, name: str) -> Shelf:
        """Open a shelf in the database, which servers share."""
        return self._shelves.setdefault(name, PostgresShelf(self._place, name))

    def cache_size(self) -> int:
        return int(self._place.rows(statements.SIZE_OF_PIECES)[0][0])

    async def aclose(self) -> None:
        await super().aclose()
        await asyncio.to_thread(self._release)

    @in_thread
    def examine(self, *, verify: bool = False) -> list[Flaw]:
        with closing(PostgresLog(self._address)) as log:
            return examine_events((line for _, line in log.read_new()), verify=verify)


class PostgresShelf(Shelf):
    """The shelf of that name of an identity."""

    is_shared = True

    def __init__(self, place: PostgresPlace, shelf: str) -> None:
        self._place = place
        self._shelf = shelf
        self._document = f".shelf.{shelf}"
        """A name that no document of a place can have."""
        self.name = f"{place.name} {shelf}"

    def prepare(self) -> None:
        self._rows(statements.LOCK_DOCUMENT)

    def stamp(self) -> int | None:
        return next((version for (version,) in self._rows(statements.SHELF_STAMP)), None)

    def listed(self) -> Any:
        return next((json.loads(bytes(value)) for _, value in self._rows(statements.READ_DOCUMENT, version=-1)), None)

    def names(self) -> Collection[str]:
        return [name for (name,) in self._rows(statements.PIECE_NAMES)]

    def read(self, name: str) -> bytes:
        if not (rows := self._place.rows(statements.READ_PIECE, shelf=self._shelf, piece=name)):
            raise FileNotFoundError(f"{self.name} holds no {name}")
        return bytes(rows[0][0])

    @contextmanager
    def alone(self) -> Iterator[ShelfWriter]:
        place = self._place
        with place.database.transaction(place.identity, statements.LOCK_SHELF, name=self._document) as transaction:
            if not transaction.first:
                raise MissingFolder(f"{self.name} is not there")
            yield _PostgresShelfWriter(transaction, self._shelf, self._document)

    def clear(self) -> None:
        place, name = self._place, self._document
        with place.database.transaction(place.identity, statements.DROP_DOCUMENT, session="", name=name) as transaction:
            transaction.run(statements.CLEAR_PIECES, shelf=self._shelf)

    def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._place.rows(statement, name=self._document, shelf=self._shelf, **values)


class _PostgresShelfWriter:
    """A `ShelfWriter` that writes in one transaction."""

    def __init__(self, transaction: Transaction, shelf: str, document: str) -> None:
        self._transaction = transaction
        self._shelf = shelf
        self._document = document

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:  # noqa: ARG002 - all is durable
        self._transaction.run(statements.PUT_PIECE, shelf=self._shelf, piece=name, data=data)

    def publish(self, value: Any, *, durable: bool = True) -> int:  # noqa: ARG002 - a transaction is
        stamp = new_generation()
        listed = {"value": json.dumps(value).encode(), "version": stamp}
        self._transaction.run(statements.WRITE_DOCUMENT, session="", name=self._document, **listed)
        return stamp

    def remove(self, names: Collection[str]) -> None:
        if names:
            self._transaction.run(statements.DROP_PIECES, shelf=self._shelf, pieces=list(names))

    def sync(self) -> None:
        """Do nothing: the transaction makes all durable."""
