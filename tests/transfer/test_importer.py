"""Imports: once, whole, redacted, and without opening a gate."""

import json
import zipfile
from asyncio import CancelledError, Event, gather
from collections.abc import Iterator
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
from msgspec.structs import asdict

from chatbot.memory import Memory, MemorySystem
from chatbot.memory.memorability import Memorability
from chatbot.memory.scope import Caller, utc_now
from chatbot.memory.writing import Draft
from chatbot.stores.access import NOT_SECRET
from chatbot.stores.errors import LaterFormat, UnsafePath, UnsupportedOperation
from chatbot.transfer.exports import export_memories, render_memories
from chatbot.transfer.formats import Skip
from chatbot.transfer.importer import Importer
from chatbot.transfer.sources import Source
from tests.transfer import exports
from tests.transfer.exports import AGENTS, imported


def _file(path: Path, value: Any) -> Path:
    path.write_bytes(exports.as_bytes(value))
    return path


def _rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_bytes(exports.bundle(*rows))
    return path


def _conversations(count: int) -> list[dict[str, Any]]:
    asked = [exports.chatgpt_message("user", f"question {n}", at=1_700_000_000 + n) for n in range(count)]
    return [
        exports.chatgpt(question, key=f"c-{n}", title=f"talk {n}", update_time=1_700_000_000 + n)
        for n, question in enumerate(asked)
    ]


