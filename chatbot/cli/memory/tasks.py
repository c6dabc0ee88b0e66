"""`chatbot memory tasks`: what is to be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import get_args

from chatbot.cli.memory.desk import Desk, redacting
from chatbot.cli.output import printable, say_table, short_ids
from chatbot.memory.tasks import OPEN, Task, TaskStatus

_STATUS_AFTER: dict[str, TaskStatus] = {"start": "in_progress", "done": "completed", "cancel": "cancelled"}


async def tasks(desk: Desk) -> None:
    """List tasks, write one down, or say how far one is."""
    if desk.args.deed is None:
        await _list(desk)
    elif desk.args.deed == "add":
        await _add(desk)
    else:
        task = await desk.memories.update_task(await desk.id(desk.args.id), status=_STATUS_AFTER[desk.args.deed])
        _tell(desk, task, task.status.replace("_", " "))


async def _list(desk: Desk) -> None:
    statuses = get_args(TaskStatus) if desk.args.all else OPEN
    found = await desk.memories.tasks(statuses=statuses, ask=desk.ask)
    desk.show_page(found, _say, asdict, nothing="there is nothing to do")


def _say(found: Sequence[Task]) -> None:
    say_table(
        ("id", "priority", "status", "due", "title"),
        [
            [short, task.priority, task.status.replace("_", " "), task.due or "–", _title(task)]
            for short, task in zip(short_ids([task.id for task in found]), found, strict=True)
        ],
    )


async def _add(desk: Desk) -> None:
    args = desk.args
    title, note, due = redacting(args.title, args.note, args.due)
    task = await desk.memories.add_task(
        title,
        scope=args.scope,
        priority=args.priority,
        surface=args.surface,
        project=args.project,
        due=due,
        note=note,
    )
    _tell(desk, task, "added")


def _tell(desk: Desk, task: Task, what: str) -> None:
    desk.tell(asdict(task), printable(f"{what}: {task.title} ({task.id})"))


def _title(task: Task) -> str:
    return f"{task.title} – {task.note}" if task.note else task.title
