"""The contract kit on the stores of observations that ship."""

import shutil
from pathlib import Path

from hypothesis import settings

from chatbot.stores.in_memory import InMemoryStore
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.testing.observation_contract import ObservationStoreContract
from chatbot.stores.testing.observation_machine import ObservationMachine
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
        return open_files(home, **self.caps)

    def disturb(self, home: Path) -> None:
        shutil.rmtree(home / "cache", ignore_errors=True)


class CappedMachine(FileMachine):
    caps = {"max_observations": 5, "ttl_days": 0.00005}  # noqa: RUF012 - a ClassVar of the base


class MemoryMachine(ObservationMachine):
    handles = 1
    model = ReferenceStore

    def open_store(self, home: Path) -> InMemoryStore:
        return InMemoryStore(home)


TestFileHistories, TestCappedHistories = FileMachine.TestCase, CappedMachine.TestCase
TestMemoryHistories = MemoryMachine.TestCase
TestFileHistories.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
TestCappedHistories.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)
TestMemoryHistories.settings = settings(max_examples=examples(5), stateful_step_count=20, deadline=None)
