"""The plug-in `observations` for an identity in PostgreSQL: its log is a table, everything else is shared."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence

from chatbot.stores.backend import Flaw
from chatbot.stores.home import Address
from chatbot.stores.log import Log
from chatbot.stores.observations.snapshot import NAME as SNAPSHOTS
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.postgres.backend import examine_events
from chatbot.stores.postgres.database import Database, Look
from chatbot.stores.postgres.log import PostgresLog
from chatbot.stores.postgres.place import PostgresPlace
from chatbot.stores.postgres.shelf import PostgresShelf
from chatbot.stores.records import SessionRef
from chatbot.stores.shelf import Shelf


class PostgresObservations(LoggedObservations):
    """Keeps observations in `chatbot.event`; see `LoggedObservations`."""

    saves_trips = True

    def __init__(self, home: Address, *, max_observations: int = 0, ttl_days: float = 0, cache: str = "") -> None:
        self._address = home
        self._place = PostgresPlace(home, Database.of(home.url))
        self._leave = weakref.finalize(self, self._place.database.leave)
        self._log = PostgresLog(home)
        self._shelves: dict[str, PostgresShelf] = {}
        super().__init__(home, max_observations=max_observations, ttl_days=ttl_days, cache=cache)

    def ahead(self, session: SessionRef) -> Sequence[Look]:  # noqa: ARG002 - they are of the identity
        """Override `Store`: what others have written to the log since, and whether they published an index."""
        return [*self._log.ahead(), *(shelf.ahead() for name, shelf in self._shelves.items() if name != SNAPSHOTS)]

    def open_log(self, home: Address) -> Log:  # noqa: ARG002 - it is open
        """Return the log of the identity in the database."""
        return self._log

    def open_shelf(self, name: str) -> Shelf:
        """Open a shelf in the database: servers share what is derived from the log."""
        return self._shelves.setdefault(name, PostgresShelf(self._place, name))

    async def aclose(self) -> None:
        """Close the store and leave the connection pool."""
        await super().aclose()
        await asyncio.to_thread(self._leave)

    async def examine(self, *, verify: bool = False) -> list[Flaw]:
        """Check every line of the log for damage."""

        def look() -> list[Flaw]:
            log = PostgresLog(self._address)
            try:
                return examine_events((line for _, line in log.read_new()), verify=verify)
            finally:
                log.close()

        return await asyncio.to_thread(look)