async def test_conversations_become_sessions_that_can_be_gone_on_with(memory: MemorySystem, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = _file(tmp_path / "conversations.json", _conversations(30))
    report = await imported(memory, path, progress=lambda done, total: told.append((done, total)))
    assert told == [(n, 30) for n in range(1, 31)]
    assert (len(report.sessions), report.already, report.skipped) == (30, 0, [])
    records = await memory.list_sessions()
    assert [record.title for record in records] == [f"talk {n}" for n in reversed(range(30))]
    session = await memory.load_session(records[0].id, "chat")
    await session.transcript_append("user", "and now?")
    assert [entry.content for entry in await session.transcript_read_last()] == ["question 29", "and now?"]
    assert (await memory.list_sessions(limit=1))[0].id == session.id


async def test_an_imported_session_does_not_become_the_latest_even_if_the_import_is_stopped(
    memory: MemorySystem, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = await memory.create_session(AGENTS["chat"], "chat")
    await own.transcript_append("user", "hi")

    def stop(done: int, _: int) -> None:
        if done == 2:
            raise CancelledError

    with pytest.raises(CancelledError):
        await imported(memory, _file(tmp_path / "c.json", _conversations(3)), progress=stop)
    assert "2 sessions had been imported: import it again to continue" in caplog.text
    assert [record.id == own.id for record in await memory.list_sessions()] == [True, False, False]
    message = exports.chatgpt_message("user", "from the future", at=9e9)
    future = exports.chatgpt(message, update_time=9e9)
    wholly = exports.chatgpt(message, update_time=9e9, create_time=9e9, key="c-9")
    await imported(memory, _file(tmp_path / "c.json", [*_conversations(3), future, wholly]), measure=Memorability())
    assert all(record.created_at <= record.used_at <= own.record.used_at for record in await memory.list_sessions())
    for record in await memory.list_sessions():
        for entry in await (await memory.load_session(record.id, "chat")).transcript_read_all():
            assert entry.at <= utc_now()
    await imported(memory, _rows(tmp_path / "rows.jsonl", exports.row(1, "likes tea", created_at="2100-01-01T00:00Z")))
    assert all(row.created_at <= utc_now() for row in await memory.memory().every())
    latest = await memory.latest_session("chat")
    assert (latest and latest.id) == own.id


async def test_a_conversation_that_grew_goes_on_in_one_file_or_another(memory: MemorySystem, tmp_path: Path) -> None:
    said = [exports.chatgpt_message("user", text) for text in ("one", "two", "three")]
    path = _file(tmp_path / "c.json", [exports.chatgpt(*said[:count]) for count in (1, 3, 2)])
    for dry_run in (True, False):
        report = await imported(memory, path, dry_run=dry_run)
        assert ([each["entries"] for each in report.sessions], report.already) == ([1, 2], 1)
    [record] = await memory.list_sessions()
    session = await memory.load_session(record.id, "chat")
    assert [entry.content for entry in await session.transcript_read_all()] == ["one", "two", "three"]
    await session.transcript_append("user", "said here")
    said.append(exports.chatgpt_message("user", "said there"))
    report = await imported(memory, _file(tmp_path / "c.json", [exports.chatgpt(*said)]))
    assert (report.sessions, [each.why for each in report.skipped]) == ([], ["its session continued differently here"])
    assert len(await session.transcript_read_all()) == 4


async def test_two_imports_at_once_add_each_conversation_and_fact_once(
    memory: MemorySystem, memory_home: Path, tmp_path: Path
) -> None:
    path, begun = _file(tmp_path / "c.json", _conversations(9)), Event()
    said = {"subject": "Ada", "predicate": "likes", "sensitivity": "public"}
    facts = _rows(
        tmp_path / "f.jsonl", *(exports.row(n, "") | said | {"kind": "fact", "object": f"{n}"} for n in range(9))
    )

    async def second() -> int:
        await begun.wait()
        return (await imported(other, path)).already

    async with MemorySystem(memory_home) as other:
        _, already = await gather(imported(memory, path, progress=lambda *_: begun.set()), second())
        await gather(imported(memory, facts), imported(other, facts))
    assert (already, len(await memory.list_sessions())) == (9, 9)
    assert [fact.count for fact in await memory.memory().query_facts()] == [1] * 9


async def test_a_file_is_parsed_beside_a_server_that_answers_others(memory: MemorySystem) -> None:
    def items() -> Iterator[Skip]:
        yield Skip("thread", str(get_ident()))

    report = await Importer(memory, agent="chat", agents=AGENTS).run(Source(Path("x"), "bundle", items()))
    assert report.skipped[0].why != str(get_ident())


@pytest.mark.parametrize("name", ["notes.md", "rows.jsonl"])
async def test_memories_of_a_failed_import_are_counted(
    memory: MemorySystem, memory_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, journal, remember = tmp_path / name, memory_home / "observations.jsonl", Memory.remember_all
    _rows(path, *(exports.row(n, f"The door opens with key {n}.") for n in range(501)))
    if name == "notes.md":
        path.write_text("".join(f"# {n}\n\nThe door opens with key {n}.\n\n" for n in range(501)), encoding="utf-8")

    async def remember_and_break(*given: Any, **options: Any) -> Any:
        results = await remember(*given, **options)
        journal.unlink()
        journal.symlink_to("elsewhere")
        return results

    monkeypatch.setattr(Memory, "remember_all", remember_and_break)
    with pytest.raises(UnsafePath, match=r"\. 500 memories had been imported: import it again to continue"):
        await imported(memory, path)


async def test_a_dry_run_writes_none_and_says_the_same(memory: MemorySystem, memory_home: Path, tmp_path: Path) -> None:
    said = [
        exports.chatgpt_message("user", "My sister Ingrid moved to Tromsø in March"),
        exports.chatgpt_message("assistant", "How far north that is!"),
    ]
    alike = [exports.chatgpt(*said, key=f"alike-{n}", title=f"alike {n}") for n in range(3)]
    conversations = _file(tmp_path / "c.json", [*_conversations(3), *alike, {"mapping": {}}])
    facts = [
        exports.row(1, "the password: hunter2!x opens it"),
        exports.row(2, "likes tea"),
        exports.row(3, "likes tea", namespace="work"),
        exports.row(4, "Likes  tea"),
        exports.row(5, "x", subject="s" * 5_000),
    ]
    for path in (conversations, _rows(tmp_path / "rows.jsonl", *facts)):
        told = []
        for dry_run in (True, False):
            report = asdict(await imported(memory, path, dry_run=dry_run, measure=Memorability()))
            assert memory_home.exists() == (not dry_run or path != conversations)
            assert report.pop("dry_run") == dry_run
            told.append(report | {"sessions": [{**each, "id": ""} for each in report["sessions"]]})
        assert told[0] == told[1]
        assert told[0]["already"]


async def test_the_zip_of_an_export_is_read_as_it_comes(memory: MemorySystem, tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("chat.html", "<html>")
        for number, said in enumerate(("hi", "hello")):
            talk = exports.claude(exports.claude_message("human", said), key=f"k-{number}")
            archive.writestr(f"conversations-{number:03}.json", exports.as_bytes([talk]))
        archive.writestr("memories.json", exports.as_bytes([{"conversations_memory": "Sam bakes bread."}]))
    report = await imported(memory, path)
    assert (report.kind, len(report.sessions), report.memories) == ("claude", 2, 1)
    [hit] = await memory.memory().search("who bakes?")
    assert hit.observation.source == "import:claude"
    again = await imported(memory, path)
    assert (again.sessions, again.memories, again.already) == ([], 0, 3)
    with zipfile.ZipFile(path, "w") as archive:  # Claude's exports of 2026 have an archive for each category
        archive.writestr("memories/a.json", exports.as_bytes({"memory_files": [{"path": "/b.md", "content": "rye"}]}))
        archive.extractall(tmp_path / "unpacked")
    assert (await imported(memory, path)).memories == 1
    talk = exports.claude(exports.claude_message("human", "hi"), key="k-0")
    _file(tmp_path / "unpacked" / "conversations.json", [talk])
    assert (await imported(memory, tmp_path / "unpacked")).already == 2


async def test_imports_are_the_callers_classified_marked_without_secrets(memory: MemorySystem, tmp_path: Path) -> None:
    facts = [exports.row(1, "the password: hunter2!x opens it"), exports.row(2, "likes tea", namespace="work")]
    path = _rows(tmp_path / "rows.jsonl", *facts)
    for added, already, redacted in ((2, 0, {"password": 1}), (0, 2, {})):
        report = await imported(memory, path, sensitivity="secret")
        assert (report.memories, report.already, dict(report.redacted)) == (added, already, redacted)
    assert await memory.memory().search("tea") == []
    rows = await memory.memory().within(across=True).every(sensitivities=["secret"])
    assert {(row.namespace, row.visibility, row.source) for row in rows} == {("", "private", "import:bundle")}
    assert sorted(row.metadata["imported_key"] for row in rows) == [each["id"] for each in facts]
    assert memory.home is not None
    assert b"hunter2" not in (memory.home / "observations.jsonl").read_bytes()


async def test_a_row_that_no_store_can_keep_stops_no_other(memory: MemorySystem, tmp_path: Path) -> None:
    facts = [
        exports.row(1, "x", subject="s" * 5_000),
        exports.row(2, "y", metadata={"deep": json.loads("[" * 200 + "]" * 200)}),
        exports.row(3, "likes tea"),
        exports.row(4, "\ud800 lone"),
    ]
    report = await imported(memory, _rows(tmp_path / "rows.jsonl", *facts))
    assert (report.memories, [each.what[-6:] for each in report.skipped]) == (1, ["line 2", "line 3", "line 5"])


async def test_who_sees_nothing_or_keeps_no_memories_writes_none_and_says_so(memory_home: Path, tmp_path: Path) -> None:
    path = _rows(tmp_path / "rows.jsonl", exports.row(1, "likes tea"))
    async with MemorySystem(memory_home, Caller(clearance="public")) as memory:
        for remembers, why in ((True, "public"), (False, "the agent keeps no memories")):
            report = await imported(memory, path, remembers=remembers)
            assert report.memories == 0
            assert [why in each.why for each in report.skipped] == [True]


async def test_an_agent_without_a_transcript_takes_in_no_session(memory: MemorySystem, tmp_path: Path) -> None:
    path = _file(tmp_path / "c.json", _conversations(1))
    with pytest.raises(UnsupportedOperation):
        await imported(memory, path, agent="bare")
    assert await memory.list_sessions() == []


async def test_what_is_remembered_goes_out_and_comes_in_elsewhere_as_is(memory: MemorySystem, tmp_path: Path) -> None:
    mine = memory.memory("chat")
    source = (await mine.remember("Tea is at four", tags=["tea"], type="decision", importance=0.9)).id
    await mine.within(namespace="work").remember("# Merge\nfast", narrative="# not a title", people=["Ida"])
    await mine.remember("a brief of it", derived_from=[source])
    await mine.remember("only for me", sensitivity="private")
    await mine.remember("for nobody", sensitivity="secret")
    await mine.store_fact("Ida", "likes", "tea", source=source)
    await mine.store_fact("Ada", "lives-in", "London")
    exported = await export_memories(mine.within(across=True), NOT_SECRET)
    assert (len(exported.observations), len(exported.facts)) == (4, 2)
    file = tmp_path / "memories.jsonl"
    file.write_text(render_memories(exported, "jsonl"), encoding="utf-8")
    assert (await imported(memory, file)).already == 4
    async with MemorySystem(tmp_path / "elsewhere") as other:
        assert (await imported(other, file, dry_run=True)).memories == 4
        report = await imported(other, file)
        assert (report.kind, report.memories, report.facts, report.skipped) == ("bundle", 4, 2, [])
        again = await imported(other, file)
        assert (again.memories, again.facts, again.already) == (0, 0, 4)
        came = {row.title: row for row in await other.memory("chat").every(sensitivities=NOT_SECRET)}
        assert (came["Tea is at four"].tags, came["Tea is at four"].type) == (("tea",), "decision")
        assert came["a brief of it"].derived_from == (came["Tea is at four"].id,)
        assert (came["# Merge fast"].people, came["only for me"].sensitivity) == (("Ida",), "private")
        [fact] = await other.memory("chat").query_facts(subject="Ida")
        assert fact.source == came["Tea is at four"].id


async def test_a_file_of_memories_is_a_strangers_word(memory: MemorySystem, tmp_path: Path) -> None:
    async with MemorySystem(tmp_path / "elsewhere") as other:
        theirs = other.memory("chat")
        await theirs.remember("for everybody", visibility="social")
        await theirs.remember("of unknown class")
        text = render_memories(await export_memories(theirs, NOT_SECRET), "jsonl")
    *rows, _ = [json.loads(line) for line in text.splitlines()]
    del rows[2]["sensitivity"]
    broken = ["{", '{"kind": "observation"}', '{"kind": "nonsense"}', "[1]", '{"kind": "end"}']
    lines = [*(json.dumps(row) for row in rows), *broken]
    file = tmp_path / "memories.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    report = await imported(memory, file)
    assert (report.memories, [each.what for each in report.skipped]) == (
        1,
        [*(f"{file}, line {at}" for at in (4, 5, 6, 7)), rows[2]["id"]],
    )
    assert report.skipped[1].why == "not of this format: it has no 'id'"
    [row] = await memory.memory("chat").every(sensitivities=NOT_SECRET)
    assert (row.title, row.visibility) == ("for everybody", "private")
    file.write_text('{"kind": "memories", "format": 99}\n', encoding="utf-8")
    with pytest.raises(LaterFormat, match="later release"):
        await imported(memory, file)


async def test_no_file_changes_a_profile_or_what_was_said_last(memory: MemorySystem, tmp_path: Path) -> None:
    owner = memory.memory("chat")
    await owner.remember_all([Draft(type="exchange", user_text="I live in Berlin.", source="chat")])
    old = await owner.remember("I live in Berlin", source="user")
    await owner.remember_all([Draft(type="exchange", user_text="I moved to Lisbon.", source="chat")])
    await owner.profile_set("home", "Lisbon")
    [before] = await owner.profile("home")
    forged = {"held": {"value": "Mars City"}, "kind": "line", "line": "home"}
    row = before.row.as_json()
    lines = [
        {"kind": "memories", "format": 1},
        {"kind": "observation"} | row | {"id": row["id"][:-4] + "ffff", "metadata": forged},
        {"kind": "observation"} | row | {"id": row["id"][:-4] + "eeee", "metadata": forged, "title": "home: Mars City"},
        {"kind": "observation", "id": row["id"][:-4] + "dddd", "created_at": row["created_at"]}
        | {"updated_at": row["updated_at"], "sensitivity": "public", "title": "I live in Berlin", "source": "chat"},
        {"kind": "end"},
    ]
    path = tmp_path / "forged.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    for _ in range(2):
        await imported(memory, path)
    assert await owner.profile("home") == [before]
    [proposal] = await owner.profile_proposals()
    assert proposal.title == "home: Mars City"
    [kept] = await owner.get([old.id])
    assert (kept.mention_count, kept.last_mentioned_at) == (0, None)
    hits = {hit.id: hit for hit in (await owner.recall("Do I live in Berlin or Lisbon?")).hits}
    [lisbon] = [hit for hit in hits.values() if hit.observation and "Lisbon" in hit.observation.user_text]
    assert hits.keys() >= {old.id, lisbon.id}
    assert (await owner.profile_accept(proposal.id)).outcome == "added"
    assert [line.value for line in await owner.profile("home")] == ["Mars City"]
    assert await owner.profile_proposals() == []
