"""Searching across sessions: what is found, where, for whom; and that the cache is never believed above the files."""

import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem, SessionFilter, SessionHandle
from chatbot.memory.session_search import snippet
from chatbot.stores.access import Clearance
from chatbot.stores.basic_session import BasicSessionStore
from chatbot.stores.errors import InvalidValue, StoreError
from chatbot.stores.records import SessionRef
from chatbot.stores.session_terms import NAME, SessionTerms, stamp_version
from chatbot.stores.text.analysis import terms
from tests.disk import ENDLESS, Put

STORES = ["basic_session", "observations"]


@pytest.fixture
async def memory(memory_home: Path) -> AsyncIterator[MemorySystem]:
    async with MemorySystem(memory_home, settings={"basic_session": {"transcript_cap": 4}}) as opened:
        yield opened


async def _said(memory: MemorySystem, *lines: str, title: str = "") -> SessionHandle:
    session = await memory.create_session(STORES, "chat", title=title)
    for number, line in enumerate(lines):
        await session.transcript_append("assistant" if number % 2 else "user", line)
    return session


async def _found(memory: MemorySystem, text: str, *, clearance: Clearance = "full", **options: object) -> list[str]:
    found = await memory.cleared_for(clearance).search_sessions(text, **options)  # type: ignore[arg-type]
    return [hit.record.title for hit in found]


async def test_the_session_that_speaks_of_it_is_found_with_its_line(memory: MemorySystem) -> None:
    await _said(memory, "the weather", "rain")
    tax = await _said(memory, "my tax return", "Gather receipts.\nThen deduct the bicycle.\nSend it.", title="tax")
    [hit] = await memory.search_sessions("bicycles")
    assert (hit.record.id, hit.role, hit.number) == (tax.id, "assistant", 2)
    assert hit.line == "Then deduct the bicycle."
    assert [hit.line[begin:end] for begin, end in hit.ranges] == ["bicycle"]
    with pytest.raises(InvalidValue):
        await memory.search_sessions("bicycles", limit=-1)


async def test_what_the_cap_moved_to_the_archive_is_found_with_its_number(memory: MemorySystem) -> None:
    session = await _said(memory, "a giraffe", *(f"line {n}" for n in range(20)))
    assert "transcript.archive.md" in {file.name for file in await session.list_files()}
    assert (await session.transcript_read_last(100))[0].content == "a giraffe"
    [hit] = await memory.search_sessions("giraffe")
    assert hit.number == 1


async def test_a_title_and_what_is_remembered_lead_to_a_session_too(memory: MemorySystem) -> None:
    await _said(memory, "hello", title="Giraffes of Kenya")
    remembered = await _said(memory, "hello again")
    await remembered.memory.remember("The locker has the number 4711")
    [by_title] = await memory.search_sessions("giraffe")
    assert (by_title.role, by_title.number) == ("title", None)
    [by_memory] = await memory.search_sessions("locker")
    assert (by_memory.record.id, by_memory.role) == (remembered.id, "memory")
    assert by_memory.observation is not None


async def test_the_text_of_an_attached_file_leads_to_its_session(memory: MemorySystem) -> None:
    session = await memory.create_session(STORES, "chat")
    [name] = await session.attach([(b"Dear Ann,\nthe giraffe is well.", ".txt")])
    await session.transcript_append("user", f"Answer this:\n\n[mail](attachments/{name})")
    for _ in range(2):  # read, then known by its terms
        [hit] = await memory.search_sessions("giraffes")
        assert (hit.role, hit.number, hit.line) == ("user", 1, "the giraffe is well.")


async def test_more_that_is_said_of_it_ranks_higher(memory: MemorySystem) -> None:
    await _said(memory, "once a bicycle", *(f"other things {n} entirely" for n in range(9)), title="little")
    await _said(memory, "a bicycle", "which bicycle?", "the red bicycle with gears", title="much")
    assert await _found(memory, "red bicycle") == ["much", "little"]


