"""The contract kit on the stores of observations that ship."""

import shutil
from pathlib import Path

from hypothesis import settings

from chatbot.stores.in_memory import InMemoryStore
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.testing.observation_contract import ObservationStoreContract
from chatbot.stores.testing.observation_machine import ObservationMachine, observation_machine
from tests.effort import examples
from tests.stores.reference import ReferenceStore


def open_files(home: Path, **caps: float) -> ObservationFileStore:
    return ObservationFileStore(home / "memory", cache=str(home / "cache"), **caps)  # type: ignore[arg-type]


class TestObservationFiles(ObservationStoreContract):
    def open_store(self, home: Path) -> ObservationFileStore:
        return open_files(home)


class TestCappedObservationFiles(ObservationStoreContract):
    def open_store(self, home: Path) -> ObservationFileStore:
        return open_files(home, max_observations=10)


class TestObservationsInMemory(ObservationStoreContract):
    def open_store(self, home: Path) -> InMemoryStore:
        return InMemoryStore(home, max_observations=10)


class FileMachine(ObservationMachine):
    model = ReferenceStore

    def open_store(self, home: Path) -> ObservationFileStore:
        return open_files(home)

    def disturb(self, home: Path) -> None:
        shutil.rmtree(home / "cache", ignore_errors=True)


TestFileHistories = FileMachine.TestCase
TestFileHistories.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)

TestCappedHistories = observation_machine(
    open_files, model=ReferenceStore, max_observations=5, ttl_days=0.00005
).TestCase
TestCappedHistories.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)

TestMemoryHistories = observation_machine(InMemoryStore, model=ReferenceStore, handles=1).TestCase
TestMemoryHistories.settings = settings(max_examples=examples(5), stateful_step_count=20, deadline=None)
