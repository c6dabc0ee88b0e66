"""The contract kit on PostgreSQL, and a server that never saw an identity, which begins with what others keep."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from chatbot.memory import Draft, MemorySystem
from chatbot.stores.observations import replica
from chatbot.stores.postgres.observations import PostgresObservations
from chatbot.stores.postgres.sessions_store import PostgresSessionStore
from chatbot.stores.records import SessionRecord
from chatbot.stores.testing import KeyValueStoreContract, TranscriptStoreContract
from chatbot.stores.testing.backend_contract import BackendContract
from chatbot.stores.testing.log_contract import LogContract, ShelfContract
from chatbot.stores.testing.observation_contract import ObservationStoreContract
from chatbot.stores.testing.observation_machine import ObservationMachine
from chatbot.stores.testing.session_contract import OTHER, SESSION, START
from tests.patience import PATIENCE_S
from tests.postgres import address, open_backend

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("postgres")]


class TestPostgresBackend(BackendContract):
    opener = "tests.postgres:open_backend"
    erasure = "logical"
    lapses_within_s = PATIENCE_S

    def test_a_damaged_line_is_skipped_and_reported(self, place: Any, caplog: pytest.LogCaptureFixture) -> None:
        lines = place.lines("receipts")
        lines.append([{"n": number} for number in range(3)])
        place.run("UPDATE chatbot.line SET record = '{' WHERE identity = %(identity)s AND n = 2")
        assert [each["n"] for each in lines.all()] == [each["n"] for each in lines.since(None).records] == [0, 2]
        assert "receipts holds a line that is not a record" in caplog.text


class TestPostgresLog(LogContract):
    opener = "tests.postgres:open_log"
    erasure = "logical"


class TestPostgresShelf(ShelfContract):
    opener = "tests.postgres:open_shelf"
    erasure = "logical"


class TestPostgresSessionStore(KeyValueStoreContract, TranscriptStoreContract):
    erasure = "logical"
    kv_cap = 3
    transcript_cap = None

    @pytest.fixture(autouse=True)
    def sessions(self, home: Path) -> None:
        begun(home)

    def open_store(self, home: Path) -> PostgresSessionStore:
        return PostgresSessionStore(address(home), kv_cap=3)


class TestPostgresObservations(ObservationStoreContract):
    erasure = "logical"

    def open_store(self, home: Path) -> PostgresObservations:
        return open_observations(home)


def begun(folder: Path) -> None:
    """The two sessions of the kit."""
    backend = open_backend(folder)
    for session in (SESSION, OTHER):
        backend.sessions.begin(SessionRecord(session.id, "chat", ("basic_session",), START, START))
    backend.close()


def open_observations(home: Path) -> PostgresObservations:
    return PostgresObservations(address(home), cache=str(home / "cache"))


class PostgresMachine(ObservationMachine):
    def open_store(self, home: Path) -> PostgresObservations:
        return open_observations(home)


TestPostgresHistories = PostgresMachine.TestCase
TestPostgresHistories.settings = settings(max_examples=5, stateful_step_count=30, deadline=None)


ROWS = 600
PIECES = "SELECT count(*) FROM chatbot.piece WHERE identity = %(identity)s AND shelf = 'table'"


def _opened(folder: Path, cache: str) -> MemorySystem:
    where = address(folder)
    settings: dict[str, dict[str, Any]] = {"observations": {"cache": str(folder / cache)}}
    return MemorySystem(f"{where.url}#{where.identity}", settings=settings)


async def test_it_reads_their_table_and_no_line_that_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _opened(tmp_path, "one") as one:
        await one.memory("chat").remember_all([Draft(f"hive {n} of Ada") for n in range(ROWS)])
        assert await one.memory("chat").search("hive", limit=1, count_use=False)
    monkeypatch.setattr(replica, "event_of", lambda *_: sys.exit("a line was read"))
    async with _opened(tmp_path, "two") as two:
        [hit] = await two.memory("chat").search("hive 17", limit=1, count_use=False)
        assert hit.observation.title == "hive 17 of Ada"
    assert not (tmp_path / "two").exists()  # nothing is kept on its disk
    monkeypatch.undo()
    for name in ("behind the table", "the first call of a process"):
        async with _opened(tmp_path, name) as other:
            assert (await other.memory("chat").remember(name)).outcome == "added"


async def test_what_is_erased_is_in_no_table_that_others_read(tmp_path: Path) -> None:
    backend = open_backend(tmp_path)
    async with _opened(tmp_path, "one") as one:
        kept = await one.memory("chat").remember_all([Draft(f"hive {n} of Ada", tags=("bees",)) for n in range(ROWS)])
    assert backend.rows(PIECES) == [(1,)]
    async with _opened(tmp_path, "two") as two:
        await two.memory("chat").purge(kept[0].id)
        assert backend.rows(PIECES) == [(0,)]
    backend.close()
