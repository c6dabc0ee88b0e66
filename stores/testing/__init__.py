"""The contract kit: what a plug-in promises, as tests to inherit, checked for any plug-in.

    class TestMyStore(KeyValueStoreContract, TranscriptStoreContract):
        def open_store(self, home):
            return MyStore(home, kv_cap=100)

Needs pytest and Hypothesis, and no plug-in of theirs. Each name is imported when first used: the processes that a
test starts load what they need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatbot.stores.testing.backend_contract import BackendContract, PlaceContract
    from chatbot.stores.testing.log_contract import LogContract
    from chatbot.stores.testing.observation_contract import ObservationStoreContract
    from chatbot.stores.testing.observation_machine import ObservationMachine, observation_machine
    from chatbot.stores.testing.session_contract import (
        KeyValueStoreContract,
        StoreMachine,
        TranscriptStoreContract,
        store_machine,
    )
    from chatbot.stores.testing.shelf_contract import ShelfContract

_HOMES = {
    "BackendContract": "backend_contract",
    "KeyValueStoreContract": "session_contract",
    "LogContract": "log_contract",
    "ObservationMachine": "observation_machine",
    "ObservationStoreContract": "observation_contract",
    "PlaceContract": "backend_contract",
    "ShelfContract": "shelf_contract",
    "StoreMachine": "session_contract",
    "TranscriptStoreContract": "session_contract",
    "observation_machine": "observation_machine",
    "store_machine": "session_contract",
}

__all__ = [
    "BackendContract",
    "KeyValueStoreContract",
    "LogContract",
    "ObservationMachine",
    "ObservationStoreContract",
    "PlaceContract",
    "ShelfContract",
    "StoreMachine",
    "TranscriptStoreContract",
    "observation_machine",
    "store_machine",
]


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chatbot.stores.testing' has no attribute {name!r}")
    return getattr(import_module(f"chatbot.stores.testing.{_HOMES[name]}"), name)
