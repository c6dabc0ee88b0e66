"""The plug-in `observations` for an identity in PostgreSQL: its log is a table, everything else is shared."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from functools import partial

from chatbot.stores.access import View
from chatbot.stores.flaws import Flaw
from chatbot.stores.home import Address
from chatbot.stores.log import Log
from chatbot.stores.observations.snapshot import NAME as SNAPSHOTS
from chatbot.stores.observations.snapshot import SharedSnapshots, Snapshots
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.postgres.database import Database, Look
from chatbot.stores.postgres.log import PostgresLog
from chatbot.stores.postgres.place import PostgresPlace
from chatbot.stores.postgres.shelf import PostgresShelf
from chatbot.stores.records import SessionRef
from chatbot.stores.row_events import Event, Outcome
from chatbot.stores.shelf import Shelf


class PostgresObservations(LoggedObservations):
    """Keeps observations in `chatbot.event`; see `LoggedObservations`."""

    def __init__(self, home: Address, *, max_observations: int = 0, ttl_days: float = 0, cache: str = "") -> None:
        self._address = home
        self._place = PostgresPlace(home, Database.of(home.url))
        self._leave = weakref.finalize(self, self._place.database.leave)
        self._log = PostgresLog(home)
        self._shelves: dict[str, PostgresShelf] = {}
        super().__init__(home, max_observations=max_observations, ttl_days=ttl_days, cache=cache)

    def turn_begun(self, session: SessionRef, looked: float) -> Sequence[Look]:  # noqa: ARG002 - it is the identity's
        """Override `Store`: whether others have written to the log since."""
        return [self._log.turn_begun(looked)]

    def committing(self, view: View, events: Sequence[Event]) -> Callable[[], list[Outcome]]:
        """Override `ObservationStore`."""
        return partial(self.commit_now, view, events)

    def open_log(self, home: Address) -> Log:  # noqa: ARG002 - it is open
        """Return the log of the identity in the database."""
        return self._log

    def open_shelf(self, name: str) -> Shelf:
        """Open a shelf in the database: servers share what is derived from the log."""
        return self._shelves.setdefault(name, PostgresShelf(self._place, name))

    def open_snapshots(self) -> Snapshots:
        """Keep snapshots of the table in the database: a server that begins reads one, not the whole log."""
        return SharedSnapshots(self.open_shelf(SNAPSHOTS))

    async def aclose(self) -> None:
        """Close the store and leave the connection pool."""
        await super().aclose()
        await asyncio.to_thread(self._leave)

    async def examine(self, *, verify: bool = False) -> list[Flaw]:
        """Check every line of the log for damage."""
        from chatbot.stores.postgres.examination import examine_events

        def look() -> list[Flaw]:
            log = PostgresLog(self._address)
            try:
                return examine_events((line for _, line in log.read_new()), verify=verify)
            finally:
                log.close()

        return await asyncio.to_thread(look)
