"""The contract kit on the backends that ship."""

from pathlib import Path

from chatbot.stores.in_memory_backend import MemoryBackend
from chatbot.stores.testing.backend_contract import BackendContract, PlaceContract


def memory_backend(_: Path) -> MemoryBackend:
    return MemoryBackend()


class TestFileBackend(BackendContract):
    opener = "chatbot.stores.on_disk.place:FileBackend"


class TestFilePlace(PlaceContract):
    opener = "chatbot.stores.on_disk.place:FilePlace"


class TestMemoryBackend(BackendContract):
    opener = "tests.stores.test_backend_contract:memory_backend"
    processes = False
