"""Tasks: observations with the metadata `kind = "task"`. Open ones surface when a session begins, unless told not to.

A task that is completed or cancelled surfaces no more, and one that is opened again does. Every surface goes through
`Tasks`, and describes a task by `Task.details`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from chatbot.memory.scope import PUBLIC, Sensitivities
from chatbot.memory.writing import DEFAULT_TYPE, MemoryWrites
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import InvalidValue, UnknownObservation, did_you_mean
from chatbot.stores.fields import one_line
from chatbot.stores.observation import Observation
from chatbot.stores.query import Filter
from chatbot.words import Priority, TaskScope, TaskStatus

KIND = "task"
STARTUP = "startup"

OPEN: tuple[TaskStatus, ...] = ("pending", "in_progress")
_WORDS: dict[str, tuple[str, ...]] = {
    "status": get_args(TaskStatus),
    "scope": get_args(TaskScope),
    "priority": get_args(Priority),
}
_USUAL = {"status": "pending", "scope": "collaborative", "priority": "normal", "surface": STARTUP}
"""Defaults of a task."""
_PLAIN = frozenset({"note", DEFAULT_TYPE})
"""Types without a meaning of their own, which can become a task."""


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

    def details(self) -> str:
        """Return the details beside the title, on one line; empty for a plain pending task."""
        said = (
            f"due {self.due}" if self.due else "",
            f"{self.priority} priority" if self.priority != _USUAL["priority"] else "",
            self.status.replace("_", " ") if self.status != _USUAL["status"] else "",
            f"project {self.project}" if self.project else "",
            self.note,
        )
        return " · ".join(filter(None, said))


class Tasks(MemoryWrites):
    """Writing tasks down, and ticking them off."""

    __slots__ = ()

    async def add_task(
        self,
        title: str,
        *,
        scope: TaskScope = "collaborative",
        priority: Priority = "normal",
        surface: str = STARTUP,
        project: str = "",
        due: str = "",
        note: str = "",
        source: str = "user",
    ) -> Task:
        """Write a task down, as pending. It is shown whenever a session begins, unless `surface` is empty.

        One that is open in the same words takes the details that are given, and keeps the others; one that was closed,
        or any other memory, becomes a task to do.
        """
        details = {"scope": scope, "priority": priority, "surface": surface, "due": due, "note": note}
        _check(details)
        remembered = await self.remember(
            title,
            type="task",
            subject="todo",
            project=project,
            metadata={
                "kind": KIND,
                "status": "pending",
                **{k: v for k, v in _written(details).items() if v is not None},
            },
            source=source,
        )
        if remembered.outcome == "exact_dup":
            await self._take_up(remembered.id, details | {"project": project})
        return await self._task(remembered.id)

    async def update_task(self, task_id: str, **changes: str) -> Task:
        """Set `status`, `priority`, `scope`, `surface`, `project`, `due` or `note`. What is searched stays as it is.

        A task that is closed surfaces no more; one that is opened again does, unless `surface` says otherwise.
        Raises `UnknownObservation` for what is no task, or `InvalidValue`.
        """
        _check(changes)
        task = await self._task(task_id)
        plain: dict[str, Any] = {"project": changes.pop("project")} if "project" in changes else {}
        status = changes.get("status", task.status)
        if status not in OPEN:
            changes.pop("surface", None)
        elif task.status not in OPEN:
            changes.setdefault("surface", STARTUP)
        quiet = {} if status in OPEN else {"surface": None}
        await self.update(task_id, metadata=_written(changes) | quiet, **plain)
        return await self._task(task_id)

    async def tasks(
        self,
        *,
        statuses: Sequence[TaskStatus] = OPEN,
        surface: str | None = None,
        project: str | None = None,
        scope: TaskScope | None = None,
        ask: Sensitivities = PUBLIC,
    ) -> list[Task]:
        """Tasks of these statuses: by priority, then by when they are due, then oldest first."""
        bound = self.scope
        metadata = {"kind": KIND} if scope is None else {"kind": KIND, "scope": scope}
        found: list[Task] = []
        for status in statuses:
            wanted = Filter(metadata=metadata | {"status": status}, project=project)
            found += map(task_of, await bound.rows(wanted, view=bound.view(ask), ascending=True))
        if surface is not None:
            found = [task for task in found if task.surface == surface]
        priorities = _WORDS["priority"]
        return sorted(found, key=lambda task: (priorities.index(task.priority), task.due or "9999"))

    async def startup_tasks(self) -> list[Task]:
        """Return the tasks to bring up when a session begins."""
        return await self.tasks(surface=STARTUP)

    async def _take_up(self, known_id: str, given: dict[str, str]) -> None:
        """Turn the memory with these words into an open task; if it is one already, update its `given` fields."""
        scope = self.scope
        [known] = await scope.store.get(scope.acting(SENSITIVITIES), [known_id])
        if known.metadata.get("kind") == KIND and known.metadata.get("status") in OPEN:
            if said := {name: value for name, value in given.items() if value != _USUAL.get(name, "")}:
                await self.update_task(known_id, **said)
            return
        plain: dict[str, Any] = {"type": "task", "subject": "todo"} if known.type in _PLAIN else {}
        plain |= {"project": given["project"]} if given["project"] else {}
        del given["project"]
        details = {"kind": KIND, "status": "pending", **_written(given)}  # None drops what was said when it was done
        await self.update(known_id, metadata=details, **plain)

    async def _task(self, task_id: str) -> Task:
        scope = self.scope
        rows = await scope.store.get(scope.acting(SENSITIVITIES), [task_id])
        if not rows or rows[0].metadata.get("kind") != KIND:
            raise UnknownObservation(f"no task has the id {task_id}")
        return task_of(rows[0])


def task_of(row: Observation) -> Task:
    """Return the task that an observation is."""
    kept: dict[str, Any] = dict(row.metadata)
    status = _known("status", kept)
    return Task(
        id=row.id,
        title=row.title,
        status=status,
        priority=_known("priority", kept),
        scope=_known("scope", kept),
        surface=str(kept.get("surface", STARTUP)) if status in OPEN else "",
        project=row.project,
        due=str(kept.get("due", "")),
        note=str(kept.get("note", "")),
    )


def _written(details: dict[str, str]) -> dict[str, str | None]:
    """The details as metadata: None takes one away. An empty `surface` is kept, for without one a task surfaces."""
    return {name: value if name == "surface" else value or None for name, value in details.items()}


def _known(name: str, kept: dict[str, Any]) -> Any:
    return kept[name] if kept.get(name) in _WORDS[name] else _USUAL[name]


def _check(details: dict[str, Any]) -> None:
    known = {*_WORDS, "surface", "project", "due", "note"}
    for name, value in details.items():
        if name not in known:
            raise InvalidValue(f"a task has no {name!r}{did_you_mean(name, known)}")
        one_line(value, name)
        if name in _WORDS and value not in _WORDS[name]:
            raise InvalidValue(f"{name} is {value!r}: it must be one of {', '.join(_WORDS[name])}")
