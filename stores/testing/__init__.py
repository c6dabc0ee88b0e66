"""The contract kit: what a plug-in promises, as tests to inherit.

    class TestMyStore(KeyValueStoreContract, TranscriptStoreContract):
        def open_store(self, home):
            return MyStore(home, kv_cap=100)

Needs pytest and Hypothesis, and no plug-in of theirs. A name is imported when it is first used, as the processes that
tests start need few of them.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from importlib import import_module
from inspect import getdoc, unwrap
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from chatbot.stores.testing.backend_contract import BackendContract as BackendContract
    from chatbot.stores.testing.backend_contract import PlaceContract as PlaceContract
    from chatbot.stores.testing.log_contract import LogContract as LogContract
    from chatbot.stores.testing.log_contract import ShelfContract as ShelfContract
    from chatbot.stores.testing.observation_contract import ObservationStoreContract as ObservationStoreContract
    from chatbot.stores.testing.observation_machine import ObservationMachine as ObservationMachine
    from chatbot.stores.testing.session_contract import KeyValueStoreContract as KeyValueStoreContract
    from chatbot.stores.testing.session_contract import StoreMachine as StoreMachine
    from chatbot.stores.testing.session_contract import TranscriptStoreContract as TranscriptStoreContract

_MODULES = {
    "BackendContract": "backend_contract",
    "KeyValueStoreContract": "session_contract",
    "LogContract": "log_contract",
    "ObservationMachine": "observation_machine",
    "ObservationStoreContract": "observation_contract",
    "PlaceContract": "backend_contract",
    "ShelfContract": "log_contract",
    "StoreMachine": "session_contract",
    "TranscriptStoreContract": "session_contract",
}
if "pytest" in sys.modules:  # a failing assertion shows both values; processes that tests start load no pytest
    sys.modules["pytest"].register_assert_rewrite(*(f"{__name__}.{each}" for each in _MODULES.values()))


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'chatbot.stores.testing' has no attribute {name!r}")
    return getattr(import_module(f"chatbot.stores.testing.{_MODULES[name]}"), name)


class Contract:
    """Base of the kit's classes: a failing test names the promise, and the methods that make it."""

    promised_by: ClassVar[tuple[type, ...]] = ()
    """The contracts that the tests are about."""
    erasure: ClassVar[Literal["bytes", "logical"]] = "bytes"
    """Level of erasure: "bytes" if no file has a byte of erased data, "logical" if no reader gets it."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_"):
                setattr(cls, name, _explained(test))

    def check_erased(self, home: Path, *erased: bytes) -> None:
        """Check that no file below `home` contains any of this, if erasure is "bytes"."""
        if self.erasure == "bytes":
            files = [path for path in home.rglob("*") if path.is_file()]
            assert files, 'a store without files has erasure = "logical"'
            assert [(path.name, each) for path in files for each in erased if each in path.read_bytes()] == []


def _explained(test: Callable[..., None]) -> Callable[..., None]:
    @wraps(test)
    def explained(self: Contract, *args: Any, **named: Any) -> None:
        try:
            test(self, *args, **named)
        except Exception as error:
            kind, sentence = type(self).__name__, test.__name__.removeprefix("test_").replace("_", " ")
            error.add_note(f"{kind} breaks this promise: {sentence}. Look at these methods:")
            for name in dict.fromkeys(_names(unwrap(test).__code__, unwrap(test).__globals__)):
                owner = next((each for each in self.promised_by if callable(getattr(each, name, None))), None)
                if owner is not None and not name.startswith("_"):
                    promise = (getdoc(getattr(owner, name)) or "").partition("\n")[0]
                    error.add_note(f"  {owner.__name__}.{name}: {promise}")
            raise

    return explained


def _names(code: CodeType, known: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names that a test uses, also in functions within it and in helpers of the kit."""
    for name in code.co_names:
        yield name
        if isinstance(helper := known.get(name), FunctionType) and helper.__module__.startswith(__name__):
            yield from _names(helper.__code__, {})
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each, known)
