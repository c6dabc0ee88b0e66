"""Death of a server, a database, its connection or a primary: what was acknowledged is kept, and errors say why."""

import asyncio
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from chatbot.stores.errors import StoreAway, StoreBusy, StoreError, StoreFailed, UnknownOutcome
from chatbot.stores.home import Address
from chatbot.stores.postgres import database, database_connection, schema
from chatbot.stores.postgres.backend import PostgresBackend
from chatbot.stores.postgres.log import PostgresLog
from chatbot.stores.postgres.sessions_store import PostgresSessionStore
from chatbot.stores.records import SessionRef, TranscriptEntry
from chatbot.stores.testing.backend_contract import record
from chatbot.stores.testing.log_contract import event, read, row_id, write
from chatbot.stores.testing.processes import start
from tests.patience import PATIENCE_S
from tests.postgres import ROLE, address, open_backend, owner_url
from tests.postgres_pair import Node, nodes, pair, several

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("postgres")]
MINUTES = float(os.environ.get("CHATBOT_KILL_MINUTES", "0.5"))
"""How long the database is killed at random."""
WRITERS = 4


@dataclass
class Written:
    """Answers that a writer got: numbers that were acknowledged, and the errors of the others."""

    acknowledged: list[int] = field(default_factory=list)
    refused: dict[int, StoreError] = field(default_factory=dict)

    def check(self, found: list[int]) -> None:
        """Check that what was acknowledged is there once and in order, and nothing that was never written."""
        assert found == sorted(set(found))
        assert set(self.acknowledged) <= set(found) <= {*self.acknowledged, *self.refused}


@pytest.fixture
def server() -> Iterator[Node]:
    with nodes("killed") as [server]:
        server.create()
        schema.create(server.url)
        yield server
        database.Database.close_all()


