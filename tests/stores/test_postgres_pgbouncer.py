"""PgBouncer in transaction mode: a connection of the database may be another one for each transaction."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from chatbot.memory import MemorySystem
from chatbot.stores.home import Address
from chatbot.stores.postgres.backend import PostgresBackend
from tests.patience import PATIENCE_S
from tests.postgres import ROLE, address, owner_url

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("postgres"),
    pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed (Debian: apt-get install pgbouncer)"),
]
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
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host = parse_qs(urlsplit(owner_url()).query)["host"][0]
    file = tmp_path / "pgbouncer.ini"
    file.write_text(CONFIG.format(host=host, role=ROLE, port=port, connections=CONNECTIONS))
    assert PGBOUNCER is not None
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
