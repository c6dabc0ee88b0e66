"""Operations of callers on memories, on files and in memory alike."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from chatbot.errors import SessionNotFound
from chatbot.memory import Memory, MemorySystem
from chatbot.memory.people import ALIAS, OPEN
from chatbot.memory.scope import PUBLIC, Caller, MemoryEvent, SystemOptions, new_id
from chatbot.memory.writing import STARTUP, Draft
from chatbot.messages import TaskStatus
from chatbot.stores.access import CLEARANCES, SENSITIVITIES, VISIBILITIES, Clearance
from chatbot.stores.errors import (
    AccessDenied,
    ConflictingChange,
    InvalidValue,
    StoreError,
    UnknownObservation,
)
from chatbot.stores.observation import STATUSES
from chatbot.stores.row_events import Event
from tests.clock import Clock
from tests.patience import PATIENCE_S

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
TOKEN = "ghp_" + "".join("aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zC2eF4"[:36])
ALL = SENSITIVITIES
UNKNOWN = "01900000-0000-7000-8000-00000000ffff"


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW, step=timedelta(seconds=1))


async def test_a_repeat_keeps_the_higher_importance_that_it_was_given(memory: MemorySystem) -> None:
    memories = memory.memory("chat")
    for importance, kept in ((0.2, 0.2), (0.5, 0.2), (0.9, 0.9), (0.6, 0.9)):  # 0.5 is what nobody gave
        added = await memories.remember("The boiler is by the stairs", importance=importance)
        [row] = await memories.get([added.id], count_use=False)
        assert row.importance == kept


def open_memory(home: Path | None, clock: Clock, cache: Path, **given: Any) -> MemorySystem:
    return MemorySystem(home, clock=clock, settings={"observations": {"cache": str(cache)}}, **given)


@pytest.fixture(params=["files", "in memory"])
async def memory(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[MemorySystem]:
    home = tmp_path / "memory" if request.param == "files" else None
    async with open_memory(home, clock, tmp_path / "cache") as opened:
        yield opened


@pytest.fixture
def memories(memory: MemorySystem) -> Memory:
    return memory.memory()


def cleared(memories: Memory, clearance: Clearance) -> Memory:
    return Memory(replace(memories.scope, caller=memories.scope.caller.narrowed(clearance)))


async def counters(memories: Memory) -> list[tuple[str, int, int, int]]:
    rows = (await memories.list_observations(limit=1000, statuses=STATUSES, sensitivities=ALL)).rows
    return [(row.title, row.use_count, row.mention_count, row.confirmed_count) for row in rows]


async def test_every_write_tells_what_became_of_it(memories: Memory) -> None:
    added = await memories.remember("Ada drinks tea", tags=["a"])
    assert (added.outcome, added.reason, added.redacted, added.warning) == ("added", "", (), "")
    again = await memories.remember("ada  DRINKS tea", tags=["b"])
    assert (again.outcome, again.id) == ("exact_dup", added.id)
    assert "other fields stay" in again.reason
    updated = await memories.update(added.id, subtitle="green")
    assert (updated.outcome, updated.id) == ("updated", added.id)
    same = await memories.update(added.id, subtitle="green")
    assert (same.outcome, same.reason) == ("skipped", "nothing changed")
    [refused, kept] = await memories.remember_all([Draft(), Draft(title="b")], keep_going=True)
    assert (refused.outcome, kept.outcome) == ("skipped", "added")
    assert "needs a title" in refused.reason
    [row] = await memories.get([added.id])
    assert (row.tags, row.mention_count, row.subtitle) == (("a", "b"), 1, "green")


async def test_one_refused_draft_stops_all_unless_asked_to_go_on(memories: Memory) -> None:
    with pytest.raises(InvalidValue):
        await memories.remember_all([Draft(title="a"), Draft()])
    assert await counters(memories) == []
    drafts = [Draft(title=f"t {number}" if number % 2 else "") for number in range(1200)]
    outcomes = [each.outcome for each in await memories.remember_all(drafts, keep_going=True)]
    assert outcomes == ["skipped", "added"] * 600


async def test_what_was_changed_is_told_although_another_change_was_refused() -> None:
    told: list[MemoryEvent] = []
    async with MemorySystem(None, options=SystemOptions(on_event=told.append)) as memory:
        memories = memory.memory()
        with pytest.raises(UnknownObservation):
            await memories.remember_all([Draft(title="a"), Draft(title="b", supersedes="missing")])
        [row] = await memories.every()
        at, both = memories.scope.clock(), (row.id, new_id())
        confirm, lost = [Event(kind="confirm", at=at, ids=(each,)) for each in both]
        with pytest.raises(UnknownObservation):
            await memories.scope.commit(lost, confirm)
    assert [(each.operation, each.ids) for each in told] == [("remember", (row.id,)), ("confirm", (row.id,))]


async def test_an_unknown_type_is_kept_as_a_note_and_told(memories: Memory) -> None:
    kinds: list[Any] = ["poem", ["note"], 5, None]
    for kind in kinds:
        kept = await memories.remember(f"t {kind}", type=kind)
        assert "is not a known type, kept as a note: " in kept.warning
        assert [row.type for row in await memories.get([kept.id])] == ["note"]
    with pytest.raises(InvalidValue, match="did you mean 'title'"):
        await memories.remember(titel="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"remember\(title, \*, …\): the arguments after \* need names"):
        await memories.remember("x", "y")  # type: ignore[arg-type, call-arg]


@pytest.mark.parametrize(
    "given",
    [
        {"created_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is what is wrong with it
        {"facts": 5}, {"importance": True}, {"metadata": []}, {"expires_at": 5}, {"derived_from": "x"},
        {"narrative": "api_key " * 1_000_000}, {"title": "\ud800"}, {"supersedes": 5}, {"visibility": "all"},
        {"files_read": {"a": 1}.items()},
    ],
)  # fmt: skip
async def test_an_impossible_draft_is_a_store_error_and_leaves_nothing(memories: Memory, given: dict[str, Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(StoreError):
            await memories.remember(**{"title": "t"} | given)
        [skipped] = await memories.remember_all([Draft(**{"title": "t"} | given)], keep_going=True)
    assert skipped.outcome == "skipped"
    assert await counters(memories) == []


async def test_an_update_sets_what_is_named_and_nothing_else(memories: Memory) -> None:
    kept = await memories.remember("tea", metadata={"a": 1, "b": 2}, tags=["x"])
    soon = NOW + timedelta(days=1)
    await memories.update(kept.id, metadata={"b": None, "c": 3}, expires_at=soon, narrative="long " * 100)
    [row] = await memories.get([kept.id])
    assert (row.metadata, row.expires_at, row.tags, row.title) == ({"a": 1, "c": 3}, soon, ("x",), "tea")
    assert row.token_count > 100
    assert ("'tags': ['x']" in repr(row), "use_count" in repr(row)) == (True, False)
    await memories.update(kept.id, expires_at=None, token_count=7)
    [row] = await memories.get([kept.id])
    assert (row.expires_at, row.token_count) == (None, 7)
    for fixed in ({"created_at": NOW}, {"supersedes": UNKNOWN}, {"colour": "red"}, {"tags": "x"}):
        with pytest.raises(InvalidValue):
            await memories.update(kept.id, **fixed)
    with pytest.raises(UnknownObservation):
        await memories.update(UNKNOWN, title="x")
    await memories.forget(kept.id)
    with pytest.raises(ConflictingChange, match="restore it first"):
        await memories.update(kept.id, title="x")


SECRET_DRAFTS: dict[str, dict[str, Any]] = {
    "title": {"title": f"key {TOKEN}"}, "subtitle": {"subtitle": TOKEN}, "narrative": {"narrative": f"a\n{TOKEN}\nb"},
    "facts": {"facts": [f"the key is {TOKEN}"]}, "facts that are a set": {"facts": {f"the key is {TOKEN}"}},
    "facts that are made one by one": {"facts": (each for each in [TOKEN])}, "tags": {"tags": [TOKEN]},
    "tags that are a set": {"tags": frozenset({TOKEN})}, "concepts": {"concepts": (TOKEN,)},
    "people": {"people": [TOKEN]}, "subject": {"subject": TOKEN}, "category": {"category": TOKEN},
    "project": {"project": TOKEN}, "source": {"source": TOKEN},
    "files": {"files_read": [f"/a/{TOKEN}"], "files_modified": [f"/b/{TOKEN}"]}, "user text": {"user_text": TOKEN},
    "assistant text": {"assistant_text": TOKEN}, "metadata": {"metadata": {"a": [{"b": (TOKEN,)}]}},
    "a key of the metadata": {"metadata": {TOKEN: 1}}, "a url": {"narrative": "postgres://ada:hunter2secret@host/db"},
    "a password": {"narrative": "password: hunter2secret"},
    "a password, nested": {"narrative": '{"password": {"v": "hunter2secret"}}'},
    "a password by its key": {"metadata": {"pass\u200bｗord": "hunter2secret"}},
    "a password below its key": {"metadata": {"login": {"password": {"v": ["hunter2secret"]}}}},
    "among invisible characters": {"title": f"{TOKEN[:10]}\u200e{TOKEN[10:20]}\x00{TOKEN[20:]}"},
    "among more of them": {"tags": [f"{TOKEN[:10]}\u202e{TOKEN[10:]}"]}, "a type": {"type": TOKEN},
}  # fmt: skip


async def test_no_secret_reaches_the_disk_and_the_caller_is_told(tmp_path: Path, clock: Clock) -> None:
    async with open_memory(tmp_path / "memory", clock, tmp_path / "cache") as memory:
        memories = memory.memory()
        for where, draft in SECRET_DRAFTS.items():
            kept = await memories.remember(**{"title": where} | draft)
            assert kept.redacted or where == "a type", where
            other = await memories.remember(f"other than {where}")
            if where not in {"facts that are made one by one", "a type"}:
                assert (await memories.update(other.id, **draft)).redacted, where
        await memories.search("key")
        await memories.reindex()
    for path in tmp_path.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert TOKEN.encode() not in data, path
        assert b"hunter2secret" not in data, path
    assert (tmp_path / "memory" / "observations.jsonl").read_bytes().count(b"[redacted: ") > len(SECRET_DRAFTS)


async def test_no_other_way_of_writing_lets_a_secret_through(tmp_path: Path, clock: Clock) -> None:
    async with open_memory(tmp_path / "memory", clock, tmp_path / "cache") as memory:
        await memory.memory().store_fact(TOKEN, f"is {TOKEN}", TOKEN)
        await memory.memory().add_alias("Ada", TOKEN)
        task = await memory.memory().add_task(f"use {TOKEN}", note=TOKEN, due=TOKEN, project=TOKEN)
        await memory.memory().update_task(task.id, note=f"or {TOKEN}")
        session = await memory.create_session(["observations"], "chat")
        said = "x" * 150 + f" {TOKEN} " + "y" * 50
        told = await session.memory.summarize_session(said, TOKEN, decisions=[TOKEN], open_items=(TOKEN,))
        assert told.redacted
        await session.memory.summarize_session("x" * 170 + f" {TOKEN}", TOKEN)
    data = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert TOKEN.encode() not in data
    assert TOKEN[:20].encode() not in data


async def test_only_real_uses_count(memories: Memory) -> None:
    first = await memories.remember("tea black", people=["Ada"])
    await memories.remember("tea green")
    before = await counters(memories)
    await memories.list_observations()
    await memories.timeline(first.id)
    await memories.history(first.id)
    await memories.stats()
    await memories.people()
    await memories.tasks()
    await memories.resolve(first.id)
    await memories.search("tea", count_use=False)
    await memories.recall("tea")
    await memories.search(count_use=False)
    await memories.get([first.id], count_use=False)
    assert await counters(memories) == before
    updated = [row.updated_at for row in (await memories.list_observations()).rows]
    await memories.search("black")
    await memories.get([first.id])
    await memories.confirm(first.id)
    assert await counters(memories) == [("tea green", 0, 0, 0), ("tea black", 2, 0, 1)]
    assert [row.updated_at for row in (await memories.list_observations()).rows] == updated


async def test_the_least_of_three_clearances_holds(tmp_path: Path, clock: Clock) -> None:
    home, cache = tmp_path / "memory", tmp_path / "cache"
    async with open_memory(home, clock, cache) as memory:
        for visibility in VISIBILITIES:
            await memory.memory().remember(visibility, visibility=visibility)
    for system in CLEARANCES:
        async with open_memory(home, clock, cache, caller=Caller(clearance=system)) as memory:
            for made in CLEARANCES:
                session = await memory.cleared_for(made).create_session(["observations"], "chat")
                least = max(CLEARANCES.index(system), CLEARANCES.index(made))
                forked = (await memory.fork_session(session.id)).memory
                assert await _titles(forked) == set(VISIBILITIES[least:])
                for asked in CLEARANCES:
                    if not session.record.is_open_to(asked):
                        with pytest.raises(SessionNotFound):
                            await memory.cleared_for(asked).load_session(session.id, "chat")
                        continue
                    loaded = (await memory.cleared_for(asked).load_session(session.id, "chat")).memory
                    assert await _titles(loaded) == await _titles(cleared(loaded, "full")) == set(VISIBILITIES[least:])
                    assert await _titles(cleared(loaded, "familiar")) == set(VISIBILITIES[max(least, 2) :])


async def _titles(memories: Memory) -> set[str]:
    return {hit.observation.title for hit in await memories.search(count_use=False)}


async def test_where_a_callers_words_belong_follows_from_their_clearance(memories: Memory) -> None:
    for clearance, visibility in (("full", "private"), ("inner", "shared"), ("familiar", "social")):
        kept = await cleared(memories, clearance).remember(clearance)  # type: ignore[arg-type]
        [row] = await memories.get([kept.id])
        assert row.visibility == visibility
    for refused in (
        cleared(memories, "public").remember("x"),
        cleared(memories, "inner").remember("x", sensitivity="secret"),
        cleared(memories, "familiar").store_fact("a", "b", "c", visibility="private"),
    ):
        with pytest.raises(AccessDenied):
            await refused


async def test_what_would_be_gone_as_it_comes_is_refused(memories: Memory, clock: Clock) -> None:
    kept = await memories.remember("kept", expires_at=clock.now + timedelta(minutes=1))
    pasts: list[Any] = [NOW, NOW - timedelta(days=9), "2020-01-01T00:00:00Z"]
    for past in pasts:
        with pytest.raises(InvalidValue, match=r"the expiry time 20.* is in the past: give a future time"):
            await memories.update(kept.id, expires_at=past)
        with pytest.raises(InvalidValue, match="is in the past"):
            await memories.remember("gone", expires_at=past if isinstance(past, datetime) else NOW)
    assert [row.title for row in await memories.every(statuses=STATUSES)] == ["kept"]
    await memories.update(kept.id, expires_at=None)


async def test_each_guard_of_supersession_is_kept(memories: Memory, clock: Clock) -> None:
    old = (await memories.remember("old", metadata={"kind": "a"})).id
    new = (await memories.remember("new", metadata={"kind": "a", "other": 1})).id
    conflicting = (await memories.remember("conflicting", metadata={"kind": "b"})).id
    social = (await memories.remember("social", visibility="social")).id
    gone = (await memories.remember("gone")).id
    past = (await memories.remember("past", expires_at=clock.now + timedelta(minutes=1))).id
    clock.move(minutes=2)
    await memories.forget(gone)
    for first, second, error in (
        (old, old, "itself"), (old, conflicting, "differ in 'kind'"), (old, social, "must have the same visibility"),
        (old, gone, "deleted"), (gone, new, "deleted"), (old, past, "expired"), (past, new, "expired"),
    ):  # fmt: skip
        with pytest.raises(ConflictingChange, match=error):
            await memories.supersede(first, second)
    for first, second in ((UNKNOWN, new), (old, UNKNOWN)):
        with pytest.raises(UnknownObservation):
            await memories.supersede(first, second)
    await memories.supersede(old, new)
    with pytest.raises(ConflictingChange, match="superseded"):
        await memories.supersede(old, new)
    for refused in (memories.supersede(new, old), memories.remember("newer", supersedes=old)):
        with pytest.raises(ConflictingChange):
            await refused
    with pytest.raises(ConflictingChange, match=r"^the new memory and "):  # not by an id that is nowhere
        await memories.remember("newer", supersedes=new, visibility="social")
    await memories.restore(old)
    await memories.supersede(new, old)
    assert [each.observation.id for each in await memories.history(old)] == [new, old]


async def test_the_timeline_is_what_was_remembered_around_a_moment(memories: Memory, clock: Clock) -> None:
    ids = [(await memories.remember(f"t {number}")).id for number in range(9)]
    found = await memories.timeline(ids[4], before=2, after=3)
    assert [row.id for row in found] == ids[2:8]
    assert [row.id for row in await memories.timeline(ids[0], before=5, after=0)] == ids[:1]
    await memories.forget(ids[3])
    assert [row.id for row in await memories.timeline(ids[4], before=2, after=0)] == [ids[1], ids[2], ids[4]]
    await memories.supersede(ids[6], ids[8])
    assert [row.id for row in await memories.timeline(ids[6], before=1, after=1)] == ids[5:8]
    past = await memories.remember("past", expires_at=clock.now + timedelta(minutes=1))
    clock.move(minutes=2)
    for each in (UNKNOWN, ids[3], past.id):
        with pytest.raises(UnknownObservation):
            await memories.timeline(each)
    with pytest.raises(InvalidValue):
        await memories.timeline(ids[4], before=-1)


async def test_every_filter_finds_what_it_names(memories: Memory) -> None:
    kept = await memories.remember(
        "wanted", type="decision", project="P", subject="S", category="C", tags=["T"], concepts=["K"],
        people=["Ada"], files_read=["A.py"], metadata={"m": 1}, importance=0.9,
    )  # fmt: skip
    other = await memories.remember("other")
    for wanted in (
        {"types": "decision"}, {"types": ["decision", "task"]}, {"types": {"decision"}}, {"project": "p"},
        {"subject": "s"}, {"category": "c"}, {"tags": "t"}, {"tags": ("T",)}, {"tags": {"t"}}, {"concepts": ["k"]},
        {"people": "ada"}, {"files": "a.py"}, {"metadata": {"m": 1}}, {"min_importance": 0.9},
        {"before": NOW + timedelta(seconds=2, microseconds=1)},
    ):  # fmt: skip
        asked: dict[str, Any] = wanted
        for found in (await memories.search("wanted", **asked), await memories.search(**asked)):
            assert [hit.observation.id for hit in found] == [kept.id], wanted
        assert [row.id for row in (await memories.list_observations(**asked)).rows] == [kept.id]
    assert [row.id for row in await memories.timeline(other.id, files="a.py")] == [kept.id, other.id]
    for wrong in (
        {"tag": "x"}, {"after": datetime(2026, 1, 1)}, {"after": "2026"}, {"project": ["P"]}, {"metadata": 5},  # noqa: DTZ001
        {"tags": 5}, {"tags": [5]}, {"min_importance": "x"}, {"agent_id": 5}, {"people": 5}, {"fading": 5},
        {"statuses": ["deleted"]},
    ):  # fmt: skip
        refused: dict[str, Any] = wrong
        with pytest.raises(InvalidValue, match=r"'tag': did you mean|has no time zone|must be|not a table|only active"):
            await memories.search("wanted", **refused)
        if refused.keys().isdisjoint({"after", "statuses"}):  # which are a page's there
            with pytest.raises(InvalidValue):
                await memories.list_observations(**refused)


async def test_a_search_ends_with_the_budget_yet_never_without_a_hit(memories: Memory) -> None:
    for number in range(5):
        await memories.remember(f"tea {number}", token_count=100)
    for budget, hits in ((0, 1), (99, 1), (250, 2), (10**9, 5), (None, 5)):
        assert len(await memories.search("tea", max_tokens=budget)) == hits
    assert len(await memories.search("tea", limit=2)) == 2
    assert len(await memories.search("tea", limit=2**70)) == 5
    for wrong in ({"limit": -1}, {"max_tokens": -1}, {"max_tokens": "9"}, {"offset": -1}):
        with pytest.raises(InvalidValue, match=f"{next(iter(wrong))} is"):
            await memories.search("tea", **wrong)


async def test_people_are_found_by_all_their_names(memories: Memory) -> None:
    await memories.remember("one", people=["Ada Lovelace"])
    await memories.remember("two", people=["Countess", "Ada Lovelace"])
    await memories.remember("three", people=["Grace"])
    await memories.add_alias("Ada Lovelace", "Countess")
    await memories.add_alias("countess", "AAL")
    await memories.store_fact("Countess", "likes", "tea")
    [ada] = await memories.people("aal")
    assert (ada.name, ada.mention_count) == ("Ada Lovelace", 3)
    assert set(ada.aliases) == {"Countess", "AAL"}
    assert [fact.object for fact in ada.facts] == ["tea"]
    assert [person.name for person in await memories.people()] == ["Ada Lovelace", "Grace"]
    assert {hit.observation.title for hit in await memories.search(people="AAL")} == {"one", "two"}
    await memories.store_fact("Grace", ALIAS, "Amazing Grace", sensitivity="private")
    for asked, found in ((PUBLIC, 0), (ALL, 1)):
        assert len(await memories.search(people="Amazing Grace", sensitivities=asked)) == found
    assert await cleared(memories, "familiar").people() == []


async def test_a_task_in_words_that_are_remembered_is_to_be_done_all_the_same(memories: Memory) -> None:
    noted = await memories.remember("Buy milk")
    task = await memories.add_task("Buy milk", priority="high")
    assert (task.id, task.status, task.priority) == (noted.id, "pending", "high")
    assert (await memories.get([task.id]))[0].type == "task"
    preference = await memories.remember("Water the roses at night", type="preference")
    await memories.add_task("Water the roses at night")
    assert (await memories.get([preference.id]))[0].type == "preference"
    assert len(await memories.tasks()) == 2


async def test_a_memory_of_the_type_task_is_a_task_and_an_edit_opens_no_closed_one(memories: Memory) -> None:
    added = await memories.remember("Buy milk", type="task", metadata={"priority": "high"})
    edited = await memories.remember("Water the roses")
    await memories.update(edited.id, type="task")
    assert [task.id for task in await memories.tasks(surface=STARTUP, scope="collaborative")] == [added.id, edited.id]
    await memories.update_task(added.id, status="completed")
    await memories.update(added.id, type="task", title="Buy oat milk")
    [done] = await memories.tasks(statuses=["completed", "completed"])
    assert (done.title, done.priority) == ("Buy oat milk", "high")


async def test_tasks_are_sorted_ticked_off_and_surface(memories: Memory) -> None:
    low = await memories.add_task("low", priority="low", surface="startup")
    late = await memories.add_task("late", due="2026-12-01", project="P", scope="user", surface="")
    soon = await memories.add_task("soon", due="2026-04-01", surface="")
    high = await memories.add_task("high", priority="high", surface="")
    assert [task.title for task in await memories.tasks()] == ["high", "soon", "late", "low"]
    for wanted, task in (({"surface": "startup"}, low), ({"project": "p"}, late), ({"scope": "user"}, late)):
        assert [each.id for each in await memories.tasks(**wanted)] == [task.id]  # type: ignore[arg-type]
    await memories.update_task(high.id, status="completed", note="done")
    assert [task.id for task in await memories.tasks(statuses=["completed"])] == [high.id]
    assert (await memories.update_task(soon.id, due="")).due == ""
    started = await memories.update_task(low.id, status="in_progress")
    assert started.details() == "low priority · in progress"
    await memories.add_task("low, too", priority="low")
    edited = await memories.update(low.id, metadata={"status": None, "scope": "mine"}, concepts=["gotcha", "mistery"])
    assert edited.warning.startswith("unknown concepts, kept as they are: mistery; ")
    assert [task.title for task in await memories.tasks(scope="collaborative")][-2:] == ["low, too", "low"]
    note = await memories.remember("no task")
    for wrong in (UNKNOWN, note.id):
        with pytest.raises(UnknownObservation):
            await memories.update_task(wrong, status="completed")
    for bad in ({"status": "lost"}, {"priority": "x"}, {"colour": "red"}, {"note": 5}):
        with pytest.raises(InvalidValue):
            await memories.update_task(low.id, **bad)
    with pytest.raises(InvalidValue, match="status is 'lost': it must be one of pending"):
        await memories.tasks(statuses=["lost"])  # type: ignore[list-item]


async def test_a_fact_is_as_strict_as_its_source_and_lives_as_long(memories: Memory) -> None:
    source = await memories.remember("tea", sensitivity="private")
    stated = await memories.store_fact("Ada", "drinks", "tea", confidence=0.4, source=source.id, visibility="social")
    assert (stated.visibility, stated.sensitivity, stated.confidence) == ("private", "private", 0.4)
    assert await memories.query_facts(subject="ADA") == []
    assert await memories.query_facts(subject="ADA", sensitivities=ALL) == [stated]
    assert await memories.query_facts(min_confidence=0.5, sensitivities=ALL) == []
    await memories.forget(source.id)
    assert await memories.query_facts(sensitivities=ALL) == []
    await memories.restore(source.id)
    assert await memories.query_facts(source=source.id, sensitivities=ALL) == [stated]
    await memories.update(source.id, sensitivity="secret")
    again = await memories.store_fact("ADA", "drinks", "Tea", source=source.id)
    assert (again.id, again.count, again.sensitivity) == (stated.id, 2, "secret")
    await memories.retract_fact(stated.id)
    assert await memories.query_facts(sensitivities=ALL) == []
    for refused in (memories.retract_fact(stated.id), memories.store_fact("a", "b", "c", source=UNKNOWN)):
        with pytest.raises(UnknownObservation):
            await refused
    for wrong in ({"confidence": float("nan")}, {"confidence": True}, {"source": "x"}, {"visibility": "all"}):
        given: dict[str, Any] = wrong
        with pytest.raises(StoreError):
            await memories.store_fact("a", "b", "c", **given)
    for odd in ({"colour": "red"}, {"subject": ["Ada"]}, {"min_confidence": "much"}):
        with pytest.raises(InvalidValue):
            await memories.query_facts(**odd)


async def test_a_summary_is_as_strict_as_the_strictest_thing_said(tmp_path: Path, clock: Clock) -> None:
    async with open_memory(tmp_path / "memory", clock, tmp_path / "cache") as memory:
        session = await memory.create_session(["observations"], "chat")
        await session.memory.remember("a", visibility="social")
        first = await session.memory.summarize_session("tea", "drunk", decisions=["green"], open_items=["cups"])
        [summary] = await memory.memory().session_summaries()
        assert (summary.id, summary.facts) == (first.id, ("Decided: green", "Open: cups"))
        await session.memory.remember("b", visibility="private", sensitivity="secret", min_clearance="inner")
        again = await session.memory.summarize_session("tea", "spilt")
        assert (again.id, again.outcome) == (first.id, "updated")
        assert await memory.memory().session_summaries() == []
        [summary] = await memory.memory().session_summaries(session_id=session.id, sensitivities=ALL)
        assert (summary.visibility, summary.sensitivity, summary.min_clearance) == ("private", "secret", "inner")
        assert len(summary.derived_from) == 2
        assert await cleared(memory.memory(), "inner").session_summaries(sensitivities=ALL) == []
        other = await memory.create_session(["observations"], "chat")
        assert (await other.memory.summarize_session("tea", "spilt")).outcome == "added", "it is another session's"
        third = await memory.create_session(["observations"], "chat")
        async with open_memory(tmp_path / "memory", clock, tmp_path / "cache") as elsewhere:
            both = third.memory, (await elsewhere.load_session(third.id, "chat")).memory
            await asyncio.gather(*(each.summarize_session("tea", said) for each, said in zip(both, "ab", strict=True)))
        assert len(await memory.memory().session_summaries(session_id=third.id)) == 1
        with pytest.raises(InvalidValue):
            await memory.memory().summarize_session("no session")
        await memory.memory().purge(summary.derived_from[0])
        assert await memory.memory().session_summaries(session_id=session.id, sensitivities=ALL) == []


async def test_what_is_forgotten_or_archived_comes_back_when_restored(memories: Memory) -> None:
    row = await memories.remember("tea")
    with pytest.raises(UnknownObservation, match=UNKNOWN):
        await memories.forget(row.id, UNKNOWN)
    assert len(await memories.search("tea")) == 1, "all or none"
    archive = partial(memories.scope.change, "archive")
    for put_away, status in ((memories.forget, "deleted"), (archive, "archived")):
        await put_away(row.id)
        with pytest.raises(ConflictingChange, match=f"{row.id} is {status}: restore it first"):
            await memories.confirm(row.id)
        assert await memories.search("tea") == []
        assert (await memories.stats()).by_status == {status: 1}
        await memories.restore(row.id)
        assert len(await memories.search("tea")) == 1
    assert await memories.purge(row.id) == [row.id]
    with pytest.raises(UnknownObservation):
        await memories.restore(row.id)
    assert (await memories.remember("tea")).outcome == "added"


async def test_what_replaces_another_is_a_line_that_a_kill_leaves_whole_or_absent(tmp_path: Path, clock: Clock) -> None:
    async with open_memory(tmp_path / "memory", clock, tmp_path / "cache") as memory:
        memories = memory.memory("chat")
        old, wrong = [(await memories.remember(title)).id for title in ("old", "wrong")]
        await memories.remember_all([Draft(title="new", supersedes=old), Draft(title="right", forgets=wrong)])
        assert [row.title for row in await memories.every()] == ["right", "new"]
    lines = [*map(json.loads, (tmp_path / "memory" / "observations.jsonl").read_bytes().splitlines())]
    added = [("add", old, None), ("add", None, wrong)]
    assert [(line["event"], line.get("supersedes"), line.get("forgets")) for line in lines[2:]] == added
    assert {line["who"] for line in lines} == {"chat"}


async def test_uncounted_readers_get_answers(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with open_memory(tmp_path / "memory", clock, tmp_path / "cache") as memory:
        await memory.memory().remember("tea")
        lock = tmp_path / "memory" / ".observations.lock"
        lock.unlink()
        lock.symlink_to(tmp_path / "elsewhere")
        assert len(await memory.memory().search("tea")) == 1
        assert "were not counted" in caplog.text


@pytest.mark.parametrize("closed", [each for each in get_args(TaskStatus) if each not in OPEN])
async def test_a_closed_task_surfaces_no_more_until_it_is_opened_again(memories: Memory, closed: str) -> None:
    task = await memories.add_task("Prune the roses", surface=STARTUP)
    assert (await memories.update_task(task.id, status=closed, surface=STARTUP)).surface == ""
    assert "surface" not in (await memories.get([task.id]))[0].metadata
    assert await memories.tasks(surface=STARTUP) == []
    assert (await memories.update_task(task.id, note="half done")).surface == ""
    assert (await memories.update_task(task.id, status="pending")).surface == STARTUP
    assert (await memories.get([task.id]))[0].metadata["surface"] == STARTUP
    await memories.update_task(task.id, status=closed)
    assert (await memories.add_task("prune the ROSES")).surface == STARTUP


@pytest.mark.parametrize(
    "again", [{"due": "2027-01-01", "note": "gloves", "surface": ""}, {"priority": "low", "scope": "user"}, {}]
)
async def test_an_open_task_that_is_added_again_takes_the_new_details_and_keeps_the_others(
    memories: Memory, again: dict[str, Any]
) -> None:
    first: dict[str, Any] = {"due": "2026-12-01", "priority": "high", "project": "House", "note": "before frost"}
    task = await memories.add_task("Prune the roses", **first)
    await memories.update_task(task.id, status="in_progress")
    second = await memories.add_task("prune the roses", **again)
    expected = {"status": "in_progress", "surface": STARTUP, "scope": "collaborative", **first, **again}
    assert {name: getattr(second, name) for name in expected} == expected
    assert (second.id, len(await memories.tasks())) == (task.id, 1)


async def test_a_closed_task_that_is_added_again_has_only_what_is_said_now(memories: Memory) -> None:
    task = await memories.add_task("Prune the roses", due="2026-12-01", priority="high", note="before frost")
    await memories.update_task(task.id, status="completed")
    again = await memories.add_task("Prune the roses", due="2027-12-01")
    details = again.id, again.status, again.due, again.priority, again.note
    assert details == (task.id, "pending", "2027-12-01", "normal", "")
