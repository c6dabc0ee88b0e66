"""`sessions.json` is a cache: missing, stale or damaged, it is built anew, and never the only truth."""

import asyncio
import json
import logging
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from chatbot.errors import DamagedSession
from chatbot.memory import MemorySystem, SessionRecord
from chatbot.stores.errors import LaterFormat
from chatbot.stores.files import LOCK_TIMEOUT_S, Folder, locked, opened
from chatbot.stores.on_disk.session_index import SessionIndex

STORES = ["basic_session"]


async def _make(home: Path, count: int = 3) -> list[str]:
    async with MemorySystem(home) as memory:
        sessions = [await memory.create_session(STORES, "chat", title=f"number {n}") for n in range(count)]
        for session in sessions:
            await session.transcript_append("user", "hello")
        return [session.id for session in sessions]


async def _listed(home: Path) -> list[str]:
    async with MemorySystem(home) as memory:
        await memory.list_sessions()
        return sorted(record.id for record in await memory.list_sessions())


async def test_sessions_json_can_be_read_by_people_when_we_are_done(memory_home: Path) -> None:
    ids = await _make(memory_home)
    index = json.loads((memory_home / "sessions.json").read_bytes())
    assert [session["id"] for session in index["sessions"]] == ids
    assert {"id", "agent_id", "store_types", "created_at"} <= index["sessions"][0].keys()
    assert not (memory_home / "sessions.journal.jsonl").exists()