async def test_an_answer_never_comes_from_a_transcript_that_changed(memory: MemorySystem, memory_home: Path) -> None:
    session = await _said(memory, "a giraffe", title="zoo")
    _settle(memory)
    assert await _found(memory, "giraffe") == ["zoo"]
    await session.transcript_append("user", "an okapi")
    assert await _found(memory, "okapi") == ["zoo"]
    transcript = memory_home / "sessions" / session.id / "transcript.md"
    transcript.write_text(transcript.read_text("utf-8").replace("giraffe", "zebra"), "utf-8")
    assert await _found(memory, "giraffe") == []
    assert await _found(memory, "zebra") == ["zoo"]


@pytest.mark.parametrize("way", ["drop", "clear"])
async def test_words_that_are_taken_back_leave_the_cache(memory: MemorySystem, way: str) -> None:
    session, other = await _said(memory, "my bicycle"), await _said(memory, "a boat")
    _settle(memory)
    await _found(memory, "bicycle")
    [cache] = _caches()
    assert _ids(cache) == {session.id, other.id}
    await (session.transcript_drop_last(1) if way == "drop" else session.transcript_clear())
    assert _ids(cache) == {other.id}


async def test_a_deleted_session_leaves_no_trace_in_the_cache(memory: MemorySystem) -> None:
    session = await _said(memory, "a giraffe")
    other = await _said(memory, "another giraffe")
    by_hand = await _said(memory, "a third giraffe")
    _settle(memory)
    await memory.search_sessions("giraffe")
    [cache] = _caches()
    assert _ids(cache) == {session.id, other.id, by_hand.id}
    await memory.delete_session(session.id)
    assert memory.home is not None
    shutil.rmtree(memory.home / "sessions" / by_hand.id)
    assert session.id.encode() not in b"".join(path.read_bytes() for path in cache.parent.rglob("*") if path.is_file())
    assert [hit.record.id for hit in await memory.search_sessions("giraffe")] == [other.id]
    assert _ids(cache) == {other.id}


async def test_a_session_that_cannot_be_read_hides_no_other(memory: MemorySystem) -> None:
    bad = await _said(memory, "a giraffe", title="bad giraffe")
    await _said(memory, "a giraffe", title="good")
    assert memory.home is not None
    transcript = memory.home / "sessions" / bad.id / "transcript.md"
    transcript.unlink()
    transcript.mkdir()
    assert set(await _found(memory, "giraffe")) == {"good", "bad giraffe"}  # the one by its title alone
    with pytest.raises(StoreError):  # that nothing can be read is not that nothing was said
        await memory.search_sessions("giraffe", wanted=SessionFilter(title="bad"))


class Short(BasicSessionStore):
    """A plug-in that forgets to answer."""

    async def transcript_stamps(self, sessions: Sequence[SessionRef]) -> list[str]:
        return []


async def test_a_store_without_stamps_for_its_transcripts_is_searched_all_the_same(memory: MemorySystem) -> None:
    session = await memory.create_session([f"{__name__}:Short"], "chat", title="zoo")
    await session.transcript_append("user", "a giraffe")
    assert await _found(memory, "giraffe") == ["zoo"]


@pytest.mark.parametrize("kind", ENDLESS)
async def test_a_damaged_cache_is_begun_anew(memory: MemorySystem, kind: str, put_in_place: Put) -> None:
    await _said(memory, "a giraffe", title="zoo")
    _settle(memory)
    await memory.search_sessions("giraffe")
    [cache] = _caches()
    put_in_place(cache, kind)
    async with MemorySystem(memory.home) as second:
        assert await _found(second, "giraffe") == ["zoo"]
        assert _ids(cache)
        assert await _found(second, "giraffe") == ["zoo"]


