"""Page of tasks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from chatbot.memory.tasks import OPEN
from chatbot.server.page.routes import Fields, PageRoute, VisitHere
from chatbot.server.page.sheets import base, goto, sheet
from chatbot.stores.errors import InvalidValue
from chatbot.words import TaskStatus

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}/tasks")

_DONE: tuple[TaskStatus, ...] = ("completed", "cancelled")
_PRIORITIES = ("high", "normal", "low")


@router.get("")
async def show(request: Request, visit: VisitHere, *, done: bool = False) -> Response:
    """List open or completed tasks."""
    tasks = await visit.memories.tasks(statuses=_DONE if done else OPEN)
    return sheet(request, "tasks.html", visit, here="tasks", tasks=tasks, done=done, priorities=_PRIORITIES)


@router.post("")
async def add(visit: VisitHere, fields: Fields) -> Response:
    """Write one down."""
    title = fields.get("title", "").strip()
    if not title:
        raise InvalidValue("the task is empty")
    due, priority = fields.get("due", ""), fields.get("priority", "normal")
    await visit.memories.add_task(title, due=due, priority=priority)  # type: ignore[arg-type]  # it is checked there
    return goto(f"{base(visit)}/tasks")


@router.post("/{task_id}")
async def change(visit: VisitHere, task_id: Annotated[str, Path(max_length=100)], fields: Fields) -> Response:
    """Tick it off, or open it again."""
    await visit.memories.update_task(task_id, status=fields.get("status", ""))
    return goto(f"{base(visit)}/tasks{'?done=1' if fields.get('status') == 'pending' else ''}")