def test_a_database_that_is_killed_under_load_loses_nothing_that_was_acknowledged(server: Node) -> None:
    where = Address(server.url, "ada")
    backend = PostgresBackend(where)
    lines, enough = [Written() for _ in range(WRITERS)], threading.Event()
    threads = [threading.Thread(target=_write, args=(backend, n, each, enough)) for n, each in enumerate(lines)]
    for thread in threads:
        thread.start()
    chance, kills, end = random.Random(20), 0, time.monotonic() + MINUTES * 60
    with talking(backend, where) as messages:
        while time.monotonic() < end or kills < 3:
            progress([*lines, *messages])
            time.sleep(chance.uniform(0, 3))
            server.kill()
            kills += 1
            time.sleep(chance.uniform(0, 1))  # some are refused meanwhile
            server.start()
    enough.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    for number, each in enumerate(lines):
        each.check([line["n"] for line in backend.lines(f"writer-{number}").all()])
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
        except StoreError as error:
            told.refused[number] = error


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk with little room, which only root may mount."""
    disk = Path(mkdtemp(prefix="chatbot-small-"))
    mounting = ["mount", "-t", "tmpfs", "-o", "size=192m", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mounting, check=False).returncode:
        disk.rmdir()
        pytest.skip("no disk may be mounted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)
    disk.rmdir()


def test_a_full_disk_is_told_and_all_goes_on_once_there_is_room(small_disk: Path) -> None:
    ballast, acknowledged = small_disk / "ballast", list[int]()
    with nodes("full", home=small_disk) as [server]:
        server.create()
        schema.create(server.url)
        backend = PostgresBackend(Address(server.url, "ada"))
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))

        def fill() -> None:
            for number in range(200):
                backend.lines("usage").append([{"n": number, "text": os.urandom(200_000).hex()}])
                acknowledged.append(number)

        with pytest.raises(StoreError, match=r"no room|connection broke|no PostgreSQL answers|starting|shutting"):
            fill()
        ballast.unlink()
        server.kill()  # for a server whose log has no room may have stopped
        server.start()
        backend.lines("usage").append([{"n": 1_000}])
        found = [each["n"] for each in backend.lines("usage").all()]
        assert set(acknowledged) <= set(found)
        assert found == sorted(set(found))
        backend.close()
        database.Database.close_all()


def test_a_dead_database_is_told_in_words_and_waiting_is_bounded(server: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LONGEST_WAIT_S", 1.0)
    backend = PostgresBackend(Address(server.url, "ada"))
    backend.lines("usage").append([{"n": 1}])
    server.kill()
    begun = time.monotonic()
    with pytest.raises(StoreError, match=r"no PostgreSQL answers there|connection broke"):
        backend.lines("usage").append([{"n": 2}])
    assert time.monotonic() - begun < PATIENCE_S
    with pytest.raises(StoreError, match="no PostgreSQL answers there"):
        backend.lines("usage").append([{"n": 3}])
    stats = backend.database._pool.get_stats  # type: ignore[union-attr]
    asked = stats()["requests_num"]
    with pytest.raises(StoreError, match="no PostgreSQL answers there"):
        backend.lines("usage").append([{"n": 4}])
    assert stats()["requests_num"] == asked  # it was known by then, so nothing was waited for
    server.start()
    with backend.database.connection(), backend.database.connection(), backend.database.connection():
        assert backend.lines("usage").all()[0] == {"n": 1}
    server.kill()
    server.start()
    assert backend.lines("usage").all()[0] == {"n": 1}  # three connections ended meanwhile
    backend.close()


def test_a_kept_lock_is_awaited_no_longer_than_allowed(server: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LONGEST_WAIT_S", 1.0)
    backend = PostgresBackend(Address(server.url, "ada"))
    backend.lines("usage").append([{"n": 1}])
    with psycopg.connect(server.url) as other:
        other.execute("SELECT 1 FROM chatbot.head WHERE identity = 'ada' FOR UPDATE")
        with pytest.raises(StoreBusy, match="the database is busy, try again"):
            backend.lines("usage").append([{"n": 2}])
    backend.lines("usage").append([{"n": 3}])
    assert [each["n"] for each in backend.lines("usage").all()] == [1, 3]
    backend.close()


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
    with backend.lines("usage").alone() as writer:
        writer.append([{"n": 1}])
        print("written", flush=True)  # noqa: T201 - to the test
        threading.Event().wait()


_SLOW = "CREATE TABLE chatbot.half (n integer); SELECT pg_sleep(600)"


def test_a_creation_that_is_killed_leaves_nothing_of_it_and_is_repeated(server: Node) -> None:
    with psycopg.connect(server.url, autocommit=True) as owner:
        owner.execute("DROP SCHEMA chatbot CASCADE")
        worker = start("tests.stores.test_postgres_faults:create_slowly", "builtins:str", Path(), server.url)
        while not owner.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'").fetchall():
            assert worker.poll() is None
            time.sleep(0.05)
        os.kill(worker.pid, signal.SIGKILL)
        worker.communicate(timeout=PATIENCE_S)
        assert schema.create(server.url) == "created"
        assert owner.execute("SELECT to_regclass('chatbot.half')").fetchall() == [(None,)]


def create_slowly(_: str, url: str) -> None:
    """Create tables whose last step takes for ever."""
    whole = schema.text()
    schema.text = lambda: f"{whole};{_SLOW}"
    schema.create(url)


_READY = b"Z\0\0\0\5I"
"""How the server ends an answer once nothing is under way."""


class Proxy:
    """A way to the database that is cut once a client says `word`, before or after the server hears it."""

    def __init__(self) -> None:
        self.word, self.is_heard, self._is_mute = b"", False, False
        """The bytes at which it is cut, and whether the server still gets them."""
        self.is_told = True
        """True if the client sees the cut."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def cut_at(self, word: bytes, *, is_heard: bool, is_told: bool = True) -> None:
        self.word, self.is_heard, self.is_told = word, is_heard, is_told

    def listens_again(self) -> None:
        self._is_mute = False

    def close(self) -> None:
        self._server.close()
        for each in self._open:
            each.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{parse_qs(urlsplit(owner_url()).query)['host'][0]}/.s.PGSQL.5432")
            self._open += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.word and self.word in data:
                    self.word, self._is_mute = b"", self.is_heard
                    if not self.is_heard:
                        break
                elif self._is_mute and source.family == socket.AF_UNIX:
                    if _READY in data and self.is_told:  # it was done, and nobody is told
                        self._is_mute = False
                        break
                    continue
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


