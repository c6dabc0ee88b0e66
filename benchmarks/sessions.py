# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "chatbot-runtime", "google-adk", "sqlalchemy", "aiosqlite", "greenlet",
#   "langgraph", "langgraph-checkpoint-sqlite", "openai-agents",
# ]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Sessions, compared with other stores: `uv run benchmarks/sessions.py [--sessions N]`.

Each figure is a median; the stores take turns in each round, so that a drifting machine affects all equally. Only
ratios are meaningful. All write durably. Peers that are not installed are named with the reason.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from chatbot.memory import MemorySystem

STORE = "basic_session"
TEXT = "a message of ordinary length, as people and models write them " * 7
FILLED = 500
ROUNDS = 60
WORKER = """
import asyncio, sys, time
from chatbot.memory import MemorySystem
async def main():
    longest = 0.0
    async with MemorySystem(sys.argv[1]) as memory:
        session = await memory.load_session(sys.argv[2], "bench")
        await session.kv_set(f"ready {sys.argv[3]}", "")  # as in the other rows, what is loaded once is loaded before
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(200):
            started = time.perf_counter()
            await session.transcript_append("user", f"{sys.argv[3]}.{n}")
            longest = max(longest, time.perf_counter() - started)
    print(longest)
asyncio.run(main())
"""


class Ours:
    name = "chatbot"

    async def open(self, folder: Path) -> None:
        self.folder = folder
        self.memory = MemorySystem(folder)
        self.session = await self.create()
        for _ in range(FILLED):
            await self.session.transcript_append("user", TEXT)

    async def create(self) -> Any:
        return await self.memory.create_session([STORE], "bench")

    async def append(self) -> None:
        await self.session.transcript_append("user", TEXT)

    async def read_last(self) -> None:
        assert len(await self.session.transcript_read_last(20)) == 20

    async def open_and_read(self) -> None:
        memory = MemorySystem(self.folder)
        session = await memory.load_session(self.session.id, "bench")
        assert len(await session.transcript_read_last(20)) == 20
        await memory.aclose()

    async def aclose(self) -> None:
        await self.memory.aclose()


class AgentsSdk:
    name = "Agents SDK SQLiteSession"

    async def open(self, folder: Path) -> None:
        from agents import SQLiteSession

        self._open: Callable[[str], Any] = lambda session_id: SQLiteSession(session_id, folder / "agents.db")
        self.made = 0
        self.session = await self.create()
        for _ in range(FILLED):
            await self.append()

    async def create(self) -> Any:
        self.made += 1
        session = self._open(f"session-{self.made}")
        if self.made > 1:
            await session.add_items([{"role": "user", "content": "hi"}])
            session.close()
        return session

    async def append(self) -> None:
        await self.session.add_items([{"role": "user", "content": TEXT}])

    async def read_last(self) -> None:
        assert len(await self.session.get_items(20)) == 20

    async def open_and_read(self) -> None:
        session = self._open("session-1")
        assert len(await session.get_items(20)) == 20
        session.close()

    async def aclose(self) -> None:
        self.session.close()


class LangGraph:
    name = "LangGraph AsyncSqliteSaver"

    async def open(self, folder: Path) -> None:
        from langgraph.graph import START, MessagesState, StateGraph

        saving: Any = import_module("langgraph.checkpoint.sqlite.aio")  # no types, and often not installed
        self._saver = saving.AsyncSqliteSaver.from_conn_string(str(folder / "graph.db"))
        graph: Any = StateGraph(MessagesState)
        graph.add_node("keep", lambda _: {})
        graph.add_edge(START, "keep")
        self.graph = graph.compile(checkpointer=await self._saver.__aenter__())
        self.made = 1
        await self._add("session-1", FILLED)

    async def _add(self, session: str, count: int) -> None:
        messages = [("user", TEXT)] * count
        await self.graph.aupdate_state({"configurable": {"thread_id": session}}, {"messages": messages}, as_node="keep")

    async def create(self) -> None:
        self.made += 1
        await self._add(f"session-{self.made}", 1)

    async def append(self) -> None:
        await self._add("session-1", 1)

    async def read_last(self) -> None:
        state = await self.graph.aget_state({"configurable": {"thread_id": "session-1"}})
        assert len(state.values["messages"][-20:]) == 20

    open_and_read = read_last

    async def aclose(self) -> None:
        await self._saver.__aexit__(None, None, None)


