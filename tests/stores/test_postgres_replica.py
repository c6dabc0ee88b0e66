"""A primary that dies and a synchronous standby that takes its place: nothing that was acknowledged is lost."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chatbot.stores.errors import StoreBusy, StoreError, StoreFailed
from chatbot.stores.home import Address
from chatbot.stores.postgres import database, database_connection, schema
from chatbot.stores.postgres.backend import PostgresBackend
from chatbot.stores.postgres.sessions_store import PostgresSessionStore
from chatbot.stores.records import SessionRef, TranscriptEntry
from chatbot.stores.testing.backend_contract import record
from tests.patience import PATIENCE_S
from tests.postgres_pair import Node, pair, several

pytestmark = pytest.mark.nightly
WRITERS = 4


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    with pair() as (primary, standby):
        schema.create(primary.url)
        yield primary, standby
        database.Database.close_all()


@dataclass
class Written:
    """What a writer was told: numbers that were acknowledged, and what was said of the others."""

    acknowledged: list[int] = field(default_factory=list)
    refused: dict[int, StoreError] = field(default_factory=dict)

    def check(self, found: list[int]) -> None:
        """Check that what was acknowledged is there once and in order, and nothing that was never written."""
        assert found == sorted(set(found))
        assert set(self.acknowledged) <= set(found) <= {*self.acknowledged, *self.refused}


@contextmanager
def talking(backend: PostgresBackend, where: Address) -> Iterator[list[Written]]:
    """Let writers talk in a session each, and check in the end what is there of it."""
    told, sessions, enough = [Written() for _ in range(WRITERS)], [record(n) for n in range(WRITERS)], threading.Event()
    for each in sessions:
        backend.sessions.begin(each)
        backend.sessions.publish(each)
    threads = [
        threading.Thread(target=asyncio.run, args=(say(where, session.id, written, enough),))
        for session, written in zip(sessions, told, strict=True)
    ]
    for thread in threads:
        thread.start()
    progress(told)
    yield told
    progress(told)
    enough.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    store = PostgresSessionStore(where)
    for session, written in zip(sessions, told, strict=True):
        entries = asyncio.run(store.transcript_read_last(backend.sessions.ref(session.id), 1_000_000))
        written.check([int(entry.content) for entry in entries])
    print(f"{sum(len(each.acknowledged) for each in told)} messages")  # noqa: T201 - with -s
    asyncio.run(store.aclose())


def test_a_promoted_standby_has_everything_that_was_acknowledged_and_writers_go_on(nodes: tuple[Node, Node]) -> None:
    primary, standby = nodes
    where = Address(several(primary, standby), "ada")
    backend = PostgresBackend(where)
    with talking(backend, where) as told:
        primary.kill()
        wait_for(lambda: any(each.refused for each in told))  # it is noticed before there is another one
        standby.promote()
    for error in [error for each in told for error in each.refused.values()]:
        honest = "not known whether it was kept|no PostgreSQL answers there|accepts writes"
        assert re.search(honest, str(error)), error
    backend.close()


def test_a_server_that_became_read_only_is_left_for_the_other_one(nodes: tuple[Node, Node]) -> None:
    primary, standby = nodes
    backend = PostgresBackend(Address(several(primary, standby), "ada"))
    backend.lines("usage").append([{"n": 1}])
    primary.tell("ALTER SYSTEM RESET synchronous_standby_names")
    standby.promote()
    primary.tell("ALTER SYSTEM SET default_transaction_read_only = on")  # its connections stay
    primary.tell("SELECT pg_reload_conf()")
    wait_for(lambda: primary.setting("default_transaction_read_only") == "on")  # it reloads when it comes to it
    backend.lines("usage").append([{"n": 2}])
    backend.document("count").change(lambda _: b"1")
    assert [each["n"] for each in backend.lines("usage").all()] == [1, 2]
    backend.close()


def test_a_database_of_which_no_server_may_be_written_to_says_what_to_do(nodes: tuple[Node, Node]) -> None:
    primary, standby = nodes
    primary.kill()
    backend = PostgresBackend(Address(several(primary, standby), "ada"))
    with pytest.raises(StoreFailed, match="no server that answers accepts writes"):
        backend.lines("usage").append([{"n": 1}])
    backend.close()


def test_no_commit_waits_too_long_for_a_standby(nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_connection, "LONGEST_S", 5.0)
    monkeypatch.setattr(database, "_LONGEST_WAIT_S", 1.0)
    primary, standby = nodes
    backend = PostgresBackend(Address(several(primary, standby), "ada"))
    backend.lines("usage").append([{"n": 1}])
    standby.kill()
    begun = time.monotonic()
    with pytest.raises(StoreFailed, match=r"not known whether it was kept.*no answer for 5 s"):
        backend.lines("usage").append([{"n": 2}])
    with pytest.raises(StoreBusy, match="the database is busy, try again"):
        backend.lines("usage").append([{"n": 3}])  # behind the one before
    assert time.monotonic() - begun < PATIENCE_S
    standby.start()
    backend.lines("usage").append([{"n": 4}])
    assert [each["n"] for each in backend.lines("usage").all()] == [1, 2, 4]
    backend.close()


async def say(where: Address, session: str, told: Written, enough: threading.Event) -> None:
    store, number = PostgresSessionStore(where), 0
    while not enough.is_set():
        number += 1
        entry = TranscriptEntry("user", str(number), datetime.now(UTC))
        try:
            await store.transcript_append(SessionRef(session, Path()), [entry])
            told.acknowledged.append(number)
        except StoreError as error:
            told.refused[number] = error
    await store.aclose()


def progress(told: list[Written]) -> None:
    """Wait until each writer was acknowledged something once more."""
    before = [len(each.acknowledged) for each in told]
    wait_for(lambda: all(len(each.acknowledged) > n for each, n in zip(told, before, strict=True)))


def wait_for(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.01)
