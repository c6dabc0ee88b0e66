"""Users and projects, which divide a memory: list them, and move, export and erase the data of one.

A user is a namespace, see `chatbot.memory.scope`; the operations on users act on the namespace of the given memory
system: `memory.cleared_for(namespace=user_namespace("alice"))`. A project exists while something belongs to it.
"""

import asyncio
from base64 import b64encode
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from chatbot.errors import SessionExpired, SessionNotFound
from chatbot.memory.erasure import Target, erase, preview
from chatbot.memory.scope import Caller, user_of
from chatbot.memory.session_catalog import FAILURES, SessionFilter
from chatbot.memory.system import MemorySystem
from chatbot.stores.access import SENSITIVITIES, fold
from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import AccessDenied, InvalidValue, MissingFolder, UnknownProject, UnsupportedOperation
from chatbot.stores.fields import one_line
from chatbot.stores.observation import STATUSES
from chatbot.stores.query import EVERY, FactFilter, Filter
from chatbot.stores.records import SessionRecord, check_type, format_time

_SYSTEM = ": the `system` of a memory is one"


class User(Struct, frozen=True):
    """A namespace with rows, facts or sessions. `user` is the user's label; None for other namespaces."""

    namespace: str
    user: str | None
    memories: int
    """Number of rows and facts, of any status."""
    sessions: int
    used_at: datetime | None


class UserErasure(Struct, frozen=True):
    """Rows, facts and sessions that were deleted permanently."""

    memories: int
    """Number of rows and facts."""
    sessions: tuple[str, ...]


async def users_in(memory: MemorySystem) -> list[User]:
    """Return the namespaces inside the caller's that have rows, facts or sessions, sorted by name.

    Raises `MissingRight` without `curate`, or `AccessDenied` if the caller is a user.
    """
    memory.caller.check("read")
    memory.caller.check("curate")
    if user_of(memory.caller.namespace) is not None:
        raise AccessDenied("a user cannot list other users")
    rows = await _rows_by_namespace(memory)
    used: defaultdict[str, list[datetime]] = defaultdict(list)
    for record in await memory.sessions_anywhere():
        used[record.namespace].append(record.used_at)
    inside = f"{memory.caller.namespace}/" if memory.caller.namespace else ""
    names = [each for each in sorted({*rows, *used}) if each and each.startswith(inside)]
    return [User(each, user_of(each), rows[each], len(used[each]), max(used[each], default=None)) for each in names]


async def export_user(memory: MemorySystem, project: str | None = None, *, attachments: bool = False) -> dict[str, Any]:
    """Return the rows of any status, facts and sessions that the caller may see in the namespace, or in a project.

    Of the files of messages it has the sizes or, with `attachments`, the content. Raises `DamagedFile`.
    """
    check_type(memory, MemorySystem, "memory", _SYSTEM)
    memory.caller.check("read")
    rows, facts = [], []
    with suppress(UnsupportedOperation):  # the agent remembers nothing
        memories = memory.memory()
        rows = await memories.every(project=project, sensitivities=SENSITIVITIES, statuses=STATUSES)
        facts = await memories.query_facts(project=project, sensitivities=SENSITIVITIES, limit=EVERY)
    sessions = []
    for record in await memory.choose_sessions(SessionFilter(project=project)):
        with suppress(SessionNotFound, MissingFolder):  # it was deleted meanwhile
            sessions.append(await _export_session(memory, record, attachments=attachments))
    return {
        "namespace": memory.caller.namespace,
        **({"user": user_of(memory.caller.namespace)} if project is None else {"project": project}),
        "memories": [row.as_json() for row in rows[::-1]],
        "facts": [fact.as_json() for fact in facts[::-1]],
        "sessions": sessions,
    }


