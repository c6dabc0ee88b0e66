"""Tools over tasks: writing down what is to be done, and ticking it off."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field

from chatbot.chat.memory_tools.answers import Answer, Id, Line, Title, listed, reachable, told
from chatbot.errors import ToolError
from chatbot.memory.remembering import Remembering
from chatbot.memory.tasks import OPEN, Priority, Task, TaskScope, TaskStatus

Surface = Literal["", "startup"]


class TaskTools:
    """What a model may do with tasks, on behalf of one session or agent."""

    def __init__(self, memories: Remembering) -> None:
        self._memories = memories

    async def task_add(
        self,
        title: Title,
        *,
        priority: Priority = "normal",
        scope: TaskScope = "collaborative",
        surface: Surface = "",
        project: Line = "",
        due: Line = "",
        note: Line = "",
    ) -> Answer:
        """Note something to be done.

        Args:
            surface: startup brings it up whenever a session begins
            due: ISO date
        """
        task = await self._memories.add_task(
            title, scope=scope, priority=priority, surface=surface, project=project, due=due, note=note
        )
        return told(task=_told(task))

    async def task_update(
        self,
        task_id: Id,
        *,
        status: TaskStatus | None = None,
        priority: Priority | None = None,
        scope: TaskScope | None = None,
        surface: Surface | None = None,
        due: Line | None = None,
        note: Line | None = None,
    ) -> Answer:
        """Change a task, or tick it off. What is left out stays as it is.

        Args:
            surface: empty no longer brings it up
            due: ISO date; empty takes it away, as with note
        """
        asked = {
            "status": status,
            "priority": priority,
            "scope": scope,
            "surface": surface,
            "due": due,
            "note": note,
        }
        changes = {name: value for name, value in asked.items() if value is not None}
        if not changes:
            raise ToolError(f"there is nothing to change: give one of {', '.join(asked)}")
        await reachable(self._memories, [task_id])
        return told(task=_told(await self._memories.update_task(task_id, **changes)))

    async def task_list(
        self,
        *,
        statuses: Annotated[list[TaskStatus], Field(min_length=1)] | None = None,
        surface: Surface | None = None,
        project: Line | None = None,
        scope: TaskScope | None = None,
    ) -> Answer:
        """Tasks, the most urgent first; without statuses those to be done."""
        tasks = await self._memories.tasks(statuses=statuses or OPEN, surface=surface, project=project, scope=scope)
        return listed("tasks", map(_told, tasks), total=len(tasks))


def _told(task: Task) -> Answer:
    return {name: value for name, value in asdict(task).items() if value}
