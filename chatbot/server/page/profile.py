"""Pages of the profile and of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from chatbot.memory.people import OPEN, Task
from chatbot.memory.profile_lines import OWN
from chatbot.memory.scope import utc_now
from chatbot.memory.standing import Profile
from chatbot.messages import TaskStatus
from chatbot.operations import show_profile
from chatbot.server.page.sheets import AccessHere, Fields, PageRoute, base, goto, sheet
from chatbot.stores.errors import InvalidValue

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

Key = Annotated[str, Path(max_length=100)]


@router.get("/profile")
async def show(request: Request, access: AccessHere) -> Response:
    """Render the current lines, the proposals, and the answers to the standing questions."""
    known = await show_profile(access.context, ask=OWN)
    proposals = await access.memories.profile_proposals()
    return sheet(request, "profile.html", access, here="profile", known=known, proposals=proposals, key="")


@router.get("/profile/{key}")
async def history(request: Request, access: AccessHere, key: Key) -> Response:
    """Render all values that a key had."""
    known = Profile(await access.memories.profile_history(key))
    return sheet(request, "profile.html", access, here="profile", known=known, proposals=(), key=key)


@router.post("/profile")
async def set_(access: AccessHere, fields: Fields) -> Response:
    """Set the value of a key."""
    await access.memories.profile_set(fields.get("key", ""), fields.get("value", ""), also="also" in fields)
    return goto(f"{base(access)}/profile")


@router.post("/profile/{key}")
async def change(access: AccessHere, key: Key, fields: Fields) -> Response:
    """Pin a key, forget it, or accept or reject a proposal, which is named by its id."""
    deed = fields.get("deed", "")
    if deed == "accept":
        await access.memories.profile_accept(key)
    elif deed == "reject":
        await access.memories.profile_reject(key)
    elif deed == "forget":
        await access.memories.profile_forget(key)
    else:
        await access.memories.profile_pin(key, pinned=deed == "pin")
    return goto(f"{base(access)}/profile")


_DONE: tuple[TaskStatus, ...] = ("completed", "cancelled")
_WEEK = 7
_PRIORITIES = ("high", "normal", "low")


@router.get("/tasks")
async def show_tasks(request: Request, access: AccessHere, *, done: bool = False) -> Response:
    """List open or completed tasks."""
    tasks = await access.memories.tasks(statuses=_DONE if done else OPEN)
    groups = [("", tasks)] if done and tasks else _by_date(tasks, utc_now().astimezone().date())
    return sheet(request, "tasks.html", access, here="tasks", groups=groups, done=done, priorities=_PRIORITIES)


def _by_date(tasks: Sequence[Task], today: date) -> list[tuple[str, list[Task]]]:
    """Group tasks by when they are due; groups without tasks are left out, and so is the name of a single one."""
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


@router.post("/tasks")
async def add_task(access: AccessHere, fields: Fields) -> Response:
    """Add a task."""
    title = fields.get("title", "").strip()
    if not title:
        raise InvalidValue("the task is empty")
    due, priority = fields.get("due", ""), fields.get("priority", "normal")
    await access.memories.add_task(title, due=due, priority=priority)  # type: ignore[arg-type]  # it is checked there
    return goto(f"{base(access)}/tasks")


@router.post("/tasks/{task_id}")
async def change_task(access: AccessHere, task_id: Annotated[str, Path(max_length=100)], fields: Fields) -> Response:
    """Complete or reopen a task."""
    await access.memories.update_task(task_id, status=fields.get("status", ""))
    return goto(f"{base(access)}/tasks{'?done=1' if fields.get('status') == 'pending' else ''}")
