"""The contract kit on PostgreSQL."""

from pathlib import Path

import pytest
from hypothesis import settings

from chatbot.stores.postgres.observations import PostgresObservations
from chatbot.stores.postgres.sessions_store import PostgresSessionStore
from chatbot.stores.records import SessionRecord
from chatbot.stores.testing import KeyValueStoreContract, TranscriptStoreContract
from chatbot.stores.testing.backend_contract import BackendContract
from chatbot.stores.testing.log_contract import LogContract
from chatbot.stores.testing.observation_contract import ObservationStoreContract
from chatbot.stores.testing.observation_machine import ObservationMachine
from chatbot.stores.testing.session_contract import OTHER, SESSION, START
from chatbot.stores.testing.shelf_contract import ShelfContract
from tests.patience import PATIENCE_S
from tests.postgres import address, open_backend

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("postgres")]


class TestPostgresBackend(BackendContract):
    opener = "tests.postgres:open_backend"
    lapses_within_s = PATIENCE_S


class TestPostgresLog(LogContract):
    opener = "tests.postgres:open_log"
    erasure = "logical"


class TestPostgresShelf(ShelfContract):
    opener = "tests.postgres:open_shelf"
    erasure = "logical"


class TestPostgresSessionStore(KeyValueStoreContract, TranscriptStoreContract):
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
