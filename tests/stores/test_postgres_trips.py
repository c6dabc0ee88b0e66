"""Round trips of a turn to the database, and what a turn sees of what others write meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from chatbot.memory import MemorySystem
from chatbot.models.scripted import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.stores.moment import one_moment
from chatbot.stores.postgres.database import Database
from tests.command import project
from tests.postgres import address

pytestmark = pytest.mark.usefixtures("postgres")

MOST = 12
"""Of a warm turn: its reads, its writes, its lease and its bill are statements of their own. It was 21."""


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One item for each time that a connection is borrowed, which is a round trip, or the two of a transaction."""
    found: list[None] = []
    borrow = Database.connection

    @contextmanager
    def counted(database: Database) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        found.append(None)
        with borrow(database) as connection:
            yield connection

    monkeypatch.setattr(Database, "connection", counted)
    return found


async def test_a_warm_turn_takes_few_round_trips(
    trips: list[None], postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = address(tmp_path).identity
    project(f'[embedding]\nmodel = ""\n[storage]\nurl = "{postgres}"\n', name)
    async with Runtime(Options(config=tmp_path / "config.toml", identity=name), model=ScriptedModel()) as runtime:
        chat = runtime.chat(await runtime.new_session())
        for text in ("I keep bees", "They live in the garden"):
            await chat.turn(text)
        trips.clear()
        receipt = await chat.turn("Where do they live?")
        assert "Where do they live?" in receipt.reply
        assert 0 < len(trips) <= MOST


async def test_within_a_moment_others_are_looked_at_once_and_own_writes_are_seen(tmp_path: Path) -> None:
    home = f"{address(tmp_path).url}#{address(tmp_path).identity}"
    async with MemorySystem(home) as one, MemorySystem(home) as other:
        mine, theirs = one.memories("chat"), other.memories("chat")
        await mine.remember("a hive in the garden")
        with one_moment():
            assert len(await mine.search("hive")) == 1
            await theirs.remember("a hive in the yard")
            assert len(await mine.search("hive")) == 1
            await mine.remember("a hive in the park")  # which is written behind theirs
            assert len(await mine.search("hive")) == 3
        assert len(await mine.search("hive")) == len(await theirs.search("hive")) == 3


def test_who_leaves_a_database_waits_for_no_lock() -> None:
    """The garbage collector lets go of stores at any moment, also while this thread opens another one."""
    database = Database.of("postgresql://nobody@localhost:1/nothing")
    with Database._guard:
        database.leave()
    another = Database.of(database.url)
    assert another.url == database.url
    another.leave()
    third = Database.of(database.url)
    assert third is not another
    third.leave()