async def erase_user(memory: MemorySystem) -> UserErasure:
    """Delete everything in the namespace permanently, whatever clearance it needs: rows, facts, sessions with files.

    An import does not bring them back. Raises `MissingRight` without `erase`, and `AccessDenied` in the owner's
    namespace, or for a caller in a project, who sees only part of the namespace.
    """
    check_type(memory, MemorySystem, "memory", _SYSTEM)
    check_erases(memory.caller)
    records = [record for record in await memory.sessions_anywhere() if record.namespace == memory.caller.namespace]
    erased: set[str] = set()
    with suppress(SessionNotFound):  # another process deleted them
        erased.update((await memory.erase_session(*records)).erased if records else ())
    with suppress(UnsupportedOperation):  # the agent remembers nothing
        scope = memory.memory().scope
        everything = replace(scope, caller=scope.caller.elevated(clearance="full"))
        erased.update((await erase(everything, Target(everything=True))).erased)
    failures = memory.backend.lines(FAILURES)
    # a failure without a session may quote any user
    await asyncio.to_thread(failures.rewrite, lambda line: line if line.get("session") else None)
    return UserErasure(len(erased), tuple(record.id for record in records))


def check_erases(caller: Caller) -> None:
    """Raise `MissingRight` or `AccessDenied` unless the caller may delete the user of its namespace."""
    caller.check("erase")
    if caller.project is not None:
        raise AccessDenied("a user is deleted in all projects at once: omit the project, or use a token without one")
    if not caller.namespace:
        raise AccessDenied("this is the owner's memory, not a user's: name the user")


async def _rows_by_namespace(memory: MemorySystem) -> Counter[str]:
    found: Counter[str] = Counter()
    with suppress(UnsupportedOperation):  # the agent remembers nothing
        scope = replace(memory.memory().scope, across=True, erasing=True)  # `users_in` filters namespaces
        facts = await scope.store.facts(scope.view(SENSITIVITIES), FactFilter(), limit=EVERY)
        found.update(fact.namespace for fact in facts)
        rows = await scope.store.states(scope.view(SENSITIVITIES), Filter(statuses=STATUSES), limit=EVERY)
        found.update(row.namespace for row in rows)
    return found


async def _export_session(memory: MemorySystem, record: SessionRecord, *, attachments: bool) -> dict[str, Any]:
    session = await memory.load_session(record.id, any_agent=True)
    entries = await session.transcript_read_all() if session.supports(TranscriptStore) else []
    kept = await session.kv_entries() if session.supports(KeyValueStore) else []
    return {
        "session": record.as_json(),
        "messages": [{"role": each.role, "content": each.content, "at": format_time(each.at)} for each in entries],
        "values": {each.key: each.value for each in kept},
        "receipts": await session.records(),
        "files": [asdict(file) for file in await session.list_files()],
        "attachments": {
            name: b64encode(await session.attachment(name) or b"").decode() if attachments else size
            for name, size in (await session.attachments()).items()
        },
    }


class Project(Struct, frozen=True):
    """A project that holds something the caller may see."""

    name: str
    memories: int
    """Active memories, and facts."""
    sessions: int
    used_at: datetime | None

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        return asdict(self) | {"used_at": format_time(self.used_at) if self.used_at else None}


class ProjectContent(Struct, frozen=True):
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
        sessions = [record.id for record in records]
        with suppress(SessionNotFound):  # another process deleted them
            erased.update((await memory.delete_session(*sessions)).erased if sessions else ())
        with suppress(UnsupportedOperation):
            erased.update((await erase(memory.memory().scope, target)).erased)
    return _check_found(name, ProjectContent(len(erased), len(records)))


async def sessions_of(memory: MemorySystem, name: str) -> list[SessionRecord]:
    """Return the sessions of a project that the caller may see; needs no right."""
    if not one_line(name, "the project"):
        raise InvalidValue("name the project")
    own, wanted = memory.caller, SessionFilter(project=name)
    records = [each for each in await memory.sessions_anywhere() if wanted.fits(each)]
    return [each for each in records if each.is_open_to(own.clearance, own.namespace, own.project)]


def _check_found(name: str, content: ProjectContent) -> ProjectContent:
    if not (content.memories or content.sessions):
        raise UnknownProject(f"nothing belongs to the project {name!r:.80}: see `chatbot projects list`")
    return content
