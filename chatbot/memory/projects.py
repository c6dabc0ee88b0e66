"""Projects, which keep sessions and memories apart, and operations on a whole project.

A session belongs to a project or to none, and so do its memories. It recalls memories of its project and those
without a project. A project exists while something belongs to it; its name is compared without case.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from chatbot.errors import SessionExpired, SessionNotFound
from chatbot.memory.erasure import Target, erase, preview
from chatbot.memory.session_catalog import SessionFilter
from chatbot.memory.system import MemorySystem
from chatbot.stores.access import SENSITIVITIES, fold
from chatbot.stores.errors import InvalidValue, UnknownProject, UnsupportedOperation
from chatbot.stores.fields import one_line
from chatbot.stores.query import EVERY, FactFilter
from chatbot.stores.records import SessionRecord, format_time


@dataclass(frozen=True, slots=True)
class Project:
    """A project that holds something the caller may see."""

    name: str
    memories: int
    """Active memories, and facts."""
    sessions: int
    used_at: datetime | None
    """Time of the last use of one of its sessions."""

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        return asdict(self) | {"used_at": format_time(self.used_at) if self.used_at else None}


@dataclass(frozen=True, slots=True)
class ProjectContent:
    """Numbers of memories and sessions of a project that were moved or deleted."""

    memories: int
    sessions: int


async def projects_in(memory: MemorySystem) -> list[Project]:
    """Return the projects that hold something, by name."""
    sessions = await memory.list_sessions(wanted=lambda record: bool(record.project))
    memories: Counter[str] = Counter()
    names: dict[str, str] = {}
    used: defaultdict[str, list[datetime]] = defaultdict(list)
    for record in reversed(sessions):
        names[fold(record.project)] = record.project
        used[fold(record.project)].append(record.used_at)
    with suppress(UnsupportedOperation):  # the agent remembers nothing
        scope = memory.memory().scope
        view = scope.view(SENSITIVITIES)
        facts = [fact.project for fact in await scope.store.facts(view, FactFilter(), limit=EVERY) if fact.project]
        rows = {each.value: each.count for each in await scope.store.facets(view, "project", limit=EVERY)}
        for name, count in (*rows.items(), *Counter(facts).items()):
            memories[fold(name)] += count
            names.setdefault(fold(name), name)
    return [
        Project(names[name], memories[name], len(used[name]), max(used[name], default=None)) for name in sorted(names)
    ]


async def rename_project(memory: MemorySystem, name: str, new: str) -> ProjectContent:
    """Move everything of a project to a new or existing one, or, for an empty name, to none.

    Expired sessions stay. Can be repeated after a kill midway. Raises `UnknownProject` for an empty project.
    """
    new = memory.caller.narrowed(project=new).project or ""
    moved = sessions = 0
    for record in await sessions_of(memory, name):
        with suppress(SessionExpired, SessionNotFound):
            moved += await (await memory.load_session(record.id, any_agent=True)).move(new)
            sessions += 1
    with suppress(UnsupportedOperation):  # the agent remembers nothing
        moved += await memory.memory().move(new, project=name)
    return _check_found(name, ProjectContent(moved, sessions))


async def erase_project(memory: MemorySystem, name: str, *, dry_run: bool = False) -> ProjectContent:
    """Delete everything of a project permanently: its sessions with their files, its memories and facts.

    Only what the caller may see; `dry_run` only counts it. An import does not bring it back.
    Raises `UnknownProject` for an empty project.
    """
    memory.caller.check("erase")
    records, erased = await sessions_of(memory, name), set[str]()
    target = Target(project=name)
    with suppress(UnsupportedOperation):  # the agent remembers nothing
        scope = memory.memory().scope
        erased.update((await preview(replace(scope, caller=scope.caller.elevated("read")), target)).ids)
    if not dry_run:
        for record in records:
            with suppress(SessionNotFound):  # another process deleted it
                erased.update((await memory.delete_session(record.id)).erased)
        with suppress(UnsupportedOperation):
            erased.update((await erase(memory.memory().scope, target)).erased)
    return _check_found(name, ProjectContent(len(erased), len(records)))


async def sessions_of(memory: MemorySystem, name: str) -> list[SessionRecord]:
    """Return the sessions of a project that the caller may see; needs no right."""
    if not one_line(name, "the project"):
        raise InvalidValue("name the project")
    own, wanted = memory.caller, SessionFilter(project=name)
    records = await memory.sessions_anywhere()
    return [
        each for each in records if each.is_open_to(own.clearance, own.namespace, own.project) and wanted.fits(each)
    ]


def _check_found(name: str, moved: ProjectContent) -> ProjectContent:
    if not (moved.memories or moved.sessions):
        raise UnknownProject(f"nothing belongs to the project {name!r:.80}: see `chatbot projects list`")
    return moved
