"""Deleting a conversation deletes what is remembered of it, and an import does not bring back what was purged."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from chatbot.errors import SessionNotFound
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.people import ALIAS
from chatbot.memory.scope import new_id, user_namespace
from chatbot.memory.session_catalog import FAILURES
from chatbot.memory.users_and_projects import erase_user
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import InvalidValue, MissingFolder, StoreBusy, StoreError
from chatbot.stores.home import Home
from chatbot.stores.observation import STATUSES
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.postgres.schema import TABLES
from chatbot.stores.records import format_time
from chatbot.stores.row_events import KINDS, Event, Kind
from chatbot.transfer.backups import backup
from chatbot.transfer.exports import export_memories, export_session, render_memories, render_note, render_session
from chatbot.transfer.importer import Importer
from chatbot.transfer.sources import open_source
from tests.clock import Clock
from tests.effort import by_day
from tests.postgres import address, owner_url

STORES = ("basic_session", "observations")
CANARY = "hushplug"
"""Its own stem, and of eight letters: so files of the text index hold it in one piece."""


def opened(tmp_path: Path, **options: Any) -> MemorySystem:
    return MemorySystem(tmp_path / "memory", settings={"observations": {"cache": str(tmp_path / "cache")}}, **options)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[MemorySystem]:
    async with opened(tmp_path) as memory:
        yield memory


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were replaced."""
    names, rename = list[str](), os.rename

    def counted(old: str, new: str, **at: int) -> None:
        names.append(str(new))
        rename(old, new, **at)

    monkeypatch.setattr(os, "rename", counted)
    return names


async def talk(memory: MemorySystem, word: str = CANARY) -> SessionHandle:
    """A session of which rows, facts, receipts, a title and key-values tell."""
    session = await memory.create_session(STORES, "chat", title=f"{word} title")
    await session.transcript_append("user", f"{word} asked")
    await session.kv_set("episode_summary", f"{word} in short")
    await session.attach([(word.encode(), ".txt")])
    said = await session.memory.remember(f"{word} said", type="exchange", user_text=f"{word} asked", people=["Anna"])
    noted = await session.memory.remember(f"{word} noted", sensitivity="private", visibility="private")
    await session.memory.update(noted.id, title=f"{word} reworded")
    await session.memory.forget((await session.memory.remember(f"{word} forgotten")).id)
    await session.memory.remember(f"{word} without a class", sensitivity="unknown")
    await memory.memory("chat").remember(f"{word} digest", derived_from=[said.id])
    await session.memory.store_fact(f"{word} Anna", "likes", "tea")
    await session.memory.store_fact("Anna", "likes", f"{word} tea", source=said.id)
    await session.receipt_append({"at": "2026-01-01T00:00:00Z", "remembered": said.id, "memory": {"query": [word]}})
    await memory.search_sessions(word)
    await memory.memory().search(word)
    return session


def files_with(folder: Path, word: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes().lower()]


async def left(memory: MemorySystem) -> tuple[int, int]:
    """How many rows and facts there are."""
    everything = memory.memory().within(across=True)
    rows = await everything.every(sensitivities=SENSITIVITIES, statuses=STATUSES)
    return len(rows), len(await everything.query_facts(sensitivities=SENSITIVITIES))


async def test_sessions_deleted_together_rewrite_each_file_once_and_memory_can_be_kept(
    memory: MemorySystem, tmp_path: Path, renamed: list[str]
) -> None:
    kept = (await talk(memory)).id
    before = await left(memory)
    assert (await memory.delete_session(kept, keep_memory=True)).kept
    assert await left(memory) == before
    await memory.memory().purge(session=kept)
    sessions = [(await talk(memory)).id for _ in range(3)]
    fork = await memory.fork_session(sessions[0])
    await backup(tmp_path / "memory", BytesIO(), name="ada")  # which keeps the state of the sessions
    renamed.clear()
    assert (await memory.preview_delete(*sessions)).forks == (fork.id,)
    gone = await memory.delete_session(*sessions[:2], new_id(), sessions[2], fork.id)
    assert (gone.sessions, gone.forks, await left(memory)) == ((*sessions, fork.id), (), (0, 0))
    assert [renamed.count(name) for name in ("observations.jsonl", "sessions.json")] == [1, 1]
    assert files_with(tmp_path, CANARY) == []
    with pytest.raises(InvalidValue, match="name at least one session"):
        await memory.delete_session()


