"""Tasks: what is told of them, when they surface, and what a second mention changes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest

from chatbot.memory import MemorySystem
from chatbot.memory.memory import Memory
from chatbot.memory.people import OPEN, STARTUP
from chatbot.messages import TaskStatus


@pytest.fixture
async def memory(memory_home: Path) -> AsyncIterator[Memory]:
    async with MemorySystem(memory_home) as system:
        yield system.memory("chat")


async def _surface(memory: Memory, task_id: str) -> object:
    [row] = await memory.get([task_id])
    return row.metadata.get("surface")


@pytest.mark.parametrize(
    ("given", "details"),
    [
        ({}, ""),
        ({"due": "2026-12-01"}, "due 2026-12-01"),
        ({"priority": "high"}, "high priority"),
        ({"priority": "low", "project": "Garden"}, "low priority · project Garden"),
        ({"note": "ask Ada", "due": "May"}, "due May · ask Ada"),
    ],
)
async def test_details_are_told_on_one_line(memory: Memory, given: dict[str, Any], details: str) -> None:
    task = await memory.add_task("Prune the roses", **given)
    assert task.details() == details
    started = await memory.update_task(task.id, status="in_progress")
    assert "in progress" in started.details()


@pytest.mark.parametrize(("given", "surfaces"), [({}, True), ({"surface": STARTUP}, True), ({"surface": ""}, False)])
async def test_an_open_task_surfaces_unless_told_not_to(
    memory: Memory, given: dict[str, Any], *, surfaces: bool
) -> None:
    task = await memory.add_task("Prune the roses", **given)
    assert [each.id for each in await memory.tasks(surface=STARTUP)] == [task.id] * surfaces
    started = await memory.update_task(task.id, status="in_progress")
    assert (started.surface == STARTUP) is surfaces


@pytest.mark.parametrize("closed", [each for each in get_args(TaskStatus) if each not in OPEN])
async def test_a_closed_task_surfaces_no_more_until_it_is_opened_again(memory: Memory, closed: str) -> None:
    task = await memory.add_task("Prune the roses", surface=STARTUP)
    assert (await memory.update_task(task.id, status=closed, surface=STARTUP)).surface == ""
    assert await _surface(memory, task.id) is None
    assert await memory.tasks(surface=STARTUP) == []
    assert (await memory.update_task(task.id, note="half done")).surface == ""
    assert (await memory.update_task(task.id, status="pending")).surface == STARTUP
    assert await _surface(memory, task.id) == STARTUP
    await memory.update_task(task.id, status=closed)
    assert (await memory.add_task("prune the ROSES")).surface == STARTUP


@pytest.mark.parametrize(
    ("again", "changed"),
    [
        ({"due": "2027-01-01"}, {"due": "2027-01-01"}),
        ({"priority": "low"}, {"priority": "low"}),
        ({"note": "with gloves"}, {"note": "with gloves"}),
        ({"scope": "user"}, {"scope": "user"}),
        ({"surface": ""}, {"surface": ""}),
        ({}, {}),
    ],
)
async def test_an_open_task_that_is_added_again_takes_the_new_details_and_keeps_the_others(
    memory: Memory, again: dict[str, Any], changed: dict[str, str]
) -> None:
    first: dict[str, Any] = {"due": "2026-12-01", "priority": "high", "project": "House", "note": "before frost"}
    task = await memory.add_task("Prune the roses", **first)
    await memory.update_task(task.id, status="in_progress")
    second = await memory.add_task("prune the roses", **again)
    expected = {"status": "in_progress", "surface": STARTUP, "scope": "collaborative", **first, **changed}
    assert {name: getattr(second, name) for name in expected} == expected
    assert (second.id, len(await memory.tasks())) == (task.id, 1)


async def test_a_closed_task_that_is_added_again_has_only_what_is_said_now(memory: Memory) -> None:
    task = await memory.add_task("Prune the roses", due="2026-12-01", priority="high", note="before frost")
    await memory.update_task(task.id, status="completed")
    again = await memory.add_task("Prune the roses", due="2027-12-01")
    assert (again.id, again.status, again.due, again.priority, again.note) == (
        task.id, "pending", "2027-12-01", "normal", "",
    )  # fmt: skip
