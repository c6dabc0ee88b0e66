"""Whoever asks for everything gets everything: no operation cuts its answer without saying so in its type."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.memory import Memory
from chatbot.memory.profile import PROPOSED
from chatbot.memory.reading import DEFAULT_LIMIT
from chatbot.memory.scope import SystemOptions
from chatbot.memory.writing import Draft
from chatbot.stores.access import View
from chatbot.stores.base import TranscriptStore
from chatbot.stores.in_memory import InMemoryStore
from chatbot.stores.observation import LINE, PROFILE
from chatbot.stores.query import MOST_AT_ONCE, Filter, Page
from chatbot.stores.records import TranscriptEntry
from chatbot.stores.row_events import HELD

NOW = datetime(2026, 3, 4, tzinfo=UTC)
ROWS = 1_205
STORES = ("basic_session", "observations")
TASK = {"kind": "task", "status": "pending", "surface": "startup"}


@pytest.fixture(params=["memory", "disk"])
async def session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionHandle]:
    """A session of which 1,205 of everything tell: tasks, exchanges, people, facts and entries."""
    home = tmp_path
    settings: dict[str, dict[str, Any]] = {
        "observations": {"cache": str(home / "cache")},
        "basic_session": {"transcript_cap": 100},
    }
    on_disk = request.param == "disk"
    stores = STORES if on_disk else ("in_memory",)
    async with MemorySystem(home / "memory" if on_disk else None, settings=settings if on_disk else {}) as memory:
        session = await memory.create_session(stores, "chat")
        await session.transcript_extend(
            [TranscriptEntry("user", str(number), NOW + timedelta(seconds=number)) for number in range(ROWS)]
        )
        await session.memory.remember_all(
            [Draft(title=f"zebra {number}", people=[f"person {number}"], metadata=TASK) for number in range(ROWS)]
        )
        await session.memory.remember_all(
            [Draft(title=f"sum {number}", type="session_summary", subject="s") for number in range(ROWS)]
        )
        await session.memory.remember("the last")
        for number in range(MOST_AT_ONCE + 5):
            await session.memory.store_fact("person 0", "knows", str(number))
        yield session


COUNTED: dict[str, Callable[[SessionHandle], Awaitable[Any]]] = {
    "tasks": lambda session: session.memory.tasks(),
    "search": lambda session: session.memory.search("zebra", limit=5_000, count_use=False),
    "people": lambda session: session.memory.people(),
    "transcript_read_last": lambda session: session.transcript_read_last(2_000),
    "session_summaries": lambda session: session.memory.session_summaries(limit=5_000),
}


@pytest.mark.nightly
async def test_lists_are_whole_or_as_long_as_they_are_asked_to_be(session: SessionHandle) -> None:
    for name, operation in COUNTED.items():
        assert len(await operation(session)) == ROWS, name
    rows = await session.memory.every()
    assert len(rows) == 2 * ROWS + 1
    assert len(await session.memory.search(limit=5_000, count_use=False)) == len(rows)
    assert len(await session.memory.timeline(rows[0].id, before=5_000, after=0)) == len(rows)
    assert len(await session.memory.query_facts(limit=5_000)) == MOST_AT_ONCE + 5
    [person] = await session.memory.people("person 0")
    assert len(person.facts) == MOST_AT_ONCE + 5
    assert len((await session.memory.preview_purge(session=session.id)).observations) == len(rows)
    page = await session.memory.list_observations(limit=5_000)
    assert (len(page.rows), page.after is not None) == (MOST_AT_ONCE, True)  # the type says where the rest is


class Erasing(InMemoryStore):
    """Erases the last row of the first page before the second one is read."""

    has_erased = False

    async def find(self, view: View, wanted: Filter, **options: Any) -> Page:
        page = await super().find(view, wanted, **options)
        if page.after is not None and not self.has_erased:
            self.has_erased = bool(await self.purge(view, [page.after]))
        return page


async def test_a_row_that_is_erased_between_two_pages_is_left_out_and_no_other() -> None:
    async with MemorySystem(None, options=SystemOptions(observations=f"{__name__}:Erasing")) as memory:
        await memory.memory().remember_all([Draft(title=f"zebra {number}") for number in range(ROWS)])
        assert len(await memory.memory().every()) == ROWS - 1


PROFILE_READS: dict[str, Callable[[SessionHandle], Awaitable[Any]]] = {
    "profile": lambda session: session.memory.profile(),
    "profile_for": lambda session: session.memory.profile_for("Which languages do I speak?"),
    "profile_proposals": lambda session: session.memory.profile_proposals(),
    "profile_history": lambda session: session.memory.profile_history("speaks"),
    "profile_pin": lambda session: session.memory.profile_pin("speaks"),
    "profile_forget": lambda session: session.memory.profile_forget("speaks"),
}


@pytest.mark.nightly
async def test_a_profile_is_whole_however_long_it_is() -> None:
    async with MemorySystem(None) as memory:
        session = await memory.create_session(("in_memory",), "chat")
        for kind in (LINE, PROPOSED):
            held = [
                {"kind": kind, "line": "speaks", HELD: {"value": f"language {number}", "also": True}}
                for number in range(ROWS)
            ]
            await session.memory.remember_all(
                [Draft(title=f"{kind} {each[HELD]}", category=PROFILE, metadata=each) for each in held]
            )
        for name, operation in PROFILE_READS.items():
            assert len(await operation(session)) == ROWS, name
        assert await session.memory.profile() == []


async def test_a_transcript_is_cleared_whole(tmp_path: Path) -> None:
    async with MemorySystem(tmp_path, settings={"basic_session": {"transcript_cap": 5}}) as memory:
        session = await memory.create_session(["basic_session"], "chat")
        await session.transcript_extend([TranscriptEntry("user", f"canary {number}", NOW) for number in range(20)])
        await session.kv_set("episode_summary", "canary in short")
        assert await session.transcript_clear() == 20
        assert await session.transcript_read_all() == await session.transcript_read_last(9) == []
        assert await session.transcript_clear() == 0
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
        await session.transcript_append("user", "again")
        assert [entry.content for entry in await session.transcript_read_all()] == ["again"]


def test_every_operation_that_returns_a_list_without_a_limit_is_counted_here() -> None:
    unlimited = {
        name
        for kind in (Memory, TranscriptStore)
        for name, operation in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if str(inspect.signature(operation).return_annotation).startswith("list[") and not name.startswith("_")
    }
    as_many_as_given = {"get", "remember_all", "purge", "search_batch", "nearest", "history"}
    as_many_as_given |= {"profile_learn", "standing", "transcript_counts", "transcript_stamps", "transcripts_read_all"}
    assert inspect.signature(Memory.search).parameters["limit"].default == DEFAULT_LIMIT
    counted = {*COUNTED, *PROFILE_READS, "every", "timeline", "query_facts"}
    of_files = {"examine"}  # of a store: a flaw for each file, which says how many lines are damaged
    taken_back = {"transcript_read_all", "transcript_drop_last"}
    assert unlimited == counted | as_many_as_given | taken_back | of_files