async def test_a_damaged_index_is_built_anew(memory_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    ids = await _make(memory_home)
    index = memory_home / "sessions.json"
    whole = index.read_bytes()
    cut = [whole[:length] for length in range(0, len(whole) - 2, 31)]
    for damage in (b"garbage", b"{}", b"null", b'{"sessions": 5}', b"\xff\xfe\x00", *cut):
        index.write_bytes(damage)
        assert await _listed(memory_home) == ids, damage
        assert caplog.text.count("are read instead") == 1  # for both lists
        caplog.clear()


async def test_looking_waits_for_nobody_and_writes_nothing(memory_home: Path) -> None:
    ids = await _make(memory_home)
    before = {path.name: path.stat().st_mtime_ns for path in memory_home.iterdir()}
    with locked(memory_home):
        async with asyncio.timeout(LOCK_TIMEOUT_S / 2):
            assert await _listed(memory_home) == ids
    assert {path.name: path.stat().st_mtime_ns for path in memory_home.iterdir()} == before


async def test_an_index_that_is_changed_while_it_is_read_is_read_again_under_the_lock(memory_home: Path) -> None:
    """Between the first record and the second, another process makes a session and folds the journal away."""
    ids = await _make(memory_home)
    reads = 0

    def wanted(_: SessionRecord) -> bool:
        nonlocal reads
        reads += 1
        if reads == 1:
            asyncio.run(_make(memory_home, 1))
        return True

    found = await asyncio.to_thread(SessionIndex(memory_home, memory_home / "sessions").find, wanted)
    assert len(found) == 4
    assert reads == 7
    assert {record.id for record in found} > set(ids)


async def test_a_session_that_is_deleted_while_the_folders_are_read_is_neither_listed_nor_called_damaged(
    memory_home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await _make(memory_home)
    index = memory_home / "sessions.json"
    os.truncate(index, index.stat().st_size - 20)  # so the folders are read; the records before are known

    def open_late(path: Path) -> AbstractContextManager[Folder]:
        if path.name == ids[0]:
            shutil.rmtree(path, ignore_errors=True)
        return opened(path)

    monkeypatch.setattr("chatbot.stores.on_disk.session_index.opened", open_late)
    assert await _listed(memory_home) == ids[1:]
    assert "cannot be read" not in caplog.text


@pytest.mark.parametrize("name", ["sessions.json", "sessions.journal.jsonl"])
async def test_an_index_that_goes_missing_is_built_anew(memory_home: Path, name: str) -> None:
    ids = await _make(memory_home)
    async with MemorySystem(memory_home) as memory:
        ids.append((await memory.create_session(STORES, "chat")).id)
        (memory_home / name).unlink()
        assert sorted(record.id for record in await memory.list_sessions()) == ids
        ids.append((await memory.create_session(STORES, "chat")).id)
        assert sorted(record.id for record in await memory.list_sessions()) == ids


async def test_a_copied_folder_is_a_session_of_its_own(memory_home: Path) -> None:
    (session_id,) = await _make(memory_home, 1)
    copy = session_id[:-4] + "beef"
    shutil.copytree(memory_home / "sessions" / session_id, memory_home / "sessions" / copy)
    async with MemorySystem(memory_home) as memory:
        session = await memory.load_session(copy, "chat")
        await session.transcript_append("user", "only in the copy")
        original = await memory.load_session(session_id, "chat")
        assert [len(await each.transcript_read_all()) for each in (session, original)] == [2, 1]


async def test_a_change_by_hand_between_our_own_is_noticed(memory_home: Path) -> None:
    async with MemorySystem(memory_home) as memory:
        ids = [(await memory.create_session(STORES, "chat")).id for _ in range(3)]
        shutil.rmtree(memory_home / "sessions" / ids[0])
        session = await memory.load_session(ids[1], "chat")
        await session.transcript_append("user", "a note of use must not hide it")
        ids.append((await memory.create_session(STORES, "chat")).id)
        assert sorted(record.id for record in await memory.list_sessions()) == ids[1:]


async def test_the_order_of_use_and_archiving_survive_a_rebuild(memory_home: Path) -> None:
    ids = await _make(memory_home)
    async with MemorySystem(memory_home) as memory:
        await (await memory.load_session(ids[0], "chat")).transcript_append("user", "used last")
        await memory.archive_session(ids[1])
    (memory_home / "sessions.json").unlink()
    (memory_home / "sessions" / ids[2] / "transcript.md").touch()  # as `cp -r` does
    async with MemorySystem(memory_home) as memory:
        assert (await memory.list_sessions(limit=1))[0].id == ids[0]
        assert [each.id for each in await memory.list_sessions() if each.archived_at is not None] == [ids[1]]


async def test_creating_sessions_does_not_rewrite_the_index_each_time(memory_home: Path) -> None:
    async with MemorySystem(memory_home) as memory:
        inodes = set()
        for _ in range(120):
            await memory.create_session(STORES, "chat")
            index = memory_home / "sessions.json"
            inodes.add(index.stat().st_ino if index.exists() else 0)
        assert len(inodes) <= 8  # it doubles before it is written again


@pytest.mark.parametrize("damage", [b'{"id":', b"[" * 100_000])
async def test_the_index_mends_session_json(memory_home: Path, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    ids = await _make(memory_home)
    path = memory_home / "sessions" / ids[1] / "session.json"
    path.write_bytes(damage)
    async with MemorySystem(memory_home) as memory:
        with caplog.at_level(logging.WARNING):
            session, _ = [await memory.load_session(ids[1], "chat") for _ in range(2)]
        assert session.record.title == "number 1"
        assert [entry.content for entry in await session.transcript_read_all()] == ["hello"]
        assert path.read_bytes() == damage  # reading mends nothing
        await session.rename("renamed")
    assert json.loads(path.read_bytes())["title"] == "renamed"
    assert [aside.read_bytes() for aside in path.parent.glob("session.json.damaged-*")] == [damage]
    assert caplog.text.count("the index is used instead") == 1


async def test_a_session_of_a_later_release_is_left_alone_and_an_unknown_field_is_no_error(memory_home: Path) -> None:
    ids = await _make(memory_home)
    path = memory_home / "sessions" / ids[0] / "session.json"
    unknown = json.loads(path.read_bytes()) | {"new": "field"}
    path.write_text(json.dumps(unknown), encoding="utf-8")
    async with MemorySystem(memory_home) as memory:
        assert (await memory.load_session(ids[0], "chat")).record.title == "number 0"
        later = unknown | {"version": 2}
        path.write_text(json.dumps(later), encoding="utf-8")
        with pytest.raises(LaterFormat, match=r"session\.json.*upgrade"):
            await memory.load_session(ids[0], "chat")
    assert json.loads(path.read_bytes()) == later


async def test_a_session_copied_in_within_a_tick_of_a_coarse_clock_is_found(memory_home: Path, tmp_path: Path) -> None:
    (theirs,) = await _make(tmp_path / "other", 1)
    ids = await _make(memory_home)
    before = (memory_home / "sessions").stat().st_mtime_ns
    shutil.copytree(tmp_path / "other" / "sessions" / theirs, memory_home / "sessions" / theirs)
    os.utime(memory_home / "sessions", ns=(before, before))
    assert await _listed(memory_home) == sorted([*ids, theirs])


@pytest.mark.parametrize(
    "fields",
    [
        {"title": "\ud800"}, {"agent_id": "\ud800"}, {"agent_id": 7}, {"title": ["a"]}, {"parent": {}},
        {"store_types": "basic_session"}, {"store_types": [1]}, {"store_types": None},
        {"created_at": "0001-01-01T00:00:00+09:00"}, {"created_at": None}, {"expires_at": 5}, {"version": "2"},
        {"id": "../../etc"}, None,
    ],
)  # fmt: skip
async def test_a_misshapen_session_json_hides_no_other(memory_home: Path, fields: dict[str, object] | None) -> None:
    ids = await _make(memory_home)
    path = memory_home / "sessions" / ids[1] / "session.json"
    path.write_text(json.dumps({} if fields is None else json.loads(path.read_bytes()) | fields), encoding="utf-8")
    (memory_home / "sessions.json").unlink()
    assert await _listed(memory_home) == [ids[0], ids[2]]
    async with MemorySystem(memory_home) as memory:
        with pytest.raises(DamagedSession, match=r"session\.json"):
            await memory.load_session(ids[1], "chat")
        await memory.create_session(STORES, "chat")


@pytest.mark.parametrize("name", ["sessions.json", "sessions.journal.jsonl"])
async def test_no_flipped_byte_of_the_index_changes_a_session(memory_home: Path, tmp_path: Path, name: str) -> None:
    await _make(memory_home)
    async with MemorySystem(memory_home) as memory:
        await memory.create_session(STORES, "other", title="the last")
        copy = tmp_path / "copy"  # while there is a journal
        shutil.copytree(memory_home, copy)
    sessions = copy / "sessions"
    os.utime(sessions, ns=((memory_home / "sessions").stat().st_mtime_ns,) * 2)
    expected = SessionIndex(copy, sessions).find(lambda _: True)
    assert expected[0].title == "the last"
    whole = (copy / name).read_bytes()
    for place in range(0, len(whole), 17):
        for mask in [(1, 0x20, whole[place] ^ ord("["), whole[place] ^ ord("\n"))[place % 4]]:
            damaged = bytearray(whole)
            damaged[place] ^= mask
            (copy / name).write_bytes(damaged)
            assert _by_id(SessionIndex(copy, sessions).find(lambda _: True)) == _by_id(expected), place
            assert (copy / name).read_bytes() == damaged
    (copy / name).write_bytes(whole.replace(b'"chat"', b'"chap"').replace(b"the last", b"the lost"))
    async with MemorySystem(copy) as memory:
        await memory.list_sessions()
        await (await memory.load_session(expected[0].id, any_agent=True)).rename("mended")
    assert SessionIndex(copy, sessions).problem() is None


def _by_id(records: list[SessionRecord]) -> dict[str, SessionRecord]:
    """The records; when they were used the folders know less exactly than the index."""
    return {record.id: replace(record, used_at=record.created_at) for record in records}
