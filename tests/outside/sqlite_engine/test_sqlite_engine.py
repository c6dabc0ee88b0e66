"""The contract kit on the engine."""

import asyncio
from pathlib import Path

from hypothesis import settings
from sqlite_engine import NAME, SqliteObservations

from chatbot.memory import MemorySystem
from chatbot.stores.testing_log import LogContract
from chatbot.stores.testing_observations import ObservationStoreContract, observation_machine


def open_store(home: Path, **caps: float) -> SqliteObservations:
    return SqliteObservations(home / "memory", cache=str(home / "cache"), **caps)  # type: ignore[arg-type]


class TestSqliteLog(LogContract):
    opener = "sqlite_engine:SqliteLog"


class TestSqliteObservations(ObservationStoreContract):
    def open_store(self, home: Path) -> SqliteObservations:
        return open_store(home)


TestSqliteHistories = observation_machine(open_store).TestCase
TestSqliteHistories.settings = settings(max_examples=5, stateful_step_count=30, deadline=None)


async def _remember_and_find(home: Path) -> None:
    settings = {"sqlite_engine:SqliteObservations": {"cache": str(home / "cache")}}
    for number in range(2):
        async with MemorySystem(
            home / "memory", observations="sqlite_engine:SqliteObservations", settings=settings
        ) as memory:
            mine = memory.memories("chat")
            if not number:
                await mine.remember("Ada keeps bees in the garden")
            found = await mine.search("bees")
            assert [hit.observation.title for hit in found] == ["Ada keeps bees in the garden"]
    assert (home / "memory" / NAME).exists()
    assert not (home / "memory" / "observations.jsonl").exists()


def test_a_memory_system_works_on_it(tmp_path: Path) -> None:
    asyncio.run(_remember_and_find(tmp_path))
