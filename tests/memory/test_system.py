"""The life of sessions through `MemorySystem` and `SessionHandle`: made, chosen, archived, forked and deleted."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chatbot.errors import AmbiguousSession, SessionExpired, SessionNotFound, WrongAgent
from chatbot.memory import MemorySystem, SessionFilter, SessionHandle
from chatbot.memory.scope import Caller, SystemOptions
from chatbot.memory.session_catalog import FAILURES
from chatbot.runtime import Runtime
from chatbot.stores.errors import DamagedFile, InvalidValue, StoreError, StoreFailed, UnsafePath, UnsupportedOperation
from chatbot.stores.on_disk.session_index import SessionIndex
from chatbot.stores.records import SessionRecord, TranscriptEntry
from chatbot.transfer.exports import export_session
from tests.clock import Clock
from tests.patience import PATIENCE_S

STORES = ["basic_session"]

ONLY_KEY_VALUES = """
from chatbot.stores import KeyValueStore

class OnlyKeyValues(KeyValueStore):
    async def kv_get(self, session, key): return "x"
    async def kv_set(self, session, entry): ...
    async def kv_delete(self, session, key): return False
    async def kv_entries(self, session): return []
    async def forget_session(self, session): ...
"""


def _files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def test_a_session_of_another_agent_is_refused_unless_asked_for(memory: MemorySystem) -> None:
    session = await memory.create_session(STORES, "chat")
    with pytest.raises(WrongAgent, match="'chat'"):
        await memory.load_session(session.id, "coder")
    with pytest.raises(WrongAgent, match="or pass any_agent=True"):
        await memory.load_session(session.id)
    assert (await memory.load_session(session.id, any_agent=True)).agent_id == "chat"


async def test_a_session_is_found_by_id_by_its_beginning_and_by_title(memory: MemorySystem) -> None:
    session = await memory.create_session(STORES, "chat", title="Tax Return")
    for text in (session.id, session.id[:23], "tax return"):
        assert (await memory.find_session(text)).id == session.id
    with pytest.raises(SessionNotFound, match="nonsense"):
        await memory.find_session("nonsense")
    await memory.create_session(STORES, "chat", title="tax return")
    for ambiguous in ("Tax return", session.id[:6]):
        with pytest.raises(AmbiguousSession, match="2 sessions"):
            await memory.find_session(ambiguous)
    assert (await memory.find_session(session.id[:23], "chat")).id == session.id
    await memory.create_session(STORES, "chat")
    for nothing in ("", session.id[:23]):
        with pytest.raises(SessionNotFound):
            await memory.find_session(nothing, "chat" if not nothing else "another agent")


async def test_a_cancelled_creation_leaves_no_session(memory: MemorySystem, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await memory.create_session(STORES, "chat")
    loop, original = asyncio.get_running_loop(), memory._catalog.sessions.publish

    def publish(record: SessionRecord) -> None:
        loop.call_soon_threadsafe(lambda: is_cancelled.set() if task.cancel() else None)
        assert is_cancelled.wait(PATIENCE_S)
        original(record)

    monkeypatch.setattr(memory._catalog.sessions, "publish", publish)
    for work in (memory.create_session(STORES, "chat"), memory.fork_session(session.id)):
        is_cancelled, task = threading.Event(), asyncio.ensure_future(work)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [record.id for record in await memory.list_sessions()] == [session.id]


async def test_a_title_is_kept_on_one_line(session: SessionHandle, memory_home: Path) -> None:
    await session.rename(" A\nlong   title\x1b " + "x" * 300)
    assert session.record.title[:14] == "A long title x"
    async with MemorySystem(memory_home) as again:
        assert len(title := (await again.list_sessions())[0].title) == 200
        assert title.endswith("xx…"), "a title that was cut says so"


async def test_sessions_expire_after_the_last_message_however_often_they_are_opened(memory_home: Path) -> None:
    clock = Clock()
    async with MemorySystem(memory_home, ttl=timedelta(days=10), clock=clock) as memory:
        kept, lost = [await memory.create_session(STORES, "chat") for _ in range(2)]
        clock.move(days=9)
        await kept.transcript_append("user", "said in a session that stayed open")
        await (await memory.load_session(lost.id, "chat")).rename("renamed")
        await export_session(memory, lost.id)
        clock.move(days=2)
        assert [record.id for record in await memory.list_sessions()] == [kept.id]
        with pytest.raises(SessionExpired):
            await memory.load_session(lost.id, "chat")
        assert await memory.expire_sessions() == [lost.id]
        assert await memory.expire_sessions() == []
        with pytest.raises(SessionNotFound):
            await memory.load_session(lost.id, "chat")


async def test_an_ephemeral_memory_writes_nothing(tmp_path: Path) -> None:
    async with MemorySystem(None) as memory:
        session = await memory.create_session(["in_memory"], "chat", title="secret")
        await session.transcript_append("user", "off the record")
        await session.receipt_append({"turn": 1})
        fork = await memory.fork_session(session.id)
        assert [entry.content for entry in await fork.transcript_read_all()] == ["off the record"]
        assert [record.id for record in await memory.list_sessions()] == [fork.id, session.id]
        assert await session.list_files() == []
        await memory.delete_session(fork.id)
        with pytest.raises(UnsupportedOperation, match="keeps files"):
            await memory.create_session(STORES, "chat")
    assert _files_below(tmp_path) == _files_below(Path.cwd()) == []


async def test_an_operation_that_no_store_keeps_names_the_stores(memory: MemorySystem, memory_home: Path) -> None:
    (memory_home.parent / "only_kv.py").write_text(ONLY_KEY_VALUES, encoding="utf-8")
    async with MemorySystem(memory_home, options=SystemOptions(plugins_beside=memory_home.parent)) as with_plugins:
        session = await with_plugins.create_session(["only_kv:OnlyKeyValues"], "chat")
        assert await session.kv_get("anything") == "x"
        with pytest.raises(UnsupportedOperation, match=r"only_kv:OnlyKeyValues \(key-value\)"):
            await session.transcript_append("user", "hello")
    bare = await memory.create_session([], "chat")
    with pytest.raises(UnsupportedOperation, match="no stores at all"):
        await bare.kv_get("key")


async def test_files_are_listed_and_streamed(session: SessionHandle) -> None:
    await session.transcript_append("user", "hi " * 50_000)
    files = {file.name: file for file in await session.list_files()}
    assert list(files) == ["session.json", "transcript.md"]
    assert datetime.fromisoformat(files["transcript.md"].modified).tzinfo is not None
    data = b"".join([chunk async for chunk in session.stream_file("transcript.md")])
    assert len(data) == files["transcript.md"].size
    for bad in ("../session.json", "/etc/passwd", ".."):
        with pytest.raises(UnsafePath):
            _ = [chunk async for chunk in session.stream_file(bad)]
    with pytest.raises(FileNotFoundError):
        _ = [chunk async for chunk in session.stream_file("nothing")]


async def test_everything_on_the_disk_is_private(memory: MemorySystem, memory_home: Path) -> None:
    session = await memory.create_session(STORES, "chat")
    await session.transcript_append("user", "hello")
    await session.kv_set("a", "1")
    await session.receipt_append({"turn": 1})
    memory.backend.private_file("typed")
    await memory.aclose()
    modes = {oct(path.stat().st_mode & 0o777) for path in [memory_home, *_files_below(memory_home)]}
    assert modes == {oct(0o600), oct(0o700)}


async def test_opening_one_session_reads_no_other(memory: MemorySystem, memory_home: Path) -> None:
    wanted = await memory.create_session(STORES, "chat")
    for _ in range(5):
        other = await memory.create_session(STORES, "chat")
        (memory_home / "sessions" / other.id / "session.json").write_bytes(b"damaged")
    os.truncate(memory_home / "sessions.journal.jsonl", 10)
    assert (await memory.load_session(wanted.id, "chat")).id == wanted.id


async def test_two_memory_systems_that_take_turns_agree_on_the_session_used_last(memory_home: Path) -> None:
    clock = Clock()
    async with MemorySystem(memory_home, clock=clock) as ours, MemorySystem(memory_home, clock=clock) as theirs:
        first, second = await ours.create_session(STORES, "chat"), await theirs.create_session(STORES, "chat")
        for session in (first, second, first, second, first):
            clock.move(minutes=2)
            await session.transcript_append("user", "hi")
        assert [record.id for record in await theirs.list_sessions()] == [first.id, second.id]
        assert (await theirs.list_sessions(limit=1))[0].used_at == clock.now


async def test_a_rename_survives_what_an_older_handle_writes_down(memory: MemorySystem, memory_home: Path) -> None:
    session = await memory.create_session(STORES, "chat", title="old")
    async with MemorySystem(memory_home) as elsewhere:
        await (await elsewhere.load_session(session.id, "chat")).rename("new")
    await session.transcript_append("user", "hello")
    assert (await memory.list_sessions())[0].title == "new"
    assert (await memory.find_session("new")).id == session.id


async def test_replacing_a_reply_is_a_use_of_the_session_and_renaming_it_is_none(memory_home: Path) -> None:
    clock = Clock()
    async with MemorySystem(memory_home, clock=clock) as memory:
        first, second = [await memory.create_session(STORES, "chat") for _ in range(2)]
        await first.transcript_append("assistant", "hi")
        clock.move(days=1)
        await second.transcript_append("assistant", "hi")
        await first.rename("first")
        assert (await memory.list_sessions())[0].id == second.id
        clock.move(days=1)
        await first.transcript_drop_last(1, [TranscriptEntry("assistant", "hello", clock.now)])
        latest = (await memory.list_sessions())[0]
        assert (latest.id, latest.used_at) == (first.id, clock.now)


async def test_adding_and_renaming_at_once_lose_neither_the_title_nor_the_time_to_live(memory_home: Path) -> None:
    clock = Clock()
    ttl = timedelta(days=10)
    async with MemorySystem(memory_home, ttl=ttl, clock=clock) as memory:
        session = await memory.create_session(STORES, "chat")
        for number in range(10):
            clock.move(days=1)
            async with asyncio.TaskGroup() as group:
                group.create_task(session.transcript_append("user", "one more"))
                group.create_task(session.rename(str(number)))
            for record in (await memory.find_session(session.id), (await memory.list_sessions())[0]):
                assert (record.title, record.expires_at) == (str(number), clock.now + ttl)


async def test_expiring_in_two_places_at_once_is_no_error(memory_home: Path) -> None:
    clock = Clock()
    async with MemorySystem(memory_home, ttl=timedelta(days=1), clock=clock) as memory:
        made = {(await memory.create_session(STORES, "chat")).id for _ in range(20)}
        clock.move(days=2)
        async with MemorySystem(memory_home, clock=clock) as other:
            erased = await asyncio.gather(memory.expire_sessions(), other.expire_sessions())
        assert sorted([*erased[0], *erased[1]]) == sorted(made)
        assert await memory.list_sessions() == []


async def test_sessions_begun_without_a_time_to_live_get_it_from_their_last_use(memory_home: Path) -> None:
    clock = Clock()
    async with MemorySystem(memory_home, clock=clock) as memory:
        old, new = [await memory.create_session(STORES, "chat") for _ in range(2)]
        clock.move(days=8)
        await new.transcript_append("user", "Hello.")
    clock.move(days=8)
    async with MemorySystem(memory_home, ttl=timedelta(days=10), clock=clock) as memory:
        assert [record.id for record in await memory.list_sessions()] == [new.id]
        with pytest.raises(SessionExpired, match="has expired"):
            await memory.load_session(old.id, "chat")
        assert (await memory.load_session(new.id, "chat")).record.used_at > old.record.used_at
        assert [record.id for record in await memory.expired_sessions()] == await memory.expire_sessions() == [old.id]


async def test_a_clock_that_jumps_ahead_deletes_no_session_for_a_week(
    memory_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with MemorySystem(memory_home, ttl=timedelta(days=30), clock=clock) as memory:
        old = [(await memory.create_session(STORES, "chat")).id for _ in range(2)]
        for days in (365, 6.9):
            clock.move(days=days)
            await memory.create_session(STORES, "chat")
            assert await memory.expire_sessions() == []
            assert caplog.text.count("2 sessions expired more than 60 days before the next use") == 1
        clock.move(days=0.2)
        assert sorted(await memory.expire_sessions()) == old
        clock.move(days=365)
        assert len(await memory.expire_sessions(at_once=True)) == 2


async def test_a_doubtful_expiry_ends_after_a_week_also_if_no_session_is_begun_in_it(memory_home: Path) -> None:
    clock = Clock()
    async with MemorySystem(memory_home, clock=clock) as memory:
        old, used = [await memory.create_session(STORES, "chat") for _ in range(2)]
        clock.move(days=200)
        await used.transcript_append("user", "hello")
    for day in range(8):
        async with MemorySystem(memory_home, ttl=timedelta(days=30), clock=clock) as memory:
            assert await memory.expire_sessions() == ([old.id] if day == 7 else [])
            await (await memory.load_session(used.id, "chat")).transcript_append("user", "hello again")
        clock.move(days=1)


async def test_an_unerasable_session_keeps_no_other(memory_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    module = f"gone_{memory_home.parent.name}"
    source = memory_home.parent / f"{module}.py"
    source.write_text(ONLY_KEY_VALUES, encoding="utf-8")
    async with MemorySystem(
        memory_home, ttl=timedelta(days=1), clock=clock, options=SystemOptions(plugins_beside=memory_home.parent)
    ) as memory:
        first, last = [await memory.create_session(STORES, "chat") for _ in range(2)]
        stuck = await memory.create_session([f"{module}:OnlyKeyValues"], "chat")
    clock.move(days=2)
    sys.modules.pop(module)
    source.unlink()
    async with MemorySystem(memory_home, clock=clock) as memory:
        assert sorted(await memory.expire_sessions()) == [first.id, last.id]
    assert stuck.id in caplog.text
    assert module in caplog.text


async def test_a_fork_holds_also_what_the_cap_moved_to_the_archive(memory_home: Path) -> None:
    async with MemorySystem(memory_home, settings={"basic_session": {"transcript_cap": 5}}) as memory:
        session = await memory.create_session(STORES, "chat")
        for number in range(23):
            await session.transcript_append("user", str(number))
        fork = await memory.fork_session(session.id)
        assert await fork.transcript_read_all() == await session.transcript_read_all()
        await memory.delete_session(session.id)
        assert len(await fork.transcript_read_all()) == 23


async def test_a_fork_that_fails_leaves_nothing(memory: MemorySystem, memory_home: Path) -> None:
    session = await memory.create_session(STORES, "chat")
    (memory_home / "sessions" / session.id / "kv.json").write_bytes(b"{")
    with pytest.raises(DamagedFile, match=r"kv\.json"):
        await memory.fork_session(session.id)
    assert [record.id for record in await memory.list_sessions()] == [session.id]
    assert _files_below(memory_home / ".drafts") == []


async def test_files_that_are_links_or_strays_are_not_listed(session: SessionHandle, memory_home: Path) -> None:
    folder = memory_home / "sessions" / session.id
    (folder / "link.txt").symlink_to(memory_home / "sessions.json")
    (folder / ".kv.json.1-ab.tmp").write_bytes(b"half")
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    assert [file.name for file in await session.list_files()] == ["notes.txt", "session.json"]
    assert b"".join([chunk async for chunk in session.stream_file("notes.txt")]) == b"mine"
    with pytest.raises(UnsafePath):
        _ = [chunk async for chunk in session.stream_file("link.txt")]


async def test_what_no_json_can_keep_makes_no_session_and_no_draft(memory: MemorySystem, memory_home: Path) -> None:
    for refused in (memory.create_session(STORES, "\ud800"), memory.create_session(STORES, "chat", title="\ud800")):
        with pytest.raises(InvalidValue):
            await refused
    assert await memory.list_sessions() == []
    assert _files_below(memory_home) == []


async def test_an_argument_of_another_type_is_named(memory: MemorySystem) -> None:
    session = await memory.create_session([*STORES, "observations"], "chat")
    anything: Any = None
    three: Any = "3"
    number: Any = 3
    for call, words in (
        (session.memory.search(anything), "the question: None is not text"),
        (session.memory.recall([anything]), "texts: None is not text"),
        (session.memory.search("milk \ud83d"), "the question is not valid Unicode"),
        (session.memory.recall("milk \ud83d"), "texts is not valid Unicode"),
        (session.memory.search("milk", limit=three), "the limit is '3': it must be a whole number"),
        (session.memory.list_observations(limit=three), "whole number"),
        (memory.list_sessions(limit=three), "whole number"),
        (session.transcript_read_last(anything), "n is None: it must be a whole number"),
        (session.memory.forget(anything), "None"),
        (memory.load_session(anything, "chat"), "None"),
        (session.memory.search("milk", sensitivities=[three]), r"sensitivities is \['3'\]: it must be a list of p"),
        (session.memory.every(sensitivities=number), "sensitivities is 3: it must be a list of public"),
        (session.memory.people(number), "the query is 3: it must be text"),
        (session.memory.profile(number), "the key is 3: it must be text"),
        (session.memory.profile_history(number), "the key is 3: it must be text"),
        (session.memory.resolve(number), "the id is 3: it must be text"),
        (session.memory.purge(person=number), "the person is 3: it must be text"),
        (session.memory.remember_all([three]), "a memory is '3': it must be Draft"),
        (memory.find_session(anything), "the session is None: it must be text"),
        (memory.maintain(part=three), "part is '3': choose from compression, consolidation"),
        (session.memory.list_observations(order=three), "order is '3': choose from created, updated"),
        (memory.choose_sessions(three), "wanted is '3': it must be SessionFilter"),
        (session.receipts_since(three), "the time is '3': it must be datetime"),
        (session.transcript_extend([three]), "an entry is '3': it must be TranscriptEntry"),
    ):
        with pytest.raises((StoreError, SessionNotFound), match=words):
            await call
    for make, words in (
        (lambda: MemorySystem(number), "home is 3: it must be str or Path or Address or None"),
        (lambda: MemorySystem(None, number), "caller is 3: it must be Caller or None"),
        (lambda: MemorySystem(None, embedder=three), "embedder is '3': it must be Embedder or None"),
        (lambda: MemorySystem(None, settings={"observatons": {}}), "did you mean 'observations'"),
        (lambda: MemorySystem(None, settings={"nowhere:Store": {}}), "'nowhere:Store' not found: save it in"),
        (lambda: memory.cleared_for(rights=["read", three]), "unknown right '3': use read, chat, write"),
        (lambda: Caller(rights=three), "unknown right '3': use read, chat, write"),
        (lambda: memory.cleared_for(namespace=number), "the namespace is 3: it must be text"),
        (lambda: Runtime(three), "options is '3': it must be Options"),
        (lambda: Runtime(model=three), "model is '3': it must be Model or None: `open_model"),
    ):
        with pytest.raises(StoreError, match=words):
            make()


async def test_a_session_whose_receipts_cannot_be_read_can_be_deleted(memory: MemorySystem, memory_home: Path) -> None:
    session = await memory.create_session(STORES, "chat")
    fork = await memory.fork_session(session.id)
    (memory_home / "sessions" / session.id / "receipts.jsonl").mkdir()
    await memory.delete_session(session.id, keep_memory=True)
    assert [each.id for each in await memory.list_sessions()] == [fork.id]


async def test_what_the_disk_kept_of_a_deleted_session_is_deleted_with_the_next_new_one(
    memory: MemorySystem, memory_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await memory.create_session(STORES, "chat", title="Of bees")
    await session.transcript_append("user", "I keep bees.")
    assert await memory.search_sessions("bees")
    memory.backend.lines(FAILURES).append([{"session": session.id, "error": "bees"}])
    with monkeypatch.context() as broken:
        broken.setattr("chatbot.stores.files.erase", lambda _: os.read(-1, 1))
        with pytest.raises(StoreFailed, match=r"\.trash.*Bad file.*`chatbot doctor --fix`"):
            await memory.delete_session(session.id)
    found = [*memory_home.rglob("*"), *Path(os.environ["XDG_CACHE_HOME"]).rglob("*")]
    left = [each for each in found if each.is_file() and b"bees" in each.read_bytes()]
    assert {each.parents[1].name for each in left} == {".trash"}
    await memory.create_session(STORES, "chat")
    assert list((memory_home / ".trash").iterdir()) == []


async def test_what_is_in_the_way_of_a_new_session_is_named(memory: MemorySystem, memory_home: Path) -> None:
    first = await memory.create_session(STORES, "chat")
    (memory_home / ".drafts").rmdir()
    (memory_home / ".drafts").write_bytes(b"no folder")
    with pytest.raises(StoreError, match=r"\.drafts"):
        await memory.create_session(STORES, "chat")
    (memory_home / ".drafts").unlink()
    second = await memory.create_session(STORES, "chat")
    assert [record.id for record in await memory.list_sessions()] == [second.id, first.id]


async def test_a_folder_that_the_disk_does_not_sync_is_named(
    memory: MemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.create_session(STORES, "chat")
    for step in range(3):
        steps = iter(range(step))
        monkeypatch.setattr(os, "fsync", lambda _, steps=steps: os.read(-1, 1) if next(steps, None) is None else None)
        with pytest.raises(StoreFailed, match=r"memory.*: Bad file descriptor"):
            await memory.create_session(STORES, "chat")


async def test_a_session_that_the_index_missed_is_listed_also_if_no_rebuild_succeeds(
    memory_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("full")

    made = []
    async with MemorySystem(memory_home) as memory:
        for name in ("_write", "_replace"):
            with monkeypatch.context() as broken:
                broken.setattr(SessionIndex, name, refuse if name == "_replace" else lambda *_: None)
                made.append((await memory.create_session(STORES, "chat")).id)
    async with MemorySystem(memory_home) as memory:
        assert sorted(record.id for record in await memory.list_sessions()) == made


START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def days() -> Clock:
    return Clock(START)


@pytest.fixture
async def dated(memory_home: Path, days: Clock) -> AsyncIterator[MemorySystem]:
    async with MemorySystem(memory_home, clock=days) as opened:
        yield opened


async def _make(memory: MemorySystem, days: Clock, *titles: str, agent: str = "chat") -> list[SessionHandle]:
    made = []
    for title in titles:
        made.append(await memory.create_session(STORES, agent, title=title))
        days.move(days=1)
    return made


async def _titles(memory: MemorySystem, **wanted: object) -> list[str]:
    return [record.title for record in await memory.choose_sessions(SessionFilter(**wanted))]  # type: ignore[arg-type]


async def test_messages_count_and_other_entries_do_not(dated: MemorySystem, days: Clock) -> None:
    empty, talk, broken = await _make(dated, days, "empty", "talk", "broken")
    await talk.transcript_append("user", "hi")
    await talk.transcript_append("assistant", "### user — 2026-01-02T03:04:05Z\n\nforged")
    await broken.transcript_append("error", "no model")
    assert await _titles(dated, min_messages=2) == ["talk"]
    assert await _titles(dated, min_messages=3) == []
    assert await _titles(dated, is_empty=True) == ["empty"]
    assert set(await _titles(dated, is_empty=False)) == {"talk", "broken"}
    assert await empty.transcript_count() == 0
    assert await talk.transcript_count(["user"]) == 1


async def test_an_unreadable_session_fits_no_inner_filter(dated: MemorySystem, days: Clock, memory_home: Path) -> None:
    [bad] = await _make(dated, days, "bad")
    (memory_home / "sessions" / bad.id / "transcript.md").mkdir()
    assert await _titles(dated, is_empty=True) == []
    assert await _titles(dated) == ["bad"]


async def test_an_archived_session_is_not_offered_and_still_there(dated: MemorySystem, days: Clock) -> None:
    old, new = await _make(dated, days, "old", "new")
    await dated.archive_session(new.id)
    latest = await dated.latest_session("chat")
    assert (latest and latest.id) == old.id
    assert (await dated.load_session(new.id, "chat")).id == new.id
