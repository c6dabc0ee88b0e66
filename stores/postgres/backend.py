"""Backend of an identity in PostgreSQL."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence

from chatbot.stores.backend import Backend, Examination
from chatbot.stores.errors import StoreError, StoreFailed
from chatbot.stores.flaws import Flaw
from chatbot.stores.hints import Hint
from chatbot.stores.home import Address
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database import Database
from chatbot.stores.postgres.database_connection import is_direct
from chatbot.stores.postgres.place import PostgresPlace
from chatbot.stores.postgres.sessions import PostgresSessions
from chatbot.stores.records import SessionRef

_POOLED = (
    "{where} is reached through a pooler such as PgBouncer, so servers look twice a second for what another one was "
    "asked; over a direct connection they are told at once"
)


class PostgresBackend(PostgresPlace, Backend):
    """The rows of one identity. Connects when it is first used."""

    saves_trips = True

    def __init__(self, address: Address) -> None:
        super().__init__(address, Database.of(address.url))
        self._address = address
        self._leave = weakref.finalize(self, self.database.leave)
        self.sessions: PostgresSessions = PostgresSessions(self)

    def place_of(self, session: SessionRef) -> PostgresPlace:
        """Return the rows of the session as a place."""
        return PostgresPlace(self._address, self.database, session.id)

    def turn_ended(self, writes: Sequence[Callable[[], object]]) -> list[StoreError | None]:
        """Override `Backend`: in one transaction."""
        return self.database.together(self.identity, writes)

    def is_there(self) -> bool:
        """Return whether the database holds the identity."""
        return bool(self.rows(statements.IS_THERE))

    def refusal(self) -> OSError | None:
        """Return the error of a write that changes nothing; None if it succeeds."""
        try:
            self.rows(statements.NOTE_USED, durable=False, id="", used_at="-infinity")
        except StoreError as error:
            return error if isinstance(error, OSError) else StoreFailed(str(error))
        return None

    def hint(self, *topics: str) -> Hint:
        """Override `Backend`."""
        return self.database.hints.of(self.identity, topics)

    def why_no_hints(self) -> str:
        """Connect, and compare who answers."""
        try:
            with self.database.connection() as connection:
                is_heard = is_direct(connection)
        except StoreError:
            return ""  # which other checks report
        return "" if is_heard else _POOLED.format(where=self.database.shown)

    def why_not_apart(self) -> str:
        """Explain why the role could read other identities; empty if it cannot."""
        reason = self.database.may_see_all()
        return reason and (
            f"{self.database.shown}: its role {reason}, so the database would not keep identities apart: "
            "use a role that `chatbot storage create --role NAME` was run for"
        )

    def examine(self, wish: Examination) -> Iterator[Flaw]:
        """Check the identity's rows for damage."""
        from chatbot.stores.postgres.examination import examine

        return examine(self, wish)

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each part, measured by the database."""
        return {part: int(size) for part, size in self.rows(statements.SIZES)}

    def close(self) -> None:
        """Leave the connection pool."""
        self._leave()
