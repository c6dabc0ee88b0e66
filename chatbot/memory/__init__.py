"""Sessions and their memories: `MemorySystem` opens sessions, `SessionHandle` reads and writes one.

Also exports the types that their operations take and return. Each name is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatbot.memory.handle import SessionHandle
    from chatbot.memory.memory import Memory
    from chatbot.memory.people import Person, Task
    from chatbot.memory.reading import Hit
    from chatbot.memory.recall import RankedMemory, Recollection
    from chatbot.memory.scope import Caller, SystemOptions
    from chatbot.memory.session_catalog import SessionFilter
    from chatbot.memory.system import MemorySystem
    from chatbot.memory.writing import AddResult, Draft
    from chatbot.stores.backend import SessionFile
    from chatbot.stores.observation import Observation, Triple
    from chatbot.stores.query import FactFilter, Filter, Page, Stats, Version
    from chatbot.stores.records import SessionRecord

_HOMES = {
    "chatbot.memory.handle": ("SessionHandle",),
    "chatbot.memory.memory": ("Memory",),
    "chatbot.memory.people": ("Person", "Task"),
    "chatbot.memory.reading": ("Hit",),
    "chatbot.memory.recall": ("RankedMemory", "Recollection"),
    "chatbot.memory.scope": ("Caller", "SystemOptions"),
    "chatbot.memory.session_catalog": ("SessionFilter",),
    "chatbot.memory.system": ("MemorySystem",),
    "chatbot.memory.writing": ("AddResult", "Draft"),
    "chatbot.stores.backend": ("SessionFile",),
    "chatbot.stores.observation": ("Observation", "Triple"),
    "chatbot.stores.query": ("FactFilter", "Filter", "Page", "Stats", "Version"),
    "chatbot.stores.records": ("SessionRecord",),
}

__all__ = [
    "AddResult",
    "Caller",
    "Draft",
    "FactFilter",
    "Filter",
    "Hit",
    "Memory",
    "MemorySystem",
    "Observation",
    "Page",
    "Person",
    "RankedMemory",
    "Recollection",
    "SessionFile",
    "SessionFilter",
    "SessionHandle",
    "SessionRecord",
    "Stats",
    "SystemOptions",
    "Task",
    "Triple",
    "Version",
]


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'chatbot.memory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