class Adk:
    name = "ADK DatabaseSessionService"

    async def open(self, folder: Path) -> None:
        from google.adk.events import Event
        from google.adk.sessions import DatabaseSessionService
        from google.adk.sessions.base_session_service import GetSessionConfig
        from google.genai import types

        self._last = GetSessionConfig(num_recent_events=20)
        self._event: Callable[[], Any] = lambda: Event(
            author="user", content=types.Content(role="user", parts=[types.Part(text=TEXT)])
        )
        self.service = DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'adk.db'}")
        self.session = await self.create()
        for _ in range(FILLED):
            await self.append()

    async def create(self) -> Any:
        return await self.service.create_session(app_name="bench", user_id="u")

    async def append(self) -> None:
        await self.service.append_event(self.session, self._event())

    async def read_last(self) -> None:
        found = await self.service.get_session(
            app_name="bench", user_id="u", session_id=self.session.id, config=self._last
        )
        assert len(found.events) == 20

    open_and_read = read_last

    async def aclose(self) -> None:
        return


class BareAppend:
    """The cheapest durable append: one write and one fdatasync on an open file."""

    name = "bare append + fdatasync"

    async def open(self, folder: Path) -> None:
        self._file = os.open(folder / "bare", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._data = TEXT.encode()

    async def append(self) -> None:
        os.write(self._file, self._data)
        os.fdatasync(self._file)

    async def aclose(self) -> None:
        os.close(self._file)


async def rounds(work: dict[str, Callable[[], Awaitable[Any]]], count: int = ROUNDS) -> dict[str, float]:
    """Return the median seconds of each; they take turns."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(count):
        for name, operation in work.items():
            started = time.perf_counter()
            await operation()
            taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) for name, times in taken.items()}


def show(title: str, medians: dict[str, float]) -> None:
    ours = medians[Ours.name]
    print(f"\n{title}")
    for name, median in medians.items():
        ratio = "" if name == Ours.name else f"   chatbot takes {ours / median:.2f} of it"
        print(f"  {name:28} {median * 1e6:10.0f} µs{ratio}")


async def opened(folder: Path) -> list[Any]:
    stores = []
    for kind in (Ours, AgentsSdk, LangGraph, Adk, BareAppend):
        store = kind()
        try:
            await store.open(folder)
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way, and the others still count
            print(f"not measured: {store.name}: {type(error).__name__}: {error}")
        else:
            stores.append(store)
    return stores


async def at_once(ours: Ours, bare: BareAppend) -> dict[str, float]:
    async def group() -> None:
        await asyncio.gather(*(ours.append() for _ in range(50)))

    async def one_by_one() -> None:
        for _ in range(50):
            await bare.append()

    return await rounds({Ours.name: group, "50 × bare append + fdatasync": one_by_one}, 20)


def race(folder: Path, session_id: str) -> tuple[float, list[float]]:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), session_id, str(n)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for n in range(16)
    ]  # fmt: skip
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    started = time.perf_counter()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    longest = [float(process.communicate()[0]) for process in running]
    return time.perf_counter() - started, longest


async def main(sessions: int) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        folder = Path(name)
        stores = await opened(folder)
        ours, bare, peers = stores[0], stores[-1], stores[:-1]
        show(f"append one message durably to a session of {FILLED}", await rounds({s.name: s.append for s in stores}))
        show("50 appends at once", await at_once(ours, bare))
        await asyncio.sleep(0.1)
        show("read the last 20, unchanged since they were read", await rounds({s.name: s.read_last for s in peers}))
        first = await rounds({s.name: s.create for s in peers}, 30)
        for store in peers:
            for _ in range(sessions):
                await store.create()
        later = await rounds({s.name: s.create for s in peers}, 30)
        show(f"create a session, {sessions} being there", later)
        for store in peers:
            print(f"    {store.name:28} {later[store.name] / first[store.name]:.2f} × its first ones")
        show(
            f"open one of {sessions} sessions and read its last 20",
            await rounds({s.name: s.open_and_read for s in peers}),
        )
        session = await ours.create()
        seconds, longest = race(folder, session.id)
        said = await session.transcript_read_all()
        print(f"\n16 processes × 200 appends to one session: {len(said)} kept in {seconds:.1f} s,")
        print(f"  longest wait {max(longest):.3f} s")
        for store in stores:
            await store.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    asyncio.run(main(parser.parse_args().sessions))