async def test_a_deletion_that_fails_midway_leaves_no_failures_of_hooks_of_what_it_deleted(
    memory: MemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await talk(memory), await talk(memory, "cinnamon")
    failures = memory.backend.lines(FAILURES)
    with failures.alone() as writer:
        writer.append([{"session": first.id, "message": CANARY}])
    sessions, delete = memory.backend.sessions, memory.backend.sessions.delete

    def failing(session_id: str) -> None:
        if session_id == second.id:
            raise StoreBusy(session_id)
        delete(session_id)

    monkeypatch.setattr(sessions, "delete", failing)
    with pytest.raises(StoreBusy):
        await memory.delete_session(first.id, second.id)
    assert failures.all() == []


@pytest.mark.parametrize("is_undone", [True, False])
async def test_what_failed_at_any_step_is_erased_when_it_is_done_again(
    *, is_undone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, rename = Clock()(), os.rename
    for step in range(10):
        async with opened(tmp_path / str(step)) as memory:
            session = await memory.create_session(STORES, "chat", title=CANARY)
            await session.kv_set("episode_summary", "" if is_undone else CANARY)
            said = await session.memory.remember("said", type="exchange", user_text="" if is_undone else CANARY)
            receipt = {"at": format_time(begun), "remembered": said.id, "title": CANARY}
            await session.receipt_append(receipt | {"memory": {"query": [CANARY]}})
            await memory.fork_session(session.id, title="its own" if is_undone else "")
            steps = iter(range(step))

            def failing(old: str, new: str, steps: Iterator[int] = steps, **at: int) -> None:
                if new != "kv.json":
                    rename(old, new, **at)
                if new == "kv.json" or next(steps, None) is None:
                    raise OSError("broken")

            for each in (failing, rename):
                monkeypatch.setattr(os, "rename", each)
                with suppress(StoreError):
                    await (session.take_back_turn(begun) if is_undone else memory.memory().purge(said.id))
        assert files_with(tmp_path / str(step), CANARY) == [], step


async def test_what_a_turn_writes_while_its_row_is_purged_is_erased_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as memory:
        session = await memory.create_session(STORES, "chat")
        said, purge = (
            await session.memory.remember("said", type="exchange", user_text=CANARY),
            ObservationFileStore.purge,
        )

        async def purge_late(self: ObservationFileStore, *given: Any) -> list[str]:
            await session.receipt_append({"remembered": said.id, "memory": {"query": [CANARY]}})
            return await purge(self, *given)

        monkeypatch.setattr(ObservationFileStore, "purge", purge_late)
        assert await memory.memory().purge(said.id) == [said.id]
    assert files_with(tmp_path, CANARY) == []


@pytest.mark.parametrize("keeps", [True, False])
async def test_the_time_to_live_keeps_memory_unless_it_is_told_otherwise(
    *, keeps: bool, tmp_path: Path, renamed: list[str]
) -> None:
    clock = Clock()
    async with opened(tmp_path, ttl=timedelta(days=1), clock=clock) as memory:
        sessions = {(await talk(memory)).id for _ in range(2)}
        before = await left(memory)
        clock.now += timedelta(days=2)
        renamed.clear()
        assert {*await memory.expire_sessions(keep_memory=keeps)} == sessions
        assert renamed.count("sessions.json") == 1
        assert await left(memory) == (before if keeps else (0, 0))


@pytest.mark.parametrize("engine", ["files", "postgres"])
async def test_a_deleted_session_gets_no_new_rows(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if engine == "postgres":
        request.getfixturevalue("postgres")
    home = address(tmp_path) if engine == "postgres" else tmp_path / "memory"
    async with MemorySystem(home) as memory, MemorySystem(home) as other:
        session = await memory.create_session(STORES, "chat")
        await session.memory.remember(CANARY)
        await other.delete_session(session.id)
        for write in (session.memory.remember(CANARY), session.memory.store_fact("Anna", "likes", "tea")):
            with pytest.raises(MissingFolder, match=session.id):
                await write
        assert await left(memory) == (0, 0)


async def test_forks_keep_their_copy_and_are_named(memory: MemorySystem) -> None:
    session = await talk(memory)
    fork = await memory.fork_session(session.id)
    again = await memory.fork_session(fork.id)
    await fork.memory.remember("said in the fork")
    gone = await memory.delete_session(session.id)
    assert gone.forks == (fork.id, again.id)
    assert len(await fork.transcript_read_all()) == 1
    assert await left(memory) == (1, 0)
    assert await fork.kv_get("episode_summary") is None


async def test_a_fork_of_what_is_deleted_meanwhile_is_not_made(
    memory: MemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, take_in = await talk(memory), SessionHandle.take_in

    async def deleted_first(copy: SessionHandle, *content: Any) -> None:
        await memory.delete_session(session.id)
        await take_in(copy, *content)

    monkeypatch.setattr(SessionHandle, "take_in", deleted_first)
    with pytest.raises(SessionNotFound, match=session.id):
        await memory.fork_session(session.id)
    assert await memory.list_sessions() == []


async def test_what_is_purged_can_be_named_by_person_and_source(memory: MemorySystem) -> None:
    memories = memory.memory("chat")
    await memories.remember("met Anna", people=["Anna"])
    await memories.remember("met Annie", people=["Annie"])
    await memories.store_fact("Anna", ALIAS, "Annie", sensitivity="private")
    await memories.store_fact("Bob", "knows", "Anna")
    origin = {"imported_from": "markdown", "imported_key": "/notes/a.md/k"}
    await memories.remember("a file", source="import:markdown", metadata=origin)
    await memories.remember("kept")
    going = await memories.preview_purge(person="Anna")
    assert (len(going.observations), len(going.facts)) == (2, 2)
    assert sorted(await memories.purge(person="Anna")) == sorted(going.ids)
    assert await memories.purge(person="Anna") == []
    assert len((await memories.preview_purge(source="import:markdown")).ids) == 1
    assert len(await memories.purge(source="/notes/a.md")) == 1
    assert [row.title for row in await memories.every()] == ["kept"]
    wrongs: list[dict[str, Any]] = [{}, {"person": " "}, {"person": "a", "source": "b"}]
    for wrong in wrongs:
        with pytest.raises(InvalidValue):
            await memories.purge(**wrong)


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("/my notes", ["/my notes/a.md/k"]), ("/my  notes/", ["/my notes/a.md/k"]),
        ("/my notes/a.md/k", ["/my notes/a.md/k"]), ("/my", []), ("/", []), ("\0", []), ("default", []),
        ("default/7", ["default/7"]),
    ],
)  # fmt: skip
async def test_sources_are_keys_files_or_absolute_folders(memory: MemorySystem, named: str, found: list[str]) -> None:
    for key in ("/my notes/a.md/k", "default/7"):
        origin = {"imported_from": "markdown", "imported_key": key}
        await memory.memory("chat").remember(key, source="import:markdown", metadata=origin)
    await memory.memory("chat").remember("of no import")
    going = await memory.memory("chat").preview_purge(source=named)
    assert [row.title for row in going.observations] == found


async def test_two_who_erase_the_same_at_once_are_both_told_that_it_is_gone(memory: MemorySystem) -> None:
    session = await talk(memory)
    await asyncio.gather(*(memory.memory("chat").purge(session=session.id) for _ in range(4)))
    assert not await session.memory.every(sensitivities=SENSITIVITIES, statuses=STATUSES)


async def test_an_import_brings_nothing_purged_back_unless_asked_to(memory: MemorySystem, tmp_path: Path) -> None:
    session = await talk(memory)
    rows, bundle, notes = tmp_path / "rows.jsonl", tmp_path / "all.jsonl", tmp_path / "notes"
    remembered = await export_memories(memory.memory("chat"), SENSITIVITIES)
    rows.write_text(render_memories(remembered, "jsonl"))
    bundle.write_text(render_session(await export_session(memory, session.id), "jsonl"))
    notes.mkdir()
    (notes / "all.md").write_text("\n".join(map(render_note, remembered.observations)))
    (notes / "a.md").write_text("# Anna\n\nlikes basil\n")
    await imported(memory, notes)
    await memory.memory("chat").purge(source="import:markdown")
    await memory.delete_session(session.id)
    assert await left(memory) == (0, 0)
    for path in (rows, bundle, notes):
        assert "--include-purged" in await imported(memory, path)
        assert (await left(memory), await memory.list_sessions()) == ((0, 0), [])
    stones = (tmp_path / "memory" / "tombstones.jsonl").read_text()
    assert session.id not in stones
    assert files_with(tmp_path / "memory", CANARY) == files_with(tmp_path / "cache", CANARY) == []
    for path in (rows, bundle, notes):
        await imported(memory, path, include_purged=True)
    assert len(await memory.list_sessions()) == 1
    assert (await left(memory))[0] > 3
    assert (await memory.memory("chat").remember(f"{CANARY} said")).outcome == "added"


async def test_an_erased_user_leaves_no_byte_and_comes_back_by_no_import(memory: MemorySystem, tmp_path: Path) -> None:
    alice, bob = (memory.cleared_for(namespace=user_namespace(each)) for each in ("alice", "bob"))
    session = await talk(alice)
    await talk(bob, "cinnamon")
    await alice.memory().remember(f"{CANARY} of no session")
    await alice.memory().store_fact("Anna", "grows", CANARY)
    rows, bundle = tmp_path / "rows.jsonl", tmp_path / "all.jsonl"
    rows.write_text(render_memories(await export_memories(alice.memory("chat"), SENSITIVITIES), "jsonl"))
    bundle.write_text(render_session(await export_session(alice, session.id), "jsonl"))
    erased = await erase_user(alice)
    assert (erased.memories, erased.sessions) == (9, (session.id,))
    for path in (rows, bundle):
        await imported(alice, path)
        assert await alice.list_sessions() == []
        assert await alice.memory().every(sensitivities=SENSITIVITIES, statuses=STATUSES) == []
        assert await alice.memory().query_facts(sensitivities=SENSITIVITIES) == []
        await imported(memory, path)  # nor as the owner's
        assert await memory.memory().query_facts(sensitivities=SENSITIVITIES, subject="Anna") == []
    assert files_with(tmp_path / "memory", CANARY) == files_with(tmp_path / "cache", CANARY) == []
    assert (len(await bob.list_sessions()), len(await bob.memory().every(sensitivities=SENSITIVITIES))) == (1, 3)


async def imported(memory: MemorySystem, path: Path, **options: Any) -> str:
    importer = Importer(memory, agent="chat", agents={"chat": STORES}, trust=True, **options)
    return str(await importer.run(open_source(path)))


async def test_what_goes_along_unseen_comes_back_with_no_import_either(memory: MemorySystem, tmp_path: Path) -> None:
    memories = memory.memory("chat")
    source = await memories.remember("the boat is blue", visibility="social")
    derived = await memories.remember(f"paint for {CANARY}", visibility="private", derived_from=(source.id,))
    await memories.remember(f"the tin of {CANARY}", visibility="private", derived_from=(derived.id,))
    rows = tmp_path / "rows.jsonl"
    rows.write_text(render_memories(await export_memories(memories, SENSITIVITIES), "jsonl"))
    assert await memory.cleared_for("familiar").memory().purge(source.id) == [source.id]
    assert await left(memory) == (0, 0)
    assert "--include-purged" in await imported(memory, rows)
    assert await left(memory) == (0, 0)


async def test_a_caller_erases_no_more_than_they_see(memory: MemorySystem) -> None:
    familiar = memory.cleared_for("familiar")
    session = await familiar.create_session(STORES, "chat")
    await session.memory.remember("seen")
    await memory.memory("chat", session_id=session.id).remember("the owner's")
    assert len((await familiar.preview_delete(session.id)).ids) == 1
    await familiar.delete_session(session.id)
    assert [row.title for row in await memory.memory().every()] == ["the owner's"]


async def test_expired_sessions_of_others_are_erased_and_not_named(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, ttl=timedelta(days=1), clock=clock) as memory:
        await memory.create_session(STORES, "chat", title="the owner's")
        clock.now += timedelta(days=2)
        familiar = memory.cleared_for("familiar")
        assert await familiar.expired_sessions() == []
        assert await familiar.expire_sessions() == []
        assert await memory.expired_sessions() == []


PERSON = f"{CANARY} people"
FILLED: dict[str, Any] = {
    **{name: f"{CANARY} {name}" for name in ("title", "subtitle", "subject", "narrative", "category", "user_text")},
    **{name: f"{CANARY} {name}" for name in ("assistant_text", "source")},
    **{name: [f"{CANARY} {name}"] for name in ("facts", "tags", "concepts", "people", "files_read", "files_modified")},
    "metadata": {CANARY: [CANARY]},
}
"""Every field of a row that takes text."""


def lines_in(home: Home) -> list[str]:
    """The journal, line by line."""
    if isinstance(home, Path):
        return (home / "observations.jsonl").read_text().splitlines()
    with psycopg.connect(owner_url()) as connection:
        return [line for line, in connection.execute(
            "SELECT line FROM chatbot.event WHERE identity = %s", [home.identity])]  # fmt: skip


def kept_in(home: Home, tmp_path: Path) -> list[str]:
    """Where the word stands, in lower case, in any file or column."""
    found = files_with(tmp_path, CANARY)
    if isinstance(home, Path):
        return found
    with psycopg.connect(owner_url()) as connection:
        for table in TABLES:
            rows = connection.execute(f"SELECT * FROM chatbot.{table} WHERE identity = %s".encode(), [home.identity])
            cells = [each if isinstance(each, bytes) else str(each).encode() for row in rows for each in row]
            found += [table for each in cells if CANARY.encode() in each.lower()]
    return found


async def every_kind(session: SessionHandle, clock: Clock) -> None:
    """Let every kind of event happen to rows and facts that hold the word in every field."""

    async def row(number: int, **fields: Any) -> str:
        return (await session.memory.remember(**FILLED | {"title": f"{CANARY} number {number}"} | fields)).id

    async def happens(kind: Kind, *ids: str, **fields: Any) -> None:
        scope = session.memory.scope
        event = Event(kind=kind, at=clock(), ids=ids, who=CANARY, why=CANARY, **fields)
        [outcome] = await scope.store.commit(scope.write_view(SENSITIVITIES), [event])
        assert outcome.kind != "skipped", outcome

    first = await row(0)
    await happens("use", first)
    await session.memory.purge(await row(30))  # which puts one line in the place of those that count
    await row(0, tags=[f"{CANARY} again"])
    await session.memory.update(first, narrative=f"{CANARY} otherwise")
    derived = await row(1, derived_from=[first])
    await session.memory.update(first, sensitivity="private")
    for number, sensitivity in enumerate(SENSITIVITIES, 2):
        await row(number, sensitivity=sensitivity)
    for number, kind in enumerate(("use", "confirm", "archive", "delete", "restore"), 10):
        each = await row(number)
        await session.memory.store_fact(PERSON, f"{CANARY} {kind}", CANARY, source=each)
        if kind == "restore":
            await happens("archive", each)
        await happens(cast("Kind", kind), each)
    await session.memory.supersede(await row(20), await row(21))
    scope = session.memory.scope
    [merged] = await scope.store.get(scope.write_view(SENSITIVITIES), [await row(23)])
    summary = replace(merged, id=new_id(), title=f"{CANARY} number 22", derived_from=(merged.id,))
    compressing = Event(kind="add", at=clock(), row=summary, compresses=(merged.id,), who=CANARY, why=CANARY)
    [outcome] = await scope.store.commit(scope.write_view(SENSITIVITIES), [compressing])
    assert outcome.kind == "added"
    await row(24, expires_at=clock() + timedelta(hours=1))
    for source in (None, derived, first):
        await session.memory.store_fact(PERSON, CANARY, f"{CANARY} stated", source=source)
        fact = await session.memory.store_fact(PERSON, CANARY, f"{CANARY} taken back", source=source)
        await session.memory.retract_fact(fact.id)
    clock.move(days=30)
    await happens("consolidate", first, fields={"decay_per_day": 0.1})


WAYS = [f"{engine} {way}" for engine in ("files", "postgres") for way in ("user", "session", "person", "ids")]


@pytest.mark.parametrize("way", by_day(WAYS, "files user", "files person", "postgres session", "postgres ids"))
async def test_not_a_byte_of_what_was_purged_is_left_anywhere(
    request: pytest.FixtureRequest, way: str, tmp_path: Path
) -> None:
    engine, way = way.split()
    if engine == "postgres":
        request.getfixturevalue("postgres")
    home: Home = address(tmp_path) if engine == "postgres" else tmp_path / "memory"
    clock = Clock(step=timedelta(seconds=1))
    settings = {"observations": {"cache": str(tmp_path / "cache")}} if engine == "files" else {}
    async with MemorySystem(home, settings=settings, clock=clock) as memory:
        alice = memory.cleared_for(namespace=user_namespace("alice"))
        await alice.memory().remember("stays", project="another")
        session = await alice.create_session(STORES, "chat")
        await every_kind(session, clock)
        await session.memory.reindex()
        events = [json.loads(line) for line in lines_in(home)]
        assert {each["event"] for each in events} == {*KINDS} - {"compress"}  # which comes with what replaces others
        ids = {each[what]["id"] for each in events for what in ("row", "triple") if what in each}
        [stays] = [row for row in await alice.memory().every() if row.title == "stays"]
        ids.remove(stays.id)
        if way == "user":
            assert (await erase_user(alice)).memories == len(ids) + 1
        elif way == "session":
            going, gone = await alice.preview_delete(session.id), await alice.delete_session(session.id)
            assert (set(gone.erased), gone.ids) == (ids, going.ids)
            assert len(gone.ids) == len(ids) - 1  # but one without a class, which is never shown
        else:
            gone_ids = await (alice.memory().purge(person=PERSON) if way == "person" else alice.memory().purge(*ids))
            assert set(gone_ids) == ids
        assert await alice.memory().get([stays.id]) == [stays] * (way != "user")
        assert kept_in(home, tmp_path) == []
    assert kept_in(home, tmp_path) == []  # nor in what is written at the end
