"""PostgreSQL: what our rows cost beside a bare INSERT … COMMIT, and recall beside tsvector, on the same server.

    python benchmarks/postgres.py postgresql://owner@localhost/chatbot [--rows 10000] [--rounds 100]

Each round asks everyone in turn, so that a noisy machine is unfair to nobody; told are medians, and ratios of them.
`pip install langgraph-checkpoint-postgres 'google-adk[db]' asyncpg` adds LangGraph's PostgresSaver and PostgresStore
and ADK's DatabaseSessionService. `--load URL`, with the URL of the servers' role, lets 64 users talk to two servers.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
from postgres_load import load, session_id
from psycopg.rows import dict_row

from chatbot.memory import Draft, MemorySystem
from chatbot.stores.home import Address
from chatbot.stores.postgres.backend import PostgresBackend
from chatbot.stores.postgres.migration import migrate
from chatbot.stores.postgres.sessions_store import PostgresSessionStore
from chatbot.stores.records import TranscriptEntry
from chatbot.stores.session_record import SessionRecord

WORDS = (
    "garden", "bees", "honey", "window", "river", "paper", "train", "music",
    "coffee", "winter", "table", "letter", "number", "yard", "lamp", "boat",
)  # fmt: skip
SESSIONS = 1_000
Ask = Callable[[int], Awaitable[object]]


async def main() -> None:
    """Measure everything, and print one line each."""
    options = _options()
    migrate(options.url)
    if options.load:
        await load(options.url, options.load, options.seconds)
        return
    address = Address(options.url, f"benchmark-{uuid4().hex[:8]}")
    with psycopg.connect(options.url, autocommit=True) as bare:
        await _sessions(address, bare, options.rounds)
        await _recall(address, bare, options.rows, options.rounds)


async def _sessions(address: Address, bare: psycopg.Connection[Any], rounds: int) -> None:
    backend, store = PostgresBackend(address), PostgresSessionStore(address)
    ids = [session_id(number) for number in range(SESSIONS)]
    for each in ids:
        record = SessionRecord(each, "chat", ("basic_session",), _now(), _now())
        backend.sessions.begin(record)
        backend.sessions.publish(record)
    ref = backend.sessions.ref(ids[0])
    bare.execute("CREATE TEMP TABLE said (id bigserial PRIMARY KEY, session text, role text, content text)")

    async def append(number: int) -> None:
        await store.transcript_append(ref, [TranscriptEntry("user", f"said {number} " + "x" * 200, _now())])

    async def insert(number: int) -> None:
        await asyncio.to_thread(
            bare.execute,
            "INSERT INTO chatbot.message VALUES (%s, 'bare', %s, 'user', %s, now())",
            (address.identity, number, f"said {number} " + "x" * 200),
        )

    async def read(_: int) -> None:
        assert await store.transcript_read_last(ref, 20)

    async def open_one(number: int) -> None:
        await asyncio.to_thread(backend.sessions.get, ids[number % SESSIONS])

    async def select(_: int) -> None:
        await asyncio.to_thread(lambda: bare.execute("SELECT 1").fetchall())

    asked: dict[str, Ask] = {"bare insert": insert, "append": append, "bare select": select}
    asked |= {"read last 20": read, f"open one of {SESSIONS:,}": open_one}
    peers = _langgraph(address.url) | await _adk(address.url)
    told = await _timed(asked | peers, rounds)
    _tell(told, "bare insert", ["append", *peers])
    for peer in peers:
        print(f"append: {told['append'] / told[peer]:.2f} x {peer}")
    _tell(told, "bare select", ["read last 20", f"open one of {SESSIONS:,}"])
    await store.aclose()
    backend.close()


async def _recall(address: Address, bare: psycopg.Connection[Any], rows: int, rounds: int) -> None:
    chosen = random.Random(7)
    texts = [f"note {number} " + " ".join(chosen.choices(WORDS, k=30)) for number in range(rows)]
    bare.execute("CREATE TEMP TABLE notes (text text, found tsvector)")
    with bare.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO notes VALUES (%s, to_tsvector('english', %s))", [(each, each) for each in texts]
        )
    bare.execute("CREATE INDEX ON notes USING gin (found)")
    bare.execute("ANALYZE notes")
    with tempfile.TemporaryDirectory() as cache:
        settings = {"observations": {"cache": cache}}
        async with MemorySystem(f"{address.url}#{address.identity}", settings=settings) as memory:
            for begin in range(0, rows, 500):
                await memory.memories("chat").remember_all(
                    [Draft(title=each[:900]) for each in texts[begin : begin + 500]]
                )
            mine = memory.memories("chat")

            async def search(number: int, *, count_use: bool = True) -> None:
                asked = " ".join(WORDS[number % 13 : number % 13 + 3])
                assert await mine.search(asked, limit=10, count_use=count_use)

            async def look(number: int) -> None:
                await search(number, count_use=False)

            async def by_tsvector(number: int) -> None:
                asked = " | ".join(WORDS[number % 13 : number % 13 + 3])
                await asyncio.to_thread(
                    lambda: bare.execute(
                        "SELECT text FROM notes, to_tsquery('english', %s) AS q WHERE found @@ q "
                        "ORDER BY ts_rank_cd(found, q) DESC LIMIT 10",
                        (asked,),
                    ).fetchall()
                )

            await search(0)
            peer, reading, counting = "tsvector + ts_rank_cd", f"search {rows:,} warm", "the same, which notes its use"
            told = await _timed({peer: by_tsvector, reading: look, counting: search}, rounds)
    _tell(told, peer, [reading, counting])
    with tempfile.TemporaryDirectory() as cache:
        begun, spent = time.perf_counter(), time.process_time()
        settings = {"observations": {"cache": cache}}
        async with MemorySystem(f"{address.url}#{address.identity}", settings=settings) as memory:
            await memory.memories("chat").search("honey river", limit=10)
            took, cpu = time.perf_counter() - begun, time.process_time() - spent
        print(f"first search of a server that never saw {rows:,} rows: {took:.2f} s, {cpu:.2f} s of CPU")


def _langgraph(url: str) -> dict[str, Ask]:
    try:
        from langgraph.checkpoint.base import empty_checkpoint  # type: ignore[import-not-found,unused-ignore]
        from langgraph.checkpoint.postgres import PostgresSaver  # type: ignore[import-not-found,unused-ignore]
        from langgraph.store.postgres import PostgresStore  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return {}
    connection: Any = psycopg.connect(url, autocommit=True, row_factory=dict_row)
    saver, store = PostgresSaver(connection), PostgresStore(connection)
    saver.setup()
    store.setup()

    async def put(number: int) -> None:
        checkpoint = empty_checkpoint() | {"channel_values": {"messages": ["x" * 200] * min(number, 20)}}
        config = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        await asyncio.to_thread(saver.put, config, checkpoint, {}, {})

    async def keep(number: int) -> None:
        await asyncio.to_thread(store.put, ("said", "one"), str(number), {"role": "user", "text": "x" * 200})

    return {"langgraph PostgresSaver.put": put, "langgraph PostgresStore.put": keep}


async def _adk(url: str) -> dict[str, Ask]:
    try:
        from google.adk.events import Event  # type: ignore[import-not-found,unused-ignore]
        from google.adk.sessions import DatabaseSessionService  # type: ignore[import-not-found,unused-ignore]
        from google.genai import types  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return {}
    service = DatabaseSessionService(url.replace("postgresql://", "postgresql+asyncpg://"))
    session = await service.create_session(app_name="benchmark", user_id=uuid4().hex)

    async def append(number: int) -> None:
        content = types.Content(role="user", parts=[types.Part(text=f"said {number} " + "x" * 200)])
        await service.append_event(session, Event(author="user", content=content))

    return {"adk append_event": append}


async def _timed(asked: dict[str, Ask], rounds: int) -> dict[str, float]:
    """The median seconds of each, asked in turn."""
    took: dict[str, list[float]] = {name: [] for name in asked}
    for number in range(rounds):
        for name, ask in asked.items():
            begun = time.perf_counter()
            await ask(number)
            took[name].append(time.perf_counter() - begun)
    return {name: statistics.median(each) for name, each in took.items()}


def _tell(told: dict[str, float], base: str, names: list[str]) -> None:
    print(f"{base}: {told[base] * 1e3:.2f} ms")
    for name in names:
        if name in told:
            print(f"{name}: {told[name] * 1e3:.2f} ms, {told[name] / told[base]:.2f} x {base}")


def _now() -> datetime:
    return datetime.now(UTC)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--load", metavar="URL", help="URL for the role of servers: measure two of them under load")
    parser.add_argument("--seconds", type=float, default=90, help="how long --load lasts")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=100)
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    asyncio.run(main())
