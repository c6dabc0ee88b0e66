"""The contract kit on PostgreSQL, a server that begins with what others keep, and PgBouncer in transaction mode."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from hypothesis import settings

from chatbot.memory import Draft, MemorySystem
from chatbot.stores.home import Address
from chatbot.stores.observations import replica
from chatbot.stores.postgres.backend import PostgresBackend
from chatbot.stores.postgres.observations import PostgresObservations
from chatbot.stores.postgres.sessions_store import PostgresSessionStore
from chatbot.stores.records import SessionRecord
from chatbot.stores.testing import KeyValueStoreContract, TranscriptStoreContract
from chatbot.stores.testing.backend_contract import BackendContract
from chatbot.stores.testing.log_contract import LogContract, ShelfContract
from chatbot.stores.testing.observation_contract import ObservationStoreContract
from chatbot.stores.testing.observation_machine import ObservationMachine
from chatbot.stores.testing.session_contract import OTHER, SESSION, START
from tests.patience import PATIENCE_S
from tests.postgres import ROLE, address, open_backend, owner_url

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("postgres")]


class TestPostgresBackend(BackendContract):
    opener = "tests.postgres:open_backend"
    erasure = "logical"
    lapses_within_s = PATIENCE_S

    def test_a_damaged_line_is_skipped_and_reported(self, place: Any, caplog: pytest.LogCaptureFixture) -> None:
        lines = place.lines("receipts")
        lines.append([{"n": number} for number in range(3)])
        place.run("UPDATE chatbot.line SET record = '{' WHERE identity = %(identity)s AND n = 2")
        assert [each["n"] for each in lines.all()] == [each["n"] for each in lines.since(None).records] == [0, 2]
        assert "receipts holds a line that is not a record" in caplog.text


class TestPostgresLog(LogContract):
    opener = "tests.postgres:open_log"
    erasure = "logical"


class TestPostgresShelf(ShelfContract):
    opener = "tests.postgres:open_shelf"
    erasure = "logical"


class TestPostgresSessionStore(KeyValueStoreContract, TranscriptStoreContract):
    erasure = "logical"
    kv_cap = 3
    transcript_cap = None

    @pytest.fixture(autouse=True)
    def sessions(self, home: Path) -> None:
        begun(home)

    def open_store(self, home: Path) -> PostgresSessionStore:
        return PostgresSessionStore(address(home), kv_cap=3)


class TestPostgresObservations(ObservationStoreContract):
    erasure = "logical"

    def open_store(self, home: Path) -> PostgresObservations:
        return open_observations(home)


def begun(folder: Path) -> None:
    """The two sessions of the kit."""
    backend = open_backend(folder)
    for session in (SESSION, OTHER):
        backend.sessions.begin(SessionRecord(session.id, "chat", ("basic_session",), START, START))
    backend.close()


def open_observations(home: Path) -> PostgresObservations:
    return PostgresObservations(address(home), cache=str(home / "cache"))


class PostgresMachine(ObservationMachine):
    def open_store(self, home: Path) -> PostgresObservations:
        return open_observations(home)


TestPostgresHistories = PostgresMachine.TestCase
TestPostgresHistories.settings = settings(max_examples=5, stateful_step_count=30, deadline=None)


ROWS = 600
PIECES = "SELECT count(*) FROM chatbot.piece WHERE identity = %(identity)s AND shelf = 'table'"


def _opened(folder: Path, cache: str) -> MemorySystem:
    where = address(folder)
    settings: dict[str, dict[str, Any]] = {"observations": {"cache": str(folder / cache)}}
    return MemorySystem(f"{where.url}#{where.identity}", settings=settings)


async def test_it_reads_their_table_and_no_line_that_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _opened(tmp_path, "one") as one:
        await one.memory("chat").remember_all([Draft(f"hive {n} of Ada") for n in range(ROWS)])
        assert await one.memory("chat").search("hive", limit=1, count_use=False)
    monkeypatch.setattr(replica, "event_of", lambda *_: sys.exit("a line was read"))
    async with _opened(tmp_path, "two") as two:
        [hit] = await two.memory("chat").search("hive 17", limit=1, count_use=False)
        assert hit.observation.title == "hive 17 of Ada"
    assert not (tmp_path / "two").exists()  # nothing is kept on its disk
    monkeypatch.undo()
    for name in ("behind the table", "the first call of a process"):
        async with _opened(tmp_path, name) as other:
            assert (await other.memory("chat").remember(name)).outcome == "added"


async def test_what_is_erased_is_in_no_table_that_others_read(tmp_path: Path) -> None:
    backend = open_backend(tmp_path)
    async with _opened(tmp_path, "one") as one:
        kept = await one.memory("chat").remember_all([Draft(f"hive {n} of Ada", tags=("bees",)) for n in range(ROWS)])
    assert backend.rows(PIECES) == [(1,)]
    async with _opened(tmp_path, "two") as two:
        await two.memory("chat").purge(kept[0].id)
        assert backend.rows(PIECES) == [(0,)]
    backend.close()


PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
CONNECTIONS = 3
CONFIG = """
[databases]
postgres = host={host} dbname=postgres user={role} connect_query='SET default_transaction_isolation = serializable'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 100
"""


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Address]:
    """An identity behind PgBouncer, which has fewer connections than its clients."""
    if PGBOUNCER is None:
        pytest.skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host = parse_qs(urlsplit(owner_url()).query)["host"][0]
    file = tmp_path / "pgbouncer.ini"
    file.write_text(CONFIG.format(host=host, role=ROLE, port=port, connections=CONNECTIONS))
    user = ["-u", Path(host).owner()] if getpass.getuser() == "root" else []  # who can reach the socket
    with subprocess.Popen([PGBOUNCER, "-q", *user, str(file)]) as process:
        url = f"postgresql://{ROLE}@127.0.0.1:{port}/postgres"
        try:
            _wait_for(url)
            yield Address(url, address(tmp_path).identity)
        finally:
            process.kill()


def _wait_for(url: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return psycopg.connect(url).close()
        except psycopg.OperationalError:
            assert time.monotonic() < give_up
            time.sleep(0.05)


def test_many_threads_share_few_connections_and_nothing_is_lost(where: Address) -> None:
    backend = PostgresBackend(where)

    def work(number: int) -> None:
        for n in range(10):
            backend.lines("usage").append([{"n": 10 * number + n}])
            backend.document("count").change(lambda before: str(int(before or 0) + 1).encode())

    with ThreadPoolExecutor(2 * CONNECTIONS) as pool:
        list(pool.map(work, range(2 * CONNECTIONS)))
    assert sorted(each["n"] for each in backend.lines("usage").all()) == list(range(20 * CONNECTIONS))
    assert backend.document("count").read() == str(20 * CONNECTIONS).encode()
    assert backend.rows("SELECT current_setting('transaction_isolation')") == [("read committed",)]
    lease, other = backend.lease("turn"), backend.lease("turn")
    assert lease.take()
    assert not other.take()
    lease.release()
    backend.close()


async def test_memories_and_sessions_work_behind_it(where: Address) -> None:
    name = f"{where.url}#{where.identity}"
    async with MemorySystem(name) as one, MemorySystem(name) as two:
        session = await one.create_session(["basic_session", "observations"], "chat", title="Bees")
        await session.transcript_append("user", "I keep bees")
        kept = await one.memory("chat").remember("Ada keeps bees in the garden")
        assert [hit.observation.id for hit in await two.memory("chat").search("bees")] == [kept.id]
        same = await two.load_session(session.id, "chat")
        assert [each.content for each in await same.transcript_read_all()] == ["I keep bees"]
        await two.memory("chat").purge(kept.id)
        assert await one.memory("chat").search("bees") == []
