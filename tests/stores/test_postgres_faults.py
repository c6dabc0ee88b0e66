"""What is lost, and what is said, when a server or the database dies: nothing that was acknowledged."""

import atexit
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from urllib.parse import quote

import psutil
import psycopg
import pytest

from chatbot.stores.errors import StoreBusy, StoreError
from chatbot.stores.home import Address
from chatbot.stores.postgres import database
from chatbot.stores.postgres.backend import PostgresBackend
from chatbot.stores.postgres.migration import migrate
from chatbot.stores.testing_processes import start
from tests.patience import PATIENCE_S
from tests.postgres import open_backend, postgres

__all__ = ["postgres"]

pytestmark = pytest.mark.nightly
WRITERS = 4


class Server:
    """A database server of one test alone, which is killed and started again."""

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="chatbot-killed-"))
        self._running: Any = None
        self.start()
        self.url = f"postgresql://postgres@/postgres?host={quote(str(self._folder))}"

    def start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pgserver.postgres_server import PostgresServer

            self._running = PostgresServer(self._folder, cleanup_mode=None)

    def kill(self) -> None:
        """Kill the postmaster as a crash would, and whom it has started, and wait for their end."""
        postmaster = self._running.get_postmaster_info().process
        everyone = [*postmaster.children(recursive=True), postmaster]
        for each in reversed(everyone):  # the postmaster first: it would start others again
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        for each in everyone:
            with suppress(psutil.NoSuchProcess):
                each.wait(PATIENCE_S)

    def stop(self) -> None:
        """End it without ceremony: nobody needs what it keeps."""
        self.kill()
        atexit.unregister(self._running._cleanup)
        rmtree(self._folder)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    migrate(server.url)
    yield server
    database.Database.close_all()
    server.stop()


@dataclass
class Written:
    """What a writer was told: numbers that were acknowledged, and those of which nobody knows."""

    acknowledged: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


def test_a_database_that_is_killed_under_load_loses_nothing_that_was_acknowledged(server: Server) -> None:
    backend = PostgresBackend(Address(server.url, "ada"))
    told = [Written() for _ in range(WRITERS)]
    enough = threading.Event()
    threads = [threading.Thread(target=_write, args=(backend, n, each, enough)) for n, each in enumerate(told)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        _progress(told)
        server.kill()
        time.sleep(0.2)  # some are refused meanwhile
        server.start()
        _progress(told)
    enough.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    for number, each in enumerate(told):
        found = [line["n"] for line in backend.lines(f"writer-{number}").all()]
        assert len(set(found)) == len(found)
        assert set(each.acknowledged) <= set(found) <= {*each.acknowledged, *each.unknown}
        assert found == sorted(found)
    assert backend.document("count").read() is not None
    backend.close()


def _write(backend: PostgresBackend, writer: int, told: Written, enough: threading.Event) -> None:
    number = 0
    while not enough.is_set():
        number += 1
        try:
            backend.lines(f"writer-{writer}").append([{"n": number}])
            backend.document("count").change(lambda before: str(int(before or 0) + 1).encode())
            told.acknowledged.append(number)
        except StoreError:
            told.unknown.append(number)


def _progress(told: list[Written]) -> None:
    """Wait until each writer was acknowledged something once more."""
    before = [len(each.acknowledged) for each in told]
    give_up = time.monotonic() + PATIENCE_S
    while any(len(each.acknowledged) <= n for each, n in zip(told, before, strict=True)):
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_dead_database_is_told_in_words_and_waiting_has_a_bound(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_PATIENCE_S", 1.0)
    backend = PostgresBackend(Address(server.url, "ada"))
    backend.lines("usage").append([{"n": 1}])
    server.kill()
    begun = time.monotonic()
    with pytest.raises(StoreError, match=r"no PostgreSQL answers there|connection broke"):
        backend.lines("usage").append([{"n": 2}])
    assert time.monotonic() - begun < PATIENCE_S
    server.start()
    assert backend.lines("usage").all()[0] == {"n": 1}
    backend.close()


def test_a_lock_that_is_not_given_back_is_waited_for_no_longer_than_allowed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_PATIENCE_S", 1.0)
    backend = PostgresBackend(Address(server.url, "ada"))
    backend.lines("usage").append([{"n": 1}])
    with psycopg.connect(server.url) as other:
        other.execute("SELECT 1 FROM chatbot.head WHERE identity = 'ada' FOR UPDATE")
        with pytest.raises(StoreBusy, match="the database is busy, try again"):
            backend.lines("usage").append([{"n": 2}])
    backend.lines("usage").append([{"n": 3}])
    assert [each["n"] for each in backend.lines("usage").all()] == [1, 3]
    backend.close()


@pytest.mark.usefixtures("postgres")
def test_a_process_that_is_killed_in_a_transaction_leaves_nothing_of_it(tmp_path: Path) -> None:
    worker = start("tests.stores.test_postgres_faults:write_and_wait", "tests.postgres:open_backend", tmp_path)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "written\n"
    os.kill(worker.pid, signal.SIGKILL)
    worker.communicate(timeout=PATIENCE_S)
    backend = open_backend(tmp_path)
    backend.lines("usage").append([{"n": 2}])  # once its lock is gone
    assert [each["n"] for each in backend.lines("usage").all()] == [2]
    backend.close()


def write_and_wait(backend: PostgresBackend) -> None:
    """Write in a transaction that is never committed."""
    with backend.lines("usage").alone() as pen:
        pen.append([{"n": 1}])
        print("written", flush=True)  # noqa: T201 - to the test
        threading.Event().wait()
