"""A transaction of one thread in the name of one identity, over a connection that it borrows. Blocking."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from chatbot.stores.errors import StoreBusy
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database_connection import Row, encode_statement, explain, fetch, is_broken, unknown_end

if TYPE_CHECKING:
    from chatbot.stores.postgres.database import Database

logger = logging.getLogger(__name__)

Statement = tuple[str, dict[str, Any]]
"""A statement and its values."""


@dataclass(frozen=True, slots=True)
class RowResult:
    """The rows that a statement returned, and how many it touched."""

    rows: list[Row]
    touched: int


class Transaction:
    """A transaction of the thread that began it, or a part of the one that it already holds."""

    def __init__(self, database: Database, identity: str, *, durable: bool) -> None:
        self._database = database
        self._durable = durable
        self._outer = database.held.get(identity)
        self.connection: psycopg.Connection[Row]
        self._pool_exit: Any = None
        self.first: list[Row] = []
        self._identity = identity

    def start(self, first: str, values: dict[str, Any]) -> None:
        """Begin, and run the first statement."""
        if self._outer is not None:
            self.connection = self._outer.connection
            self.first = self.rows(first, **values)
            return
        database = self._database
        database.write_queued(self._identity)
        if not database.holding.acquire(timeout=database.longest_wait_s):
            raise StoreBusy(f"{database.shown}: too many changes at once for {database.longest_wait_s:g} s")
        try:
            database.retry(lambda: self._begin(first, values), is_safe=True)
        except BaseException:
            database.holding.release()
            raise
        database.held[self._identity] = self

    def commit(self, *last: Statement) -> None:
        """Run the `last` statements and commit, in one round trip.

        Raises `StoreFailed` if the connection broke and the result is unknown.
        """
        if self._outer is not None:
            for statement, values in last:
                self.run(statement, **values)
        elif self._pool_exit is not None:
            try:
                with self.connection.pipeline():
                    for each in last:
                        send(self.connection, self._identity, each)
                    self.connection.execute("COMMIT")
            except psycopg.Error as error:
                if is_broken(error):
                    raise unknown_end(error, self._database.shown) from error
                self._roll_back()
                raise explain(error, self._database.shown) from error
            finally:
                self._end()

    def abort(self) -> None:
        """Undo everything; a part of another transaction is undone with that one."""
        if self._outer is None and self._pool_exit is not None:
            try:
                self._roll_back()
            finally:
                self._end()

    def rows(self, statement: str, **values: Any) -> list[Row]:
        """Run a statement and return its rows; none for one that returns none."""
        return self._ask(statement, values).rows

    def run(self, statement: str, **values: Any) -> int:
        """Run a statement; return how many rows it touched."""
        return self._ask(statement, values).touched

    def _ask(self, statement: str, values: dict[str, Any]) -> RowResult:
        try:
            return answer_of(send(self.connection, self._identity, (statement, values)))
        except psycopg.Error as error:
            raise explain(error, self._database.shown) from error

    def _roll_back(self) -> None:
        try:
            self.connection.execute("ROLLBACK")
        except psycopg.Error as error:
            logger.debug("a transaction ended with its connection: %s", error)

    def _begin(self, first: str, values: dict[str, Any]) -> None:
        borrowed = self._database.connection()
        connection = borrowed.__enter__()
        try:
            with connection.pipeline():
                connection.execute("BEGIN")
                connection.execute(
                    encode_statement(statements.ACT), self._database.begin_values(self._identity, durable=self._durable)
                )
                cursor = send(connection, self._identity, (first, values))
            self.first = fetch(cursor)
        except BaseException:
            if not connection.closed:
                connection.rollback()
            borrowed.__exit__(None, None, None)
            raise
        self.connection, self._pool_exit = connection, borrowed

    def _end(self) -> None:
        self._database.held.pop(self._identity, None)
        borrowed, self._pool_exit = self._pool_exit, None
        borrowed.__exit__(None, None, None)
        self._database.holding.release()


def send(connection: psycopg.Connection[Row], identity: str, wanted: Statement) -> psycopg.Cursor[Row]:
    """Send a statement in the name of an identity."""
    statement, values = wanted
    return connection.execute(encode_statement(statement), values | {"identity": identity})


def answer_of(cursor: psycopg.Cursor[Row]) -> RowResult:
    """Return the answer to a statement."""
    return RowResult(fetch(cursor), cursor.rowcount)
