"""Pages of the profile and of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from chatbot.memory.people import OPEN, Task
from chatbot.memory.profile_lines import OWN
from chatbot.memory.scope import utc_now
from chatbot.messages import TaskStatus
from chatbot.operations import get_profile_history, show_profile
from chatbot.server.page.rendering import AccessHere, PageRoute, render_page
from chatbot.stores.access import SENSITIVITIES

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")


@router.get("/profile")
async def show(request: Request, access: AccessHere) -> Response:
    """Render the current lines, the proposals, and the answers to the standing questions."""
    known = await show_profile(access.context, sensitivities=OWN)
    return render_page(request, "profile.html", access, here="profile", known=known, key="")


@router.get("/profile/{key}")
async def history(request: Request, access: AccessHere, key: Annotated[str, Path(max_length=100)]) -> Response:
    """Render all values that a key had."""
    known = await get_profile_history(access.context, key, sensitivities=SENSITIVITIES)
    return render_page(request, "profile.html", access, here="profile", known=known, key=key)


_DONE: tuple[TaskStatus, ...] = ("completed", "cancelled")
_WEEK = 7
_PRIORITIES = ("high", "normal", "low")


@router.get("/tasks")
async def show_tasks(request: Request, access: AccessHere, *, done: bool = False) -> Response:
    """List open or ended tasks."""
    tasks = await access.memories.tasks(statuses=_DONE if done else OPEN, sensitivities=SENSITIVITIES)
    groups = [("", tasks)] if done and tasks else _by_date(tasks, utc_now().astimezone().date())
    return render_page(request, "tasks.html", access, here="tasks", groups=groups, done=done, priorities=_PRIORITIES)


def _by_date(tasks: Sequence[Task], today: date) -> list[tuple[str, list[Task]]]:
    """Group tasks by due date; groups without tasks are left out."""
    groups: dict[str, list[Task]] = {name: [] for name in ("Overdue", "Today", "Next 7 days", "Later", "No date")}
    for task in sorted(tasks, key=lambda task: task.due or "~"):
        groups[_when(task.due, today)].append(task)
    return [(name, group) for name, group in groups.items() if group]


def _when(due: str, today: date) -> str:
    try:
        days = (date.fromisoformat(due[:10]) - today).days
    except ValueError:  # a date may be given in words
        return "Later" if due else "No date"
    return "Overdue" if days < 0 else "Today" if not days else "Next 7 days" if days <= _WEEK else "Later"
