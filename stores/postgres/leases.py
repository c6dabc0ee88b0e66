"""Renewal of the leases that this process holds, on one thread, for as long as it holds any.

By the clock of the database: those of servers may differ. A process that dies, or stands still for longer than a lease
lasts, loses it.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakKeyDictionary

from chatbot.stores.errors import ClosedResource, StoreError
from chatbot.stores.postgres import statements

if TYPE_CHECKING:
    from chatbot.stores.postgres.database import Database

logger = logging.getLogger(__name__)

LAPSES_AFTER_S = 10.0
"""How long a lease outlives the process that held it."""
_RENEWALS = 4
"""In the life of a lease: so many may be late before it lapses."""


class Leases:
    """The leases that this process holds in one database."""

    _known: ClassVar[WeakKeyDictionary[Database, Leases]] = WeakKeyDictionary()
    _guard = threading.Lock()

    def __init__(self, database: Database) -> None:
        self._database = database
        self.lapses_after_s = LAPSES_AFTER_S
        self._held: defaultdict[str, set[str]] = defaultdict(set)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, database: Database) -> Leases:
        """Return those of a database."""
        with cls._guard:
            return cls._known.setdefault(database, cls(database))

    def add(self, identity: str, holder: str) -> None:
        """Renew that lease from now on."""
        with self._changed:
            self._held[identity].add(holder)
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
                self._thread.start()

    def drop(self, identity: str, holder: str) -> bool:
        """Stop renewing it; return False if it was not held."""
        with self._changed:
            held = self._held.get(identity, set())
            was_held = holder in held
            held.discard(holder)
            if not held:
                self._held.pop(identity, None)
            if not self._held:
                self._changed.notify_all()
        return was_held

    def _renew(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._held, self.lapses_after_s / _RENEWALS)
                if not self._held:
                    self._thread = None
                    return
                held = {identity: list(holders) for identity, holders in self._held.items()}
            for identity, holders in held.items():
                self._renew_those(identity, holders)

    def _renew_those(self, identity: str, holders: list[str]) -> None:
        try:
            rows = self._database.rows(
                identity, statements.RENEW_LEASES, durable=False, holders=holders, ttl=self.lapses_after_s
            )
        except ClosedResource:
            with self._changed:
                self._held.clear()
            return
        except StoreError as error:
            logger.warning("leases could not be renewed, and may lapse: %s", error)
            return
        with self._changed:
            still_held = self._held.get(identity, set())
            lost = [each for each in holders if (each,) not in rows and each in still_held]
        if lost:
            logger.warning("%d leases lapsed while this process stood still: turns may meet", len(lost))
