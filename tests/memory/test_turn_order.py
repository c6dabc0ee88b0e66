"""Turns of a session take their order, whichever process they are in."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem
from chatbot.memory.session_catalog import TurnOrder
from chatbot.stores.backend import Lease
from chatbot.stores.errors import ReadOnlyFolder, StoreBusy, StoreError, StoreFailed
from tests.patience import PATIENCE_S

STORES = ["basic_session"]
ROOT = Path(__file__).parents[2]

TURNS = """
import asyncio, sys
from chatbot.memory import MemorySystem

async def main():
    async with MemorySystem(sys.argv[1]) as memory:
        session = await memory.load_session(sys.argv[2], "chat")
        for number in range(15):
            async with session.turn_order:
                await session.transcript_append("user", f"{sys.argv[3]}.{number}")
                await asyncio.sleep(0)
                await session.transcript_append("assistant", f"{sys.argv[3]}.{number}")

asyncio.run(main())
"""


async def _new_session(home: Path) -> str:
    async with MemorySystem(home) as memory:
        return (await memory.create_session(STORES, "chat")).id


def test_turns_of_two_processes_are_never_mixed(tmp_path: Path) -> None:
    session_id = asyncio.run(_new_session(tmp_path / "memory"))
    command = [sys.executable, "-c", TURNS, str(tmp_path / "memory"), session_id]
    workers = [subprocess.Popen([*command, name], cwd=ROOT) for name in "ab"]
    assert [each.wait(PATIENCE_S) for each in workers] == [0, 0]

    async def said() -> list[tuple[str, str]]:
        async with MemorySystem(tmp_path / "memory") as memory:
            entries = await (await memory.load_session(session_id, "chat")).transcript_read_all()
            return [(entry.role, entry.content) for entry in entries]

    entries = asyncio.run(said())
    assert len(entries) == 60
    for question, answer in zip(entries[::2], entries[1::2], strict=True):
        assert (question[0], answer[0]) == ("user", "assistant")
        assert question[1] == answer[1]


async def test_a_waiter_that_is_cancelled_leaves_the_turn_to_others(tmp_path: Path) -> None:
    async with MemorySystem(tmp_path) as one, MemorySystem(tmp_path) as other:
        session = await one.create_session(STORES, "chat")
        same = await other.load_session(session.id, "chat")
        async with session.turn_order:
            waiting = asyncio.ensure_future(same.turn_order.__aenter__())
            while not same.turn_order.locked():  # noqa: ASYNC110 - a lock tells nobody
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert not same.turn_order.locked()
        async with same.turn_order, asyncio.timeout(PATIENCE_S):
            await same.transcript_append("user", "mine")


class _TakenLease(Lease):
    def take(self) -> bool:
        return False

    def release(self) -> None:
        pass


async def test_who_waits_too_long_is_told_that_another_process_is_at_it() -> None:
    order = TurnOrder(_TakenLease(), patience_s=0)
    with pytest.raises(StoreBusy, match="another process"):
        await order.__aenter__()
    assert not order.locked()


class _Broken(Lease):
    """A lease in a database that went away: while taking, or between taking and releasing."""

    def __init__(self, error: StoreError, *, is_taken: bool) -> None:
        self.error = error
        self._is_taken = is_taken
        self.released_by: int | None = None

    def take(self) -> bool:
        if self._is_taken:
            return True
        raise self.error

    def release(self) -> None:
        self.released_by = threading.get_ident()
        raise self.error


async def test_without_an_answer_about_the_order_there_is_no_turn() -> None:
    order = TurnOrder(_Broken(StoreFailed("no PostgreSQL answers there"), is_taken=False))
    with pytest.raises(StoreFailed, match="no PostgreSQL answers"):
        await order.__aenter__()
    assert not order.locked()
    async with TurnOrder(_Broken(ReadOnlyFolder("only read"), is_taken=False)):
        pass  # the order within this process


async def test_an_order_that_cannot_be_given_back_stops_neither_the_session_nor_the_loop() -> None:
    lease = _Broken(StoreFailed("the connection broke"), is_taken=True)
    order = TurnOrder(lease)
    for _ in range(2):
        async with order:
            pass
        assert not order.locked()
    assert lease.released_by not in {None, threading.get_ident()}
