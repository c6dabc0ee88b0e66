"""Hints between the servers of a database: NOTIFY, heard on one connection of a process. The truth is in the tables.

Hints are sent in batches, in transactions of their own that do not sync: NOTIFY takes a lock that all databases of a
server share, and no writer should hold it. Hints do not pass a pooler such as PgBouncer: then waits poll.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
import weakref
from collections import defaultdict
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

import psycopg

from chatbot.stores.backend import Hint
from chatbot.stores.errors import StoreError
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database_connection import PatientConnection, is_direct, settings_of

if TYPE_CHECKING:
    from chatbot.stores.postgres.database import Database

logger = logging.getLogger(__name__)

_TOGETHER_S = 0.02
"""Hints are collected for so long and sent together."""
_IDLE_S = 5.0
_AGAIN_S = 2.0
"""Pause between attempts to listen."""


class PostgresHint(Hint):
    """A wait for hints about some topics of an identity."""

    def __init__(self, hints: Hints, keys: frozenset[str]) -> None:
        self.keys = keys
        self._hints = hints
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait(self, poll_s: float, longest_s: float) -> None:
        """Return at once if a hint came since the last wait."""
        self._loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s if self._hints.is_listening else poll_s):
                await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """End the wait, from any thread."""
        if self._loop is None:
            self._event.set()
            return
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._event.set)


class Hints:
    """The hints of one database. Begins to listen when somebody first waits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: weakref.WeakSet[PostgresHint] = weakref.WeakSet()
        self._unsent: set[tuple[str, str]] = set()
        self._changed = threading.Condition()
        self._sender: threading.Thread | None = None
        self._listener: threading.Thread | None = None
        self._ending = threading.Event()
        self._ended: tuple[int, int] | None = None
        self.is_listening = False
        """True while a hint would be heard."""

    def of(self, identity: str, topics: tuple[str, ...]) -> PostgresHint:
        """Return a wait for hints about these topics."""
        hint = PostgresHint(self, frozenset(_key(identity, topic) for topic in topics))
        with self._changed:
            self._waiting.add(hint)
            if self._listener is None and not self._ending.is_set():
                self._ended = os.pipe()
                self._listener = threading.Thread(target=self._listen, args=self._ended[:1], name="hints", daemon=True)
                self._listener.start()
        return hint

    def announce(self, identity: str, topic: str) -> None:
        """Send a hint to all processes soon: something was written."""
        with self._changed:
            if self._ending.is_set():
                return
            self._unsent.add((identity, topic))
            if self._sender is None:
                self._sender = threading.Thread(target=self._send, name="sending hints", daemon=True)
                self._sender.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop listening."""
        with self._changed:
            self._ending.set()
            self._unsent.clear()
            self._changed.notify_all()
            ended, self._ended = self._ended, None
        if ended is not None:
            os.close(ended[1])  # which the listener notices

    def _send(self) -> None:
        while unsent := self._next():
            together: defaultdict[str, list[str]] = defaultdict(list)
            for identity, topic in unsent:
                together[identity].append(_key(identity, topic))
            for identity, keys in together.items():
                try:
                    self._database.rows(identity, statements.NOTIFY, durable=False, keys=keys)
                except (StoreError, psycopg.Error) as error:  # the latter where it was closed meanwhile
                    logger.debug("no hint was sent: other servers will poll: %s", error)

    def _next(self) -> set[tuple[str, str]]:
        """Wait for hints, and for more to send with them; return none after `_IDLE_S` without any."""
        with self._changed:
            self._changed.wait_for(lambda: self._unsent or self._ending.is_set(), _IDLE_S)
        self._ending.wait(_TOGETHER_S)
        with self._changed:
            unsent, self._unsent = self._unsent, set()
            if not unsent:
                self._sender = None
            return unsent

    def _listen(self, ended: int) -> None:
        try:
            while not self._ending.is_set() and self._listen_once(ended):
                self._ending.wait(_AGAIN_S)
        finally:
            os.close(ended)

    def _listen_once(self, ended: int) -> bool:
        """Listen until the connection ends; return whether to try again."""
        url = self._database.url
        try:
            with PatientConnection.connect(url.partition("#")[0], **settings_of(url)) as connection:
                if not is_direct(connection):
                    return False
                connection.execute(statements.WITHOUT_IDENTITY["listen"])
                self._set_listening(now=True)
                self._wait(connection, ended)
        except psycopg.Error as error:
            logger.info("no hints are received, so this server polls: %s", error)
        finally:
            self._set_listening(now=False)
        return True

    def _wait(self, connection: PatientConnection, ended: int) -> None:
        while not self._ending.is_set():
            readable, _, _ = select.select([connection.fileno(), ended], [], [])
            if ended in readable:
                return
            connection.pgconn.consume_input()
            keys = set()
            while notice := connection.pgconn.notifies():
                keys.add(notice.extra.decode())
            self._wake(keys)

    def _wake(self, keys: set[str]) -> None:
        with self._changed:
            waiting = [each for each in self._waiting if each.keys & keys]
        for each in waiting:
            each.wake()

    def _set_listening(self, *, now: bool) -> None:
        """Note whether this process listens, and wake everyone who may have missed a hint."""
        with self._changed:
            self.is_listening = now
            waiting = list(self._waiting)
        for each in waiting:
            each.wake()


def _key(identity: str, topic: str) -> str:
    """Return a hash of both: other roles of the database could listen."""
    return blake2b(f"{identity}\n{topic}".encode(), digest_size=12).hexdigest()
