"""Many users at once on two real servers in front of one PostgreSQL: `python benchmarks/postgres.py --load`.

One identity gets conversations, and its rows are copied to all others, so that a thousand are ready in seconds. Then
each identity takes one turn, so that its server opens it, and users have conversations of a few turns for a while. An
identity stays on one server, as with a load balancer's `ip_hash`. Replies are streamed and checked.
"""

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import psycopg
from recall import Corpus

SERVERS = 2
ALONE = 20
"""Turns that one user takes alone."""
SETTLES_S = 11
"""When a connection that rests has told what it did: PostgreSQL waits 10 seconds at most."""
CONFIG = """
[model]
name = "scripted"
script = ["{reply}"]
[embedding]
model = ""
[server]
rate_per_minute = 0
[storage]
url = "{url}"
"""
REPLY = " ".join(["word"] * 40)
_NOT_COPIED = ("lease", "event")
_TABLES = """
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'chatbot'::regnamespace AND c.relkind = 'p' AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY c.relname
"""
_WORK = """
SELECT d.xact_commit, d.active_time, pg_current_wal_insert_lsn() - '0/0'::pg_lsn
FROM pg_stat_database d WHERE d.datname = current_database()
"""
_SIZES = """
SELECT coalesce(p.inhparent::regclass::text, c.oid::regclass::text), sum(pg_total_relation_size(c.oid))::bigint
FROM pg_class c LEFT JOIN pg_inherits p ON p.inhrelid = c.oid
WHERE c.relnamespace = 'chatbot'::regnamespace AND c.relkind = 'r' GROUP BY 1
"""


@dataclass(frozen=True)
class Load:
    """Size of the load: identities, sessions of each, users at once, seconds, and turns of a conversation."""

    identities: int
    sessions: int
    users: int
    seconds: float
    turns: int


@dataclass(frozen=True)
class Sample:
    """Counters at one time; the difference of two is the work between them."""

    at: float
    servers_s: float
    database_s: float
    client_s: float
    commits: int
    active_ms: float
    wal: int
    sizes: dict[str, int]


@dataclass
class Phase:
    """The turns of users between two samples."""

    name: str
    took: list[float] = field(default_factory=list)
    seconds: float = 0.0
    before: Sample | None = None
    after: Sample | None = None

    def per_turn(self, value: Callable[[Sample], float]) -> float:
        """Return the difference of a counter per turn."""
        assert self.before is not None
        assert self.after is not None
        return (value(self.after) - value(self.before)) / len(self.took)


@dataclass
class Peak:
    """Highest values that were seen."""

    connections: int = 0


