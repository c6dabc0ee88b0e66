"""Many users of many identities at two servers of one database: `postgres.py --load` runs this.

Each of 64 users takes three turns in a session of one identity, any server for each, and goes on to another identity.
The model is scripted, so everything measured is ours, the database's, or the clients' of this process.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg

from chatbot.stores.session_record import SessionRecord

IDENTITIES = 1_000
SESSIONS = 20
MESSAGES = 10
"""In each session at the start."""
USERS = 64
SERVERS = 2
TURNS_IN_A_ROW = 3
WORDS = ["garden", "bees", "honey", "window", "river", "paper", "train", "music", "coffee", "winter", "table", "letter"]
CONFIG = """
[agents.chat]
memory = ["basic_session", "observations"]
[storage]
url = "{url}"
[model]
name = "scripted"
[embedding]
model = ""
[server]
rate_per_minute = 0
"""


@dataclass
class Crowd:
    """The users, and how long they waited."""

    clients: list[httpx.AsyncClient]
    identities: list[str]
    until: float
    first: list[float] = field(default_factory=list)
    """Seconds of turns that were the first of their identity at a server."""
    warm: list[float] = field(default_factory=list)
    known: set[tuple[int, str]] = field(default_factory=set)

    async def talk(self) -> None:
        """Talk until the time is over."""
        await asyncio.gather(*(self._user(number) for number in range(USERS)))

    async def _user(self, number: int) -> None:
        chosen = random.Random(number)
        while time.monotonic() < self.until:
            identity, session = chosen.choice(self.identities), session_id(chosen.randrange(SESSIONS))
            for _ in range(TURNS_IN_A_ROW):
                await self._turn(chosen.randrange(SERVERS), identity, session, " ".join(chosen.choices(WORDS, k=8)))

    async def _turn(self, server: int, identity: str, session: str, text: str) -> None:
        is_first = (server, identity) not in self.known
        self.known.add((server, identity))
        begun = time.monotonic()
        asked = {"text": text, "stream": True}
        path = f"/v1/sessions/{session}/chat?identity={identity}"
        async with self.clients[server].stream("POST", path, json=asked) as answer:
            lines = [line async for line in answer.aiter_lines()]
        assert "event: done" in lines, lines[-4:]
        (self.first if is_first else self.warm).append(time.monotonic() - begun)


async def load(owner: str, url: str, seconds: float) -> None:
    """Fill the database, start the servers and let the users talk; print what it took."""
    run = uuid4().hex[:6]
    identities = [f"load-{run}-{number}" for number in range(IDENTITIES)]
    with psycopg.connect(owner, autocommit=True) as database, tempfile.TemporaryDirectory() as name:
        begun = time.monotonic()
        _fill(database, identities)
        print(f"{IDENTITIES:,} identities x {SESSIONS} sessions: made in {time.monotonic() - begun:.0f} s")
        with _servers(Path(name), url, identities) as servers:
            urls = [each.stdout.readline().split()[0] for each in servers if each.stdout]
            await _measured(database, identities, servers, urls, seconds)
        for table in ("session", "message", "head", "line", "document", "lease", "event", "piece", "key_value"):
            database.execute(f"DELETE FROM chatbot.{table} WHERE identity LIKE 'load-{run}-%'")


async def _measured(
    database: psycopg.Connection[Any],
    identities: list[str],
    servers: list[subprocess.Popen[str]],
    urls: list[str],
    seconds: float,
) -> None:
    clients = [
        httpx.AsyncClient(base_url=each, timeout=120, limits=httpx.Limits(max_connections=USERS)) for each in urls
    ]
    crowd = Crowd(clients, identities, time.monotonic() + seconds)
    begun, before, cpu = time.monotonic(), _counts(database), [_cpu_s(each.pid) for each in servers]
    watch = asyncio.create_task(_most_connections(database))
    await crowd.talk()
    took, after = time.monotonic() - begun, _counts(database)
    spent = sum(_cpu_s(each.pid) for each in servers) - sum(cpu)
    watch.cancel()
    turns = len(crowd.first) + len(crowd.warm)
    print(f"{turns} turns in {took:.0f} s: {turns / took:.1f} a second, {USERS} users, {SERVERS} servers")
    for what, times in (("first of its identity at a server", crowd.first), ("warm", crowd.warm)):
        times.sort()
        print(f"{what}: {len(times)}, p50 {statistics.median(times):.2f} s, p95 {times[int(len(times) * 0.95)]:.2f} s")
    per = {name: (after[name] - before[name]) / turns for name in before}
    print(f"a turn: {spent / turns * 1e3:.0f} ms of CPU of the servers, {per['cpu'] * 1e3:.1f} ms of the database, ")
    print(f"{per['active']:.1f} ms in statements, {per['commits']:.1f} transactions, ")
    print(f"{per['size'] / 1024:.1f} KB of growth, {per['wal'] / 1024:.1f} KB of write-ahead log")
    memory = ", ".join(f"{_resident_mb(each.pid):.0f}" for each in servers)
    known = len(crowd.known) / SERVERS
    print(f"most connections: {max(CONNECTIONS)}; memory of a server: {memory} MB with {known:.0f} identities open")
    for client in clients:
        await client.aclose()


CONNECTIONS: list[int] = [0]
"""How many the servers held, at each look."""


async def _most_connections(database: psycopg.Connection[Any]) -> None:
    role = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    with psycopg.connect(database.info.dsn, autocommit=True) as own:
        while True:
            CONNECTIONS.append((await asyncio.to_thread(lambda: own.execute(role).fetchall()))[0][0] - 1)
            await asyncio.sleep(1)


def _fill(database: psycopg.Connection[Any], identities: list[str]) -> None:
    now = datetime.now(UTC)
    with database.cursor() as cursor:
        columns = "chatbot.session (identity, id, used_at, is_published, record)"
        with cursor.copy(f"COPY {columns} FROM STDIN") as copy:
            for identity in identities:
                for number in range(SESSIONS):
                    record = SessionRecord(session_id(number), "chat", ("basic_session", "observations"), now, now)
                    copy.write_row((identity, record.id, now, True, _json(record)))
    database.execute(
        "INSERT INTO chatbot.message SELECT identity, id, n, CASE n %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END, "
        "'said ' || n || repeat(' word', 40), now() FROM chatbot.session, generate_series(1, %s) AS n "
        "WHERE identity = ANY(%s)",
        (MESSAGES, identities),
    )
    database.execute(
        "INSERT INTO chatbot.head SELECT identity, id, '.messages', 1, %s FROM chatbot.session "
        "WHERE identity = ANY(%s)",
        (MESSAGES, identities),
    )
    database.execute("ANALYZE chatbot.session, chatbot.message, chatbot.head")
    database.execute("CHECKPOINT")


def _json(record: SessionRecord) -> str:
    import json

    return json.dumps(record.as_json())


@contextmanager
def _servers(folder: Path, url: str, identities: list[str]) -> Iterator[list[subprocess.Popen[str]]]:
    (folder / "config.toml").write_text(CONFIG.format(url=url), encoding="utf-8")
    for each in identities:
        (folder / "identities" / each).mkdir(parents=True)
        (folder / "identities" / each / "identity.toml").write_text('clearance = "full"', encoding="utf-8")
    environment = os.environ | {
        "XDG_CACHE_HOME": str(folder),
        "CHATBOT_CONFIG": str(folder / "config.toml"),
        "CHATBOT_IDENTITY": identities[0],
    }
    command = [sys.executable, "-m", "chatbot", "serve", "--port", "0"]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)
            )
            for _ in range(SERVERS)
        ]
        try:
            yield servers
        finally:
            for server in servers:
                server.terminate()


def _counts(database: psycopg.Connection[Any]) -> dict[str, float]:
    """What the database has done, and its CPU seconds where it runs on this machine."""
    [row] = database.execute(
        "SELECT pg_stat_force_next_flush(), active_time, xact_commit, pg_database_size(datname), "
        "pg_current_wal_lsn() - '0/0'::pg_lsn FROM pg_stat_database WHERE datname = current_database()"
    ).fetchall()
    names = ("active", "commits", "size", "wal")
    return dict(zip(names, map(float, row[1:]), strict=True)) | {"cpu": _cpu_of_database(database.info.backend_pid)}


def _cpu_of_database(backend: int) -> float:
    try:
        postmaster = int(_stat(backend)[1])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii").split()
    except OSError:
        return 0.0
    ended = sum(map(int, _stat(postmaster)[13:15])) / os.sysconf("SC_CLK_TCK")
    return ended + _cpu_s(postmaster) + sum(_cpu_s(int(each)) for each in children)


def _cpu_s(pid: int) -> float:
    try:
        return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def _stat(pid: int) -> list[str]:
    """The fields of a process from its state on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def session_id(number: int) -> str:
    """The id of a session; those of all identities have the same."""
    return f"01900000-0000-7000-8000-{number:012x}"