@pytest.fixture
def backend(proxy: Proxy, tmp_path: Path) -> Iterator[PostgresBackend]:
    """An identity behind the proxy."""
    where = Address(f"postgresql://{ROLE}@127.0.0.1:{proxy.port}/postgres?sslmode=disable", address(tmp_path).identity)
    backend = PostgresBackend(where)
    backend.lines("usage").append([{"n": 1}])
    yield backend
    backend.close()


@pytest.mark.parametrize("is_heard", [True, False])
def test_an_unanswered_append_is_repeated_if_it_is_missing_and_a_document_is_looked_for(
    backend: PostgresBackend, proxy: Proxy, *, is_heard: bool
) -> None:
    lines, other, begun = backend.lines("usage"), backend.lines("receipts"), record(1)
    backend.sessions.begin(begun)
    store, session = PostgresSessionStore(backend._address), SessionRef(begun.id, Path())
    said = [TranscriptEntry("user", f"no {number}", begun.created_at) for number in range(5)]

    def say(*entries: TranscriptEntry) -> None:
        store.blocking_append(session, entries)()

    writes: list[Callable[[], object]] = [
        lambda: lines.append([{"n": 2}]),
        lambda: other.append([{"n": 1}, {"n": 2}]),
        lambda: say(*said[:2]),
        lambda: say(said[2]),
        lambda: backend.write_together([lambda: say(said[3]), lambda: lines.append([{"n": 3}]), lambda: say(said[4])]),
    ]
    for each in writes:
        proxy.cut_at(b"INSERT INTO chatbot.", is_heard=is_heard)
        assert (each() in (None, [None] * 3), proxy.word) == (True, b"")
    assert [each["n"] for each in lines.all()] == [1, 2, 3]
    assert [each["n"] for each in other.all()] == [1, 2]
    assert asyncio.run(store.transcript_read_last(session, 9)) == said
    proxy.cut_at(b"COMMIT\0", is_heard=is_heard)
    with nullcontext() if is_heard else pytest.raises(UnknownOutcome, match="not known whether it was kept"):
        backend.document("settings").change(lambda _: b"changed")
    assert backend.document("settings").read() == (b"changed" if is_heard else None)
    asyncio.run(store.aclose())


@pytest.mark.parametrize("is_heard", [True, False])
def test_an_unanswered_write_of_memory_is_looked_for(backend: PostgresBackend, proxy: Proxy, *, is_heard: bool) -> None:
    log = PostgresLog(backend._address)
    write(log, event(1))
    proxy.cut_at(b"INSERT INTO chatbot.event", is_heard=is_heard)
    with log.optimistic() as writing:
        writing.append(event(2))
        writing.release()
    proxy.cut_at(b"COMMIT\0", is_heard=is_heard)
    with nullcontext() if is_heard else pytest.raises(StoreAway, match="nothing was written"):
        write(log, event(3))
    if not is_heard:
        write(log, event(3))
    with closing(PostgresLog(backend._address)) as other:
        assert [each for _, each in read(other)] == [row_id(number) for number in (1, 2, 3)]
    log.close()


