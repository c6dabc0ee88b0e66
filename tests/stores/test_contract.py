"""The contract kit on what ships, on stores as a stranger would write them, and from a project of its own."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest
from hypothesis import settings

from chatbot.stores import SessionRef, TranscriptEntry, TranscriptStore, files
from chatbot.stores.basic_session import BasicSessionStore
from chatbot.stores.in_memory import InMemoryStore, MemoryBackend
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.on_disk.place import FileBackend
from chatbot.stores.testing import (
    BackendContract,
    KeyValueStoreContract,
    LogContract,
    ShelfContract,
    StoreMachine,
    TranscriptStoreContract,
)
from chatbot.stores.testing.backend_contract import make
from chatbot.stores.testing.observation_contract import ObservationStoreContract
from chatbot.stores.testing.observation_machine import ObservationMachine
from chatbot.stores.testing.session_contract import SESSION
from tests.effort import examples
from tests.patience import PATIENCE_S
from tests.stores.places import Place
from tests.stores.reference import ReferenceStore

NIGHT = pytest.mark.nightly


def memory_backend(_: Path) -> MemoryBackend:
    return MemoryBackend()


class TestFileBackend(BackendContract):
    opener = "chatbot.stores.on_disk.place:FileBackend"

    def test_a_deletion_that_ended_halfway_hinders_no_later_one(
        self, place: FileBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [made] = make(place, 1)
        monkeypatch.setattr(files, "erase", sys.exit)
        with pytest.raises(SystemExit):
            place.sessions.delete(made.id)
        monkeypatch.undo()
        make(place, 1)
        place.sessions.delete(made.id)
        assert place.sessions.ids() == []


class TestMemoryBackend(BackendContract):
    opener = "tests.stores.test_contract:memory_backend"
    erasure = "logical"  # it keeps no files
    processes = False


class TestFileLog(LogContract):
    opener = "chatbot.stores.observations.file_log:FileLog"


class TestFolderShelf(ShelfContract):
    opener = "chatbot.stores.cache:FolderShelf"


class TestBasicSessionStore(KeyValueStoreContract, TranscriptStoreContract):
    kv_cap = 40

    def open_store(self, home: Path) -> BasicSessionStore:
        return BasicSessionStore(home, kv_cap=40, transcript_cap=12)


class TestInMemoryStore(KeyValueStoreContract, TranscriptStoreContract):
    erasure = "logical"  # it keeps no files
    kv_cap = 5

    def open_store(self, home: Path) -> InMemoryStore:
        return InMemoryStore(home, kv_cap=5, transcript_cap=12)


class Keeping(InMemoryStore):
    """Keeps what should be deleted."""

    async def forget_session(self, session: SessionRef) -> None: ...


def test_a_promise_that_is_broken_is_named_in_words_with_the_methods_to_look_at(tmp_path: Path) -> None:
    class Kept(TranscriptStoreContract):
        def open_store(self, home: Path) -> Keeping:
            return Keeping(home)

    (tmp_path / SESSION.id).mkdir()
    with pytest.raises(AssertionError) as failed:
        cast("Callable[..., None]", Kept().test_nothing_of_a_forgotten_transcript_comes_back)(home=tmp_path)
    assert " == []" in str(failed.value), "an assertion of the kit shows its values"
    first, *methods = failed.value.__notes__
    assert first.startswith("Kept breaks this promise: nothing of a forgotten transcript comes back")
    assert any(line.strip().startswith("SessionStore.forget_session: Delete all") for line in methods)


class StrangersFiles(TranscriptStore):
    """Keeps its entries in a file of its own, one `repr` a line, and drops what is past its cap."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._lock = asyncio.Lock()

    async def transcript_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> None:
        async with self._lock:
            said = [*await self.transcript_read_last(session, 3), *entries][-3:]
            lines = [json.dumps([entry.role, entry.content, entry.at.isoformat()]) for entry in said]
            self._file(session).write_text("\n".join(lines), encoding="utf-8")

    async def transcript_read_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        file = self._file(session)
        lines = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
        fields = [json.loads(line) for line in lines[-n:] if line and n > 0]
        return [TranscriptEntry(role, content, datetime.fromisoformat(at)) for role, content, at in fields]

    async def forget_session(self, session: SessionRef) -> None:
        self._file(session).unlink(missing_ok=True)

    def _file(self, session: SessionRef) -> Path:
        return session.folder / "mine.txt"


class TestStrangersFiles(TranscriptStoreContract):
    transcript_cap = 3

    def open_store(self, home: Path) -> StrangersFiles:
        return StrangersFiles(home)


class SmallMachine(StoreMachine):
    kv_cap = 3

    def open_store(self, home: Path) -> BasicSessionStore:
        return BasicSessionStore(home, kv_cap=3, transcript_cap=4)


TestSmallHistories = SmallMachine.TestCase
TestSmallHistories.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)


class TestObservationFiles(ObservationStoreContract):
    def open_store(self, home: Path) -> ObservationFileStore:
        return Place(home).open()


class TestObservationsInMemory(ObservationStoreContract):
    erasure = "logical"  # it keeps no files
    test_no_way_of_reading_passes_the_gate = NIGHT(ObservationStoreContract.test_no_way_of_reading_passes_the_gate)

    def open_store(self, home: Path) -> InMemoryStore:
        return InMemoryStore(home, max_observations=10)


class FileMachine(ObservationMachine):
    model = ReferenceStore

    def open_store(self, home: Path) -> ObservationFileStore:
        return Place(home).open(**self.caps)

    def disturb(self, home: Path) -> None:
        shutil.rmtree(home / "cache", ignore_errors=True)


class CappedMachine(FileMachine):
    caps = {"max_observations": 5, "ttl_days": 0.00005}  # noqa: RUF012 - a ClassVar of the base


TestFileHistories, TestCappedHistories = FileMachine.TestCase, CappedMachine.TestCase
TestFileHistories.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
TestCappedHistories.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)


PROJECT = Path(__file__).parents[1] / "outside" / "sqlite_engine"


@NIGHT
@pytest.mark.timeout(4 * PATIENCE_S)
def test_an_engine_on_sqlite_passes_the_kit_from_a_project_of_its_own(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist"]
    environment = os.environ | {"PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        command, cwd=project, capture_output=True, text=True, check=False, timeout=4 * PATIENCE_S, env=environment
    )
    assert done.returncode == 0, done.stdout[-5_000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 100, done.stdout
