"""Sessions and their memories: `MemorySystem` opens sessions, `SessionHandle` reads and writes one.

Also exports the types that their operations take and return, and operations on projects and users. Each is
imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatbot.memory.erasure import Erasure as Erasure
    from chatbot.memory.handle import SessionHandle as SessionHandle
    from chatbot.memory.memory import Memory as Memory
    from chatbot.memory.people import Person as Person
    from chatbot.memory.people import Task as Task
    from chatbot.memory.projects import Project as Project
    from chatbot.memory.projects import ProjectContent as ProjectContent
    from chatbot.memory.projects import erase_project as erase_project
    from chatbot.memory.projects import projects_in as projects_in
    from chatbot.memory.projects import rename_project as rename_project
    from chatbot.memory.projects import sessions_of as sessions_of
    from chatbot.memory.reading import Hit as Hit
    from chatbot.memory.recall import RankedMemory as RankedMemory
    from chatbot.memory.recall import Recollection as Recollection
    from chatbot.memory.scope import Caller as Caller
    from chatbot.memory.scope import SystemOptions as SystemOptions
    from chatbot.memory.session_catalog import SessionFilter as SessionFilter
    from chatbot.memory.session_search import SessionHit as SessionHit
    from chatbot.memory.standing import Profile as Profile
    from chatbot.memory.system import MemorySystem as MemorySystem
    from chatbot.memory.users import export_user as export_user
    from chatbot.memory.writing import AddResult as AddResult
    from chatbot.memory.writing import Draft as Draft
    from chatbot.stores.backend import SessionFile as SessionFile
    from chatbot.stores.observation import Observation as Observation
    from chatbot.stores.observation import Triple as Triple
    from chatbot.stores.query import FactFilter as FactFilter
    from chatbot.stores.query import Filter as Filter
    from chatbot.stores.query import Page as Page
    from chatbot.stores.query import Stats as Stats
    from chatbot.stores.query import Version as Version
    from chatbot.stores.records import SessionRecord as SessionRecord

_HOMES = {
    "AddResult": "chatbot.memory.writing",
    "Caller": "chatbot.memory.scope",
    "Draft": "chatbot.memory.writing",
    "Erasure": "chatbot.memory.erasure",
    "FactFilter": "chatbot.stores.query",
    "Filter": "chatbot.stores.query",
    "Hit": "chatbot.memory.reading",
    "Memory": "chatbot.memory.memory",
    "MemorySystem": "chatbot.memory.system",
    "Observation": "chatbot.stores.observation",
    "Page": "chatbot.stores.query",
    "Person": "chatbot.memory.people",
    "Profile": "chatbot.memory.standing",
    "Project": "chatbot.memory.projects",
    "ProjectContent": "chatbot.memory.projects",
    "RankedMemory": "chatbot.memory.recall",
    "Recollection": "chatbot.memory.recall",
    "SessionFile": "chatbot.stores.backend",
    "SessionFilter": "chatbot.memory.session_catalog",
    "SessionHandle": "chatbot.memory.handle",
    "SessionHit": "chatbot.memory.session_search",
    "SessionRecord": "chatbot.stores.records",
    "Stats": "chatbot.stores.query",
    "SystemOptions": "chatbot.memory.scope",
    "Task": "chatbot.memory.people",
    "Triple": "chatbot.stores.observation",
    "Version": "chatbot.stores.query",
    "erase_project": "chatbot.memory.projects",
    "export_user": "chatbot.memory.users",
    "projects_in": "chatbot.memory.projects",
    "rename_project": "chatbot.memory.projects",
    "sessions_of": "chatbot.memory.projects",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chatbot.memory' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