def test_a_network_that_swallows_every_answer_is_waited_for_no_longer_than_allowed(
    backend: PostgresBackend, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_connection, "LONGEST_S", 1.0)
    monkeypatch.setattr(database, "_LONGEST_WAIT_S", 4.0)  # the pool may have to give up a connection that hangs
    backend = PostgresBackend(Address(f"{backend._address.url}&connect_timeout=2", backend.identity))
    proxy.cut_at(b"chatbot.version", is_heard=True, is_told=False)
    with pytest.raises(StoreAway, match="no answer for 1 s"):  # before there is a pool
        backend.document("settings").read()
    proxy.listens_again()
    proxy.cut_at(b"COMMIT\0", is_heard=True, is_told=False)
    with pytest.raises(StoreFailed, match=r"not known whether it was kept.*no answer for 1 s"):
        backend.document("settings").change(lambda _: b"changed")
    proxy.listens_again()
    assert backend.document("settings").read() == b"changed"
    backend.close()


def test_a_dead_network_is_looked_at_once_for_all_who_wait() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server, ThreadPoolExecutor(12) as threads:
        where = f"postgresql://{ROLE}@127.0.0.1:{server.getsockname()[1]}/postgres"
        unanswered = database.Database.of(f"{where}?connect_timeout=2&sslmode=disable&gssencmode=disable")
        asked = [threads.submit(unanswered.rows, "ada", "SELECT 1") for _ in range(12)]
        assert {type(each.exception()) for each in asked} == {StoreAway}
        unanswered.release()
        server.settimeout(0)
        looks = 0
        with suppress(BlockingIOError):
            while True:
                server.accept()[0].close()
                looks += 1
    assert looks < 6  # and not 12, one after the other


def test_what_only_reads_is_repeated_without_a_word(backend: PostgresBackend, proxy: Proxy) -> None:
    proxy.cut_at(b"chatbot.line", is_heard=False)
    assert [each["n"] for each in backend.lines("usage").all()] == [1]


def test_a_database_without_connections_left_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LONGEST_WAIT_S", 0.1)
    with psycopg.connect(owner_url(), autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS chatbot_crowded")
        owner.execute(f"CREATE ROLE chatbot_crowded LOGIN CONNECTION LIMIT 1 IN ROLE {ROLE}")
        where = Address(owner_url().replace("//postgres@", "//chatbot_crowded@"), address(tmp_path).identity)
        backend = PostgresBackend(where)
        with (
            psycopg.connect(where.url),
            pytest.raises(StoreError, match="no connection left: raise max_connections or the CONNECTION LIMIT"),
        ):
            backend.lines("usage").append([{"n": 1}])
        while owner.execute("SELECT 1 FROM pg_stat_activity WHERE usename = 'chatbot_crowded'").fetchall():
            time.sleep(0.01)
        backend.lines("usage").append([{"n": 2}])
        with backend.database.connection(), pytest.raises(StoreBusy, match="no connection left"):
            backend.lines("usage").append([{"n": 1}])
        assert backend.lines("usage").all() == [{"n": 2}]  # over the connection that it has
        backend.close()
        owner.execute("DROP ROLE chatbot_crowded")


@pytest.fixture
def both() -> Iterator[tuple[Node, Node]]:
    with pair() as (primary, standby):
        schema.create(primary.url)
        yield primary, standby
        database.Database.close_all()


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


def test_a_promoted_standby_has_everything_that_was_acknowledged_and_writers_go_on(
    both: tuple[Node, Node],
) -> None:
    primary, standby = both
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


def test_a_server_that_became_read_only_is_left_for_the_other_one(both: tuple[Node, Node]) -> None:
    primary, standby = both
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


def test_a_database_of_which_no_server_may_be_written_to_says_what_to_do(both: tuple[Node, Node]) -> None:
    primary, standby = both
    primary.kill()
    backend = PostgresBackend(Address(several(primary, standby), "ada"))
    with pytest.raises(StoreFailed, match="no server that answers accepts writes"):
        backend.lines("usage").append([{"n": 1}])
    backend.close()


def test_no_commit_waits_too_long_for_a_standby(both: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_connection, "LONGEST_S", 5.0)
    monkeypatch.setattr(database, "_LONGEST_WAIT_S", 1.0)
    primary, standby = both
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