class Servers:
    """Two processes of `chatbot serve`, which share only a database."""

    def __init__(self, folder: Path, url: str, names: list[str]) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        for number in range(SERVERS):
            home = folder / f"server-{number}"
            for name in names:
                (home / "identities" / name).mkdir(parents=True)
                (home / "identities" / name / "identity.toml").write_text('clearance = "full"', encoding="utf-8")
            config = CONFIG.format(reply=REPLY, url=url)
            (home / "config.toml").write_text(config, encoding="utf-8")
            self.processes.append(_server(home))
        self.urls = [_url(process) for process in self.processes]

    def cpu_s(self) -> float:
        """Return the CPU seconds of all servers."""
        return sum(_cpu_s(psutil.Process(process.pid)) for process in self.processes)

    def memory_mb(self) -> float:
        """Return the resident memory of the larger server."""
        return max(float(psutil.Process(process.pid).memory_info().rss) for process in self.processes) / 2**20

    def stop(self) -> None:
        """Stop the servers, and wait until they have ended."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


class Users:
    """Clients of all servers, and their actions."""

    def __init__(self, clients: list[httpx.AsyncClient], load: Load, seed: int = 7) -> None:
        self._clients = clients
        self._load = load
        self._random = random.Random(seed)
        self._texts = Corpus(5_000).rows

    async def begin(self, name: str) -> list[str]:
        """Begin the sessions of one identity, with three turns each."""
        client, sessions = self._clients[0], []
        for _ in range(self._load.sessions):
            made = await client.post("/v1/sessions", params={"identity": name}, json={})
            sessions.append(str(made.raise_for_status().json()["id"]))
            for _ in range(3):
                await self.turn(0, sessions[-1])
        return sessions

    async def turn(self, identity: int, session: str) -> float:
        """Return the seconds of a streamed turn. Raises an error unless its reply is whole."""
        client = self._clients[identity % SERVERS]
        text = self._random.choice(self._texts)
        begun = time.perf_counter()
        where = f"/v1/sessions/{session}/chat?identity={name_of(identity)}"
        async with client.stream("POST", where, json={"text": text}) as response:
            lines = [line async for line in response.aiter_lines()]
        words = sum(line.startswith('data: {"text":"word') for line in lines)
        if response.status_code != httpx.codes.OK or words != len(REPLY.split()):
            raise RuntimeError(f"{response.status_code}, {words} words: {lines[-3:]}")
        return time.perf_counter() - begun

    async def each(self, work: Iterator[Callable[[], Awaitable[list[float]]]]) -> list[float]:
        """Do all work with that many users at once; return the seconds of each turn."""
        took: list[float] = []

        async def user() -> None:
            for one in work:
                took.extend(await one())

        await asyncio.gather(*(user() for _ in range(self._load.users)))
        return took

    def first_turns(self, sessions: list[str]) -> Iterator[Callable[[], Awaitable[list[float]]]]:
        """Yield one turn of each identity."""
        for identity in range(1, self._load.identities):
            yield self._conversation(identity, sessions[0], 1)

    def conversations(self, sessions: list[str], until: float) -> Iterator[Callable[[], Awaitable[list[float]]]]:
        """Yield conversations, each in a session of its own, until that time."""
        places = [(each, session) for each in range(self._load.identities) for session in sessions[1:]]
        self._random.shuffle(places)
        for identity, session in places:
            if time.perf_counter() > until:
                return
            yield self._conversation(identity, session, self._load.turns)

    def _conversation(self, identity: int, session: str, turns: int) -> Callable[[], Awaitable[list[float]]]:
        async def talk() -> list[float]:
            return [await self.turn(identity, session) for _ in range(turns)]

        return talk


class Bench:
    """Samples of servers, database and this process."""

    def __init__(self, owner: str, servers: Servers, users: Users) -> None:
        self._owner = owner
        self._servers = servers
        self._users = users
        self.peak = Peak()
        with psycopg.connect(owner) as connection:
            self._postmaster = psutil.Process(_postmaster(connection))

    async def phase(self, name: str, work: Callable[[], Iterator[Callable[[], Awaitable[list[float]]]]]) -> Phase:
        """Let users work, and measure them."""
        phase = Phase(name, before=self.sample())
        begun = time.perf_counter()
        watching = asyncio.create_task(self._watch())
        phase.took = await self._users.each(work())
        phase.seconds = time.perf_counter() - begun
        watching.cancel()
        await asyncio.sleep(SETTLES_S)
        phase.after = self.sample()
        return phase

    def sample(self) -> Sample:
        """Return the current counters."""
        with psycopg.connect(self._owner) as connection:
            found = connection.execute(_WORK).fetchone()
            sizes: dict[str, int] = dict(connection.execute(_SIZES).fetchall())
        assert found is not None
        client = sum(psutil.Process().cpu_times()[:2])
        database = _cpu_s(self._postmaster)
        return Sample(
            time.perf_counter(), self._servers.cpu_s(), database, client, found[0], found[1], int(found[2]), sizes
        )

    async def _watch(self) -> None:
        asked = (
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        async with await psycopg.AsyncConnection.connect(self._owner, autocommit=True) as connection:
            while True:
                found = await (await connection.execute(asked)).fetchone()
                assert found is not None
                self.peak.connections = max(self.peak.connections, found[0])
                await asyncio.sleep(1)


async def measure(owner: str, server_url: str, load: Load) -> None:
    """Run the load, and print a table in Markdown. `owner` is the URL of a superuser, who copies rows."""
    names = [name_of(number) for number in range(load.identities)]
    with tempfile.TemporaryDirectory() as folder, _running(Path(folder), server_url, names) as servers:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(_client(url, load.users)) for url in servers.urls]
            users = Users(clients, load)
            sessions = await users.begin(names[0])
            copied = _copy(owner, names)
            bench = Bench(owner, servers, users)
            memory = [servers.memory_mb()]
            first = await bench.phase("first turn of an identity", lambda: users.first_turns(sessions))
            memory.append(servers.memory_mb())
            alone = [await users.turn(1, sessions[1]) for _ in range(ALONE)]
            until = time.perf_counter() + load.seconds
            later = await bench.phase("later turns", lambda: users.conversations(sessions, until))
            memory.append(servers.memory_mb())
    print(f"\n{load}, {copied:,} rows copied, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.0f}\n")
    _print([first, later])
    print(f"| one user alone, p50, p95 | | {_times(alone)} |")
    opened = (load.identities - 1) / SERVERS
    print(f"| memory of a server, {memory[0]:.0f} MB before | {memory[1]:.0f} MB | {memory[2]:.0f} MB |")
    print(f"| memory for an identity that is open | {(memory[1] - memory[0]) / opened * 1024:.0f} kB | |")
    print(f"| connections, most of both servers | | {bench.peak.connections} |")
    _tell_tables(later)


def name_of(number: int) -> str:
    """Return the name of an identity."""
    return f"load-{number:06}"


def _print(phases: list[Phase]) -> None:
    rows: dict[str, Callable[[Phase], str]] = {
        "turns": lambda each: f"{len(each.took):,}",
        "turns a second": lambda each: f"{len(each.took) / each.seconds:.1f}",
        "p50, p95": lambda each: _times(each.took),
        "CPU of a server for a turn": lambda each: f"{each.per_turn(lambda at: at.servers_s) * 1e3:.1f} ms",
        "CPU of the database for a turn": lambda each: f"{each.per_turn(lambda at: at.database_s) * 1e3:.1f} ms",
        "time of the database for a turn": lambda each: f"{each.per_turn(lambda at: at.active_ms):.1f} ms",
        "transactions of a turn": lambda each: f"{each.per_turn(lambda at: at.commits):.1f}",
        "growth of the database for a turn": lambda each: f"{each.per_turn(_size):,.0f} bytes",
        "write-ahead log of a turn": lambda each: f"{each.per_turn(lambda at: at.wal):,.0f} bytes",
        "CPU of the benchmark itself for a turn": lambda each: f"{each.per_turn(lambda at: at.client_s) * 1e3:.1f} ms",
    }
    print("| | " + " | ".join(each.name for each in phases) + " |")
    print("|---|" + "---|" * len(phases))
    for name, value in rows.items():
        print(f"| {name} | " + " | ".join(value(each) for each in phases) + " |")


def _tell_tables(phase: Phase) -> None:
    assert phase.after is not None
    grown = {name: phase.per_turn(lambda at, name=name: at.sizes.get(name, 0)) for name in phase.after.sizes}  # type: ignore[misc]
    most = sorted(grown.items(), key=lambda each: -each[1])[:5]
    print("| growth by table, bytes a turn | | " + ", ".join(f"{name} {size:,.0f}" for name, size in most) + " |")
    print(f"| size of the tables | | {_size(phase.after) / 2**20:,.0f} MB |")


def _size(sample: Sample) -> float:
    return float(sum(sample.sizes.values()))


def _times(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:,.0f} ms, {sorted(seconds)[int(len(seconds) * 0.95) - 1] * 1e3:,.0f} ms"


def _copy(owner: str, names: list[str]) -> int:
    """Copy the rows of the first identity to all others; return how many."""
    copied = 0
    with psycopg.connect(owner) as connection:
        for table, columns in connection.execute(_TABLES).fetchall():
            if table in _NOT_COPIED:
                continue
            rest = ", ".join(f"t.{each}" for each in columns[1:])
            copied += connection.execute(
                f"INSERT INTO chatbot.{table} ({', '.join(columns)}) SELECT other, {rest} "
                f"FROM chatbot.{table} t, unnest(%s::text[]) other WHERE t.identity = %s",
                (names[1:], names[0]),
            ).rowcount
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
    return copied


@contextmanager
def _running(folder: Path, url: str, names: list[str]) -> Iterator[Servers]:
    servers = Servers(folder, url, names)
    try:
        yield servers
    finally:
        servers.stop()


def _server(home: Path) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "chatbot", "serve", "--port", "0"],
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ
        | {
            "CHATBOT_CONFIG": str(home / "config.toml"),
            "CHATBOT_IDENTITY": name_of(0),
            "XDG_CACHE_HOME": str(home / "cache"),
            "PYTHONPATH": root,
        },
    )


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a server ended with {process.wait()} before it was ready")
    return line.split()[0]


def _client(url: str, users: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=300, limits=httpx.Limits(max_connections=users))


def _cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children, including ended ones."""
    total = 0.0
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # its parent has what it took
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _postmaster(connection: psycopg.Connection[tuple[int]]) -> int:
    found = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert found is not None
    return int(psutil.Process(found[0]).ppid())
