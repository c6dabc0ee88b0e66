"""Sessions and what they remember: `MemorySystem` issues them, `SessionHandle` reads and writes one.

Beside these two stand the inputs and the results of their operations. Each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatbot.memory.handle import SessionHandle
    from chatbot.memory.memory import Memory
    from chatbot.memory.people import FactQuery, Person
    from chatbot.memory.reading import Batch, Every, Hit, Listing, Recall, Search, Timeline
    from chatbot.memory.recall import RankedMemory, Recollection
    from chatbot.memory.record import SessionRecord
    from chatbot.memory.session_catalog import SessionFilter
    from chatbot.memory.system import MemorySystem
    from chatbot.memory.tasks import Task
    from chatbot.memory.writing import AddResult, Change, Draft
    from chatbot.stores.backend import SessionFile
    from chatbot.stores.observation import Observation, Triple
    from chatbot.stores.query import FactFilter, Filter, Page, Stats, Version

_HOMES = {
    "Batch": "chatbot.memory.reading",
    "Change": "chatbot.memory.writing",
    "Draft": "chatbot.memory.writing",
    "Every": "chatbot.memory.reading",
    "FactFilter": "chatbot.stores.query",
    "FactQuery": "chatbot.memory.people",
    "Filter": "chatbot.stores.query",
    "Hit": "chatbot.memory.reading",
    "Listing": "chatbot.memory.reading",
    "Memory": "chatbot.memory.memory",
    "MemorySystem": "chatbot.memory.system",
    "Observation": "chatbot.stores.observation",
    "Page": "chatbot.stores.query",
    "Person": "chatbot.memory.people",
    "Recall": "chatbot.memory.reading",
    "RankedMemory": "chatbot.memory.recall",
    "Recollection": "chatbot.memory.recall",
    "AddResult": "chatbot.memory.writing",
    "Search": "chatbot.memory.reading",
    "SessionFile": "chatbot.stores.backend",
    "SessionFilter": "chatbot.memory.session_catalog",
    "SessionHandle": "chatbot.memory.handle",
    "SessionRecord": "chatbot.memory.record",
    "Stats": "chatbot.stores.query",
    "Task": "chatbot.memory.tasks",
    "Timeline": "chatbot.memory.reading",
    "Triple": "chatbot.stores.observation",
    "Version": "chatbot.stores.query",
}

__all__ = [
    "AddResult",
    "Batch",
    "Change",
    "Draft",
    "Every",
    "FactFilter",
    "FactQuery",
    "Filter",
    "Hit",
    "Listing",
    "Memory",
    "MemorySystem",
    "Observation",
    "Page",
    "Person",
    "RankedMemory",
    "Recall",
    "Recollection",
    "Search",
    "SessionFile",
    "SessionFilter",
    "SessionHandle",
    "SessionRecord",
    "Stats",
    "Task",
    "Timeline",
    "Triple",
    "Version",
]


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chatbot.memory' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
