"""The contract kit on the engine."""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

from hypothesis import settings
from sqlite_engine import NAME, SqliteObservations

from chatbot.memory import MemorySystem
from chatbot.memory.scope import SystemOptions
from chatbot.stores.access import View
from chatbot.stores.query import Filter, Match
from chatbot.stores.testing.log_contract import LogContract
from chatbot.stores.testing.observation_contract import ObservationStoreContract
from chatbot.stores.testing.observation_machine import ObservationMachine


def open_store(home: Path) -> SqliteObservations:
    return SqliteObservations(home / "memory", cache=str(home / "cache"))


class TestSqliteLog(LogContract):
    opener = "sqlite_engine:SqliteLog"


class TestSqliteObservations(ObservationStoreContract):
    def open_store(self, home: Path) -> SqliteObservations:
        return open_store(home)


class Rounded(SqliteObservations):
    """Finds vectors about, as an index of rounded ones does, and is held to less."""

    async def nearest(
        self, view: View, vector: Sequence[float], wanted: Filter, *, model: str, limit: int = 200
    ) -> list[Match]:
        length = math.hypot(*vector)
        steps = 127 / length if length and math.isfinite(length) else 0.0
        about = [round(each * steps) / 127 if steps else 0.0 for each in vector]
        return await super().nearest(view, about, wanted, model=model, limit=limit)


class TestRoundedObservations(ObservationStoreContract):
    nearest = "approximate"
    erasure = "logical"

    def open_store(self, home: Path) -> Rounded:
        return open_rounded(home)


def open_rounded(home: Path) -> Rounded:
    return Rounded(home / "memory", cache=str(home / "cache"))


class SqliteMachine(ObservationMachine):
    def open_store(self, home: Path) -> SqliteObservations:
        return open_store(home)


class RoundedMachine(ObservationMachine):
    nearest = "approximate"

    def open_store(self, home: Path) -> SqliteObservations:
        return open_rounded(home)


TestSqliteHistories, TestRoundedHistories = SqliteMachine.TestCase, RoundedMachine.TestCase
TestRoundedHistories.settings = settings(max_examples=5, stateful_step_count=30, deadline=None)
TestSqliteHistories.settings = settings(max_examples=5, stateful_step_count=30, deadline=None)


async def _remember_and_find(home: Path) -> None:
    settings = {"sqlite_engine:SqliteObservations": {"cache": str(home / "cache")}}
    for number in range(2):
        async with MemorySystem(
            home / "memory", settings=settings, options=SystemOptions(observations="sqlite_engine:SqliteObservations")
        ) as memory:
            mine = memory.memory("chat")
            if not number:
                await mine.remember("Ada keeps bees in the garden")
            found = await mine.search("bees")
            assert [hit.observation.title for hit in found] == ["Ada keeps bees in the garden"]
    assert (home / "memory" / NAME).exists()
    assert not (home / "memory" / "observations.jsonl").exists()


def test_a_memory_system_works_on_it(tmp_path: Path) -> None:
    asyncio.run(_remember_and_find(tmp_path))
