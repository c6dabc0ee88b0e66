"""LangGraph and ADK on PostgreSQL, used as their users do.

Each keeps the same text in a conversation of its own. Synchronous ones run in a thread, as our own store does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import psycopg
from psycopg.rows import dict_row

Work = Callable[[], Awaitable[object]]
Opener = Callable[[str, str, "Size"], Awaitable[list["Peer"]]]


@dataclass(frozen=True)
class Size:
    """Messages of the long conversation and of each short one, and the number of short ones."""

    filled: int
    short: int
    sessions: int


@dataclass(frozen=True)
class Peer:
    """Functions that append a message durably and, if possible, read the last 20 or open one of many conversations."""

    name: str
    append: Work
    read: Work | None = None
    aclose: Work | None = None
    open_one: Callable[[int], Awaitable[object]] | None = None


def spread(number: int, count: int) -> int:
    """Return a number below `count`; successive ones are far apart."""
    return number * 7_919 % count


def copy_rows(url: str, tables: Mapping[str, str], value: str, others: Sequence[str]) -> None:
    """Copy the rows of each table whose column has the value, once for each of the other values."""
    with psycopg.connect(url, autocommit=True) as connection:
        for table, column in tables.items():
            cursor = connection.execute(f"SELECT * FROM {table} LIMIT 0")
            names = [each.name for each in cursor.description or ()]
            shown = ", ".join("other" if name == column else f'"{name}"' for name in names)
            listed = ", ".join(f'"{name}"' for name in names)
            connection.execute(
                f"INSERT INTO {table} ({listed}) SELECT {shown} FROM {table}, unnest(%s::text[]) AS other "
                f"WHERE {column} = %s",
                (list(others), value),
            )
            connection.execute(f"ANALYZE {table}")


async def open_peers(url: str, text: str, size: Size) -> list[Peer]:
    """Open each peer that is installed, with conversations of that size; print the names of the others."""
    peers: list[Peer] = []
    openers: dict[str, Opener] = {"LangGraph": _langgraph, "LangGraph's PostgresStore": _store, "ADK": _adk}
    for name, opener in openers.items():
        try:
            peers += await opener(url, text, size)
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way, and the others still count
            print(f"not measured: {name}: {type(error).__name__}: {error}")
    return peers


async def _langgraph(url: str, text: str, size: Size) -> list[Peer]:
    """A graph with a list of messages: `update_state` adds one, `invoke` runs a node after it."""
    from langgraph.graph import START, MessagesState, StateGraph

    saving: Any = import_module("langgraph.checkpoint.postgres")  # often not installed
    saver = saving.PostgresSaver(_connection(url))
    saver.setup()
    graph: Any = StateGraph(MessagesState)
    graph.add_node("keep", lambda _: {})
    graph.add_edge(START, "keep")
    graph = graph.compile(checkpointer=saver)

    def add(thread: str, count: int) -> None:
        graph.update_state(_thread(thread), {"messages": [("user", text)] * count}, as_node="keep")

    def invoke() -> None:
        graph.invoke({"messages": [("user", text)]}, _thread("invoked"), durability="sync")

    def read() -> None:
        assert len(graph.get_state(_thread("updated")).values["messages"][-20:]) == 20

    async def open_one(number: int) -> None:
        found = await asyncio.to_thread(graph.get_state, _thread(f"short {spread(number, size.sessions)}"))
        assert len(found.values["messages"]) == size.short

    for thread, count in (("updated", size.filled), ("invoked", size.filled), ("short", size.short)):
        await asyncio.to_thread(add, thread, count)
    tables = dict.fromkeys(("checkpoints", "checkpoint_blobs", "checkpoint_writes"), "thread_id")
    copy_rows(url, tables, "short", [f"short {number}" for number in range(size.sessions)])
    return [
        Peer(
            "LangGraph PostgresSaver, update_state",
            _threaded(add, "updated", 1),
            _threaded(read),
            open_one=open_one,
        ),
        Peer("LangGraph PostgresSaver, invoke", _threaded(invoke)),
    ]


async def _store(url: str, text: str, _: Size) -> list[Peer]:
    """`PostgresStore` keeps a document by key, and no conversation."""
    storing: Any = import_module("langgraph.store.postgres")
    store = storing.PostgresStore(_connection(url))
    await asyncio.to_thread(store.setup)
    number = 0

    def put() -> None:
        nonlocal number
        number += 1
        store.put(("benchmark", "notes"), str(number), {"text": text})

    return [Peer("LangGraph PostgresStore.put", _threaded(put))]


async def _adk(url: str, text: str, size: Size) -> list[Peer]:
    adk: Any = import_module("google.adk.sessions")
    configs: Any = import_module("google.adk.sessions.base_session_service")
    events: Any = import_module("google.adk.events")
    types: Any = import_module("google.genai.types")
    service = adk.DatabaseSessionService(url.replace("postgresql://", "postgresql+asyncpg://", 1))
    session = await service.create_session(app_name="benchmark", user_id="u")
    last = configs.GetSessionConfig(num_recent_events=20)

    async def append(session: Any = session) -> None:
        content = types.Content(role="user", parts=[types.Part(text=text)])
        await service.append_event(session, events.Event(author="user", content=content))

    async def read() -> None:
        found = await service.get_session(app_name="benchmark", user_id="u", session_id=session.id, config=last)
        assert len(found.events) == 20

    async def open_one(number: int) -> None:
        name = f"short {spread(number, size.sessions)}"
        found = await service.get_session(app_name="benchmark", user_id="u", session_id=name, config=last)
        assert len(found.events) == size.short

    short = await service.create_session(app_name="benchmark", user_id="u", session_id="short")
    for each, count in ((session, size.filled), (short, size.short)):
        for _ in range(count):
            await append(each)
    names = [f"short {number}" for number in range(size.sessions)]
    copy_rows(url, {"sessions": "id", "events": "session_id"}, "short", names)
    return [Peer("ADK DatabaseSessionService", append, read, service.close, open_one)]


def _connection(url: str) -> Any:
    return psycopg.connect(url, autocommit=True, row_factory=dict_row, prepare_threshold=0)  # as its docs ask for


def _thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def _threaded(work: Callable[..., object], *arguments: object) -> Work:
    async def run() -> None:
        await asyncio.to_thread(work, *arguments)

    return run
