"""`/v1/tasks`: what is to be done."""

from __future__ import annotations

import dataclasses
from typing import Annotated, get_args

from fastapi import APIRouter, Body, Path, Query
from pydantic import ConfigDict

from chatbot.memory.tasks import OPEN, Priority, TaskScope, TaskStatus
from chatbot.memory.tasks import Task as Known
from chatbot.server.dependencies import VisitHere
from chatbot.server.native.pages import IdCursor, Limit, Page, page_after
from chatbot.server.native.shapes import Given, Shape, described_as
from chatbot.server.responses import OF_MEMORY
from chatbot.server.values import Line, Named
from chatbot.server.visit import Visit
from chatbot.server.writing import WritingHere
from stores.access import SENSITIVITIES
from stores.errors import UnknownObservation

router = APIRouter(prefix="/v1/tasks", tags=["memory"], responses=OF_MEMORY)


TaskId = Annotated[str, Path(max_length=100, description="The id of the task.")]


class Task(Shape):
    """Something to be done."""

    id: str
    """The id of the memory that it is."""
    title: str
    """What is to be done."""
    status: TaskStatus
    """How far it is."""
    priority: Priority
    """How urgent it is."""
    scope: TaskScope
    """Who does it."""
    surface: str
    """`startup` brings it up whenever a session begins."""
    project: str
    """The project that it belongs to."""
    due: str
    """When it is due, as text; ISO dates sort."""
    note: str
    """Anything else."""


class NewTask(Given):
    """A task to write down."""

    model_config = ConfigDict(json_schema_extra=described_as(Task))

    title: Named
    priority: Priority = "normal"
    scope: TaskScope = "collaborative"
    surface: Line = ""
    project: Line = ""
    due: Line = ""
    note: Line = ""


class TaskChange(Given):
    """What to set; the rest stays."""

    model_config = ConfigDict(json_schema_extra=described_as(Task))

    status: TaskStatus | None = None
    priority: Priority | None = None
    scope: TaskScope | None = None
    surface: Line | None = None
    due: Line | None = None
    note: Line | None = None


@router.get("", summary="List tasks")
async def list_tasks(
    visit: VisitHere,
    *,
    status: Annotated[list[TaskStatus], Query(description="How far they are.")] = list(OPEN),  # noqa: B006 - FastAPI never changes it
    project: Annotated[str | None, Query(max_length=1000, description="Of that project.")] = None,
    surface: Annotated[str | None, Query(max_length=1000, description="`startup`: those brought up then.")] = None,
    limit: Limit = 50,
    cursor: IdCursor = None,
) -> Page[Task]:
    """By priority, then by when they are due."""
    tasks = await visit.memories.tasks(statuses=list(dict.fromkeys(status)), project=project, surface=surface)
    part, following = page_after(tasks, _id, cursor=cursor, limit=limit)
    return Page(data=[Task.model_validate(task) for task in part], next_cursor=following)


@router.post("", summary="Write a task down", status_code=201)
async def add_task(visit: VisitHere, given: Annotated[NewTask, Body()], writing: WritingHere) -> Task:
    """As pending."""
    if writing.before:
        return await _again(visit, writing.before["id"])
    task = await visit.memories.add_task(**given.model_dump())
    writing.note(id=task.id)
    return _shown(task)


@router.patch("/{task_id}", summary="Change a task, or tick it off")
async def change_task(
    task_id: TaskId, visit: VisitHere, change: Annotated[TaskChange, Body()], writing: WritingHere
) -> Task:
    """To forget a task, forget the memory of the same id."""
    if writing.before is not None:
        return await _again(visit, task_id)
    task = await visit.memories.update_task(task_id, **change.model_dump(exclude_none=True))
    writing.note()
    return _shown(task)


async def _again(visit: Visit, task_id: str) -> Task:
    for task in await visit.memories.tasks(statuses=get_args(TaskStatus), ask=SENSITIVITIES):
        if task.id == task_id:
            return _shown(task)
    raise UnknownObservation(f"there is no task {task_id}")


def _id(task: Known) -> str:
    return task.id


def _shown(task: Known) -> Task:
    return Task.model_validate(dataclasses.asdict(task))
