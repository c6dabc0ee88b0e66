"""Sessions and their memories: `MemorySystem` opens sessions, `SessionHandle` is one. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatbot.memory.erasure import Erasure as Erasure
    from chatbot.memory.handle import SessionHandle as SessionHandle
    from chatbot.memory.memory import Memory as Memory
    from chatbot.memory.people import Person as Person
    from chatbot.memory.people import Task as Task
    from chatbot.memory.profile import Profile as Profile
    from chatbot.memory.reading import Hit as Hit
    from chatbot.memory.session_catalog import SessionFilter as SessionFilter
    from chatbot.memory.session_search import SessionHit as SessionHit
    from chatbot.memory.system import MemorySystem as MemorySystem
    from chatbot.memory.users_and_projects import Project as Project
    from chatbot.memory.users_and_projects import ProjectContent as ProjectContent
    from chatbot.memory.users_and_projects import erase_project as erase_project
    from chatbot.memory.users_and_projects import erase_user as erase_user
    from chatbot.memory.users_and_projects import export_user as export_user
    from chatbot.memory.users_and_projects import projects_in as projects_in
    from chatbot.memory.users_and_projects import rename_project as rename_project
    from chatbot.memory.users_and_projects import sessions_of as sessions_of
    from chatbot.memory.writing import AddResult as AddResult
    from chatbot.memory.writing import Draft as Draft
    from chatbot.stores.records import SessionRecord as SessionRecord

_NAMES = {
    "chatbot.memory.erasure": "Erasure",
    "chatbot.memory.handle": "SessionHandle",
    "chatbot.memory.memory": "Memory",
    "chatbot.memory.people": "Person Task",
    "chatbot.memory.reading": "Hit",
    "chatbot.memory.session_catalog": "SessionFilter",
    "chatbot.memory.session_search": "SessionHit",
    "chatbot.memory.profile": "Profile",
    "chatbot.memory.system": "MemorySystem",
    "chatbot.memory.users_and_projects": (
        "Project ProjectContent erase_project erase_user export_user projects_in rename_project sessions_of"
    ),
    "chatbot.memory.writing": "AddResult Draft",
    "chatbot.stores.records": "SessionRecord",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chatbot.memory' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
