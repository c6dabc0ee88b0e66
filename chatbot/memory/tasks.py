"""Tasks: observations with the metadata `kind = "task"`. Those that surface at start-up greet a new session."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from chatbot.memory.scope import PUBLIC
from chatbot.memory.writing import DEFAULT_TYPE, Writing
from stores.access import SENSITIVITIES, Sensitivity
from stores.errors import InvalidValue, UnknownObservation, did_you_mean
from stores.observation import Observation, one_line
from stores.query import Filter

KIND = "task"
STARTUP = "startup"
TaskStatus = Literal["pending", "in_progress", "completed", "cancelled"]
TaskScope = Literal["user", "agent", "collaborative"]
Priority = Literal["high", "normal", "low"]

OPEN: tuple[TaskStatus, ...] = ("pending", "in_progress")
_WORDS: dict[str, tuple[str, ...]] = {
    "status": get_args(TaskStatus),
    "scope": get_args(TaskScope),
    "priority": get_args(Priority),
}
_DETAILS = ("scope", "priority", "surface", "due", "note")
_PLAIN = frozenset({"note", DEFAULT_TYPE})
"""What is not said to be anything in particular, and so can become a task."""
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be done. `due` is text as it was given, ISO dates sort."""

    id: str
    title: str
    status: TaskStatus
    priority: Priority
    scope: TaskScope
    surface: str
    project: str
    due: str
    note: str


class Tasks(Writing):
    """Writing tasks down, and ticking them off."""

    __slots__ = ()

    async def add_task(
        self,
        title: str,
        *,
        scope: TaskScope = "collaborative",
        priority: Priority = "normal",
        surface: str = "",
        project: str = "",
        due: str = "",
        note: str = "",
    ) -> Task:
        """Write a task down, as pending. `surface="startup"` shows it whenever a session begins.

        One that is open in the same words stays as it is; one that was done, or any other memory, is to be done now.
        """
        details = {"scope": scope, "priority": priority, "surface": surface, "due": due, "note": note}
        _check(details)
        metadata = {"kind": KIND, "status": "pending", **{key: value for key, value in details.items() if value}}
        remembered = await self.remember(
            title, type="task", subject="todo", project=project, metadata=metadata, source="agent"
        )
        if remembered.outcome == "exact_dup":
            await self._take_up(remembered.id, metadata)
        return await self._task(remembered.id)

    async def update_task(self, task_id: str, **changes: str) -> Task:
        """Set `status`, `priority`, `scope`, `surface`, `due` or `note`. What is searched stays as it is.

        Raises `UnknownObservation` for what is no task, or `InvalidValue`.
        """
        _check(changes)
        await self._task(task_id)
        await self.update(task_id, metadata={key: value or None for key, value in changes.items()})
        return await self._task(task_id)

    async def tasks(
        self,
        *,
        statuses: Sequence[TaskStatus] = OPEN,
        surface: str | None = None,
        project: str | None = None,
        scope: TaskScope | None = None,
        ask: Collection[Sensitivity] = PUBLIC,
    ) -> list[Task]:
        """Tasks of these statuses: by priority, then by when they are due, then oldest first."""
        bound = self._scope()
        asked = {"surface": surface, "scope": scope}
        metadata = {"kind": KIND, **{key: value for key, value in asked.items() if value is not None}}
        found: list[Task] = []
        for status in statuses:
            wanted = Filter(metadata=metadata | {"status": status}, project=project)
            page = await bound.store.find(bound.view(ask), wanted, order="created", ascending=True, limit=_MOST)
            found += map(_task_of, page.rows)
        priorities = _WORDS["priority"]
        return sorted(found, key=lambda task: (priorities.index(task.priority), task.due or "9999"))

    async def startup_tasks(self) -> list[Task]:
        """What is to be brought up when a session begins."""
        return await self.tasks(surface=STARTUP)

    async def _take_up(self, known_id: str, metadata: dict[str, str]) -> None:
        """Let what is remembered in the same words be a task to do, unless it is one."""
        scope = self._scope()
        [known] = await scope.store.get(scope.view(SENSITIVITIES), [known_id])
        if not (known.metadata.get("kind") == KIND and known.metadata.get("status") in OPEN):
            details = {key: metadata.get(key) for key in _DETAILS}  # None takes away what was said when it was done
            plain = {"type": "task", "subject": "todo"} if known.type in _PLAIN else {}
            await self.update(known_id, metadata={**details, **metadata}, **plain)

    async def _task(self, task_id: str) -> Task:
        scope = self._scope()
        rows = await scope.store.get(scope.view(SENSITIVITIES), [task_id])
        if not rows or rows[0].metadata.get("kind") != KIND:
            raise UnknownObservation(f"there is no task {task_id}")
        return _task_of(rows[0])


def _task_of(row: Observation) -> Task:
    kept: dict[str, Any] = dict(row.metadata)
    return Task(
        id=row.id,
        title=row.title,
        status=_known("status", kept, "pending"),
        priority=_known("priority", kept, "normal"),
        scope=_known("scope", kept, "collaborative"),
        surface=str(kept.get("surface", "")),
        project=row.project,
        due=str(kept.get("due", "")),
        note=str(kept.get("note", "")),
    )


def _known(name: str, kept: dict[str, Any], usual: str) -> Any:
    return kept[name] if kept.get(name) in _WORDS[name] else usual


def _check(details: dict[str, Any]) -> None:
    known = {*_WORDS, "surface", "due", "note"}
    for name, value in details.items():
        if name not in known:
            raise InvalidValue(f"a task has no {name!r}{did_you_mean(name, known)}")
        one_line(value, name)
        if name in _WORDS and value not in _WORDS[name]:
            raise InvalidValue(f"{name} is {value!r}: it must be one of {', '.join(_WORDS[name])}")
