"""Comparisons of the clock of this machine with that of the database, now and then. No operation waits for one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import psycopg

from chatbot.stores.errors import StoreError
from chatbot.stores.postgres.database_connection import MOST_SKEW_S, PatientConnection, check_clock, settings_of

logger = logging.getLogger(__name__)

EVERY_S = 60.0


class ClockWatch:
    """The watch over one database. `refuse` is called, in a thread of its own, where the clocks differ too much."""

    def __init__(self, url: str, shown: str, refuse: Callable[[], None]) -> None:
        self._url = url
        self._shown = shown
        self._refuse = refuse
        self._compared_at = time.monotonic()
        self._offset = _offset()
        self._comparing = threading.Lock()

    def look(self) -> None:
        """Compare in the background, where a minute has passed or the clock here was set. Returns at once."""
        if self._is_due() and self._comparing.acquire(blocking=False):
            self._compared_at, self._offset = time.monotonic(), _offset()
            threading.Thread(target=self._compare, name="comparing clocks", daemon=True).start()

    def _is_due(self) -> bool:
        was_set = abs(_offset() - self._offset) > MOST_SKEW_S / 2
        return was_set or time.monotonic() >= self._compared_at + EVERY_S

    def _compare(self) -> None:
        try:
            with PatientConnection.connect(self._url, **settings_of(self._url)) as connection:
                check_clock(connection, self._shown)
        except StoreError as error:
            logger.warning("%s; nothing is read or written until then", error)
            self._refuse()
        except psycopg.Error as error:
            logger.debug("the clock of %s could not be read: %s", self._shown, error)
        finally:
            self._comparing.release()


def _offset() -> float:
    """Return a number that changes when the clock of this machine is set."""
    return time.time() - time.monotonic()