async def test_it_works_without_a_cache(memory: MemorySystem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("not a folder", "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))
    async with MemorySystem(memory.home) as second:
        await _said(second, "a giraffe", title="zoo")
        _settle(second)
        assert await _found(second, "giraffe") == ["zoo"]


async def test_a_session_is_found_by_who_sees_it_and_a_secret_memory_leads_nobody_there(memory: MemorySystem) -> None:
    session = await _said(memory.cleared_for("inner"), "a zebra", title="zoo")
    for clearance, found in (("full", ["zoo"]), ("inner", ["zoo"]), ("familiar", [])):
        assert await _found(memory, "zebra", clearance=clearance) == found  # type: ignore[arg-type]
    own = memory.memory(session_id=session.id)
    await own.remember("the giraffe is hidden", sensitivity="secret")
    await own.remember("the okapi is hidden", sensitivity="private")
    assert await memory.search_sessions("giraffe") == []
    assert await memory.search_sessions("okapi") == []


@pytest.mark.parametrize("text", ["what is it about", "", "giraffe"])
async def test_words_without_a_topic_find_nothing_nor_are_tools_searched(memory: MemorySystem, text: str) -> None:
    session = await _said(memory, "what is it about")
    await session.transcript_append("tool", "giraffe")
    await session.transcript_append("error", "giraffe")
    assert await memory.search_sessions(text) == []


async def test_an_ephemeral_memory_is_searched_too() -> None:
    async with MemorySystem(None) as memory:
        session = await memory.create_session(["in_memory"], "chat", title="zoo")
        await session.transcript_append("user", "a giraffe")
        assert await _found(memory, "giraffe") == ["zoo"]
    assert _caches() == []


def test_the_line_is_cut_around_what_was_asked_for() -> None:
    line, ranges = snippet("x " * 500 + "the giraffe eats" + " y" * 500, set(terms("giraffe")))
    assert [line[begin:end] for begin, end in ranges] == ["giraffe"]
    assert line.startswith("…")
    assert line.endswith("…")
    assert len(line) < 260


def test_signs_of_a_script_without_spaces_and_emoji_are_marked() -> None:
    for text, asked, marked in (
        ("今天我骑自行车去湖边", "自行车", ["自行车"]),
        ("夜はカレーを食べた", "かれー", ["カレー"]),
        ("my 🦜🦜 pet 🇩🇪!", "🦜 🇩🇪", ["🦜🦜", "🇩🇪"]),
    ):
        line, ranges = snippet(text, set(terms(asked)))
        assert [line[begin:end] for begin, end in ranges] == marked


def test_what_was_kept_of_other_terms_is_thrown_away(tmp_path: Path) -> None:
    known = SessionTerms(tmp_path / "memory", tmp_path / "cache")
    known.put([("a", "-", {"giraffe": 1})])
    assert known.find(["giraffe"]) == {"a": (stamp_version("-"), (1,))}
    [path] = (tmp_path / "cache").rglob(NAME)
    path.write_text(path.read_text("utf-8").replace('"sessions ', '"other '), "utf-8")
    assert known.find(["giraffe"]) == {}
    known.put([("a", "-", {"🦒": 2})])
    assert known.find(["🦒"]) == {"a": (stamp_version("-"), (2,))}


def test_a_byte_that_changed_in_any_chunk_costs_sessions_and_no_search(tmp_path: Path) -> None:
    def opened() -> SessionTerms:
        return SessionTerms(tmp_path / "memory", tmp_path / "cache")

    spoken = {f"session {number}": {f"word{n}": 1 for n in range(number, number + 90)} for number in range(60)}
    rows = [(session, "-", counts) for session, counts in spoken.items()]
    expected = {session: (stamp_version("-"), (counts.get("word70", 0),)) for session, counts in spoken.items()}
    for share in range(0, 100, 7):
        opened().put(rows)
        [path] = (tmp_path / "cache").rglob(NAME)
        data = bytearray(path.read_bytes())
        data[share * len(data) // 100] ^= 0x41
        path.write_bytes(data)
        known = opened()
        assert known.find(["word70"]).items() <= expected.items()
        known.forget("session 3".__eq__)
        assert b'"session 3"' not in path.read_bytes()


def _settle(memory: MemorySystem) -> None:
    """Let the transcripts look as if nobody had written to them for a while, so that they are cached."""
    assert memory.home is not None
    long_ago = time.time() - 100
    for path in memory.home.rglob("transcript*.md"):
        os.utime(path, (long_ago, long_ago))


def _caches() -> list[Path]:
    from platformdirs import user_cache_path

    return list(user_cache_path("chatbot").glob(f"*/{NAME}"))


def _ids(cache: Path) -> set[str]:
    return {json.loads(line)["session"] for line in cache.read_bytes().splitlines()[1:]}
