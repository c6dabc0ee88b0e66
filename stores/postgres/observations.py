"""The plug-in `observations` for an identity in PostgreSQL: its log is a table, everything else is shared."""

from __future__ import annotations

from chatbot.stores.home import Address
from chatbot.stores.log import Log
from chatbot.stores.observations.store import LoggedObservations
from chatbot.stores.postgres.log import PostgresLog


class PostgresObservations(LoggedObservations):
    """Keeps observations in `chatbot.event`; see `LoggedObservations`."""

    def open_log(self, home: Address) -> Log:
        """See `LoggedObservations`."""
        return PostgresLog(home)
