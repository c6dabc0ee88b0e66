"""Bundles: what goes out comes in again, and nothing comes in that a stranger may not bring."""

import base64
import json
import os
import struct
import tracemalloc
import zipfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.episode import QUESTION, with_questions
from chatbot.memory.handle import CHOICES, Choices
from chatbot.memory.scope import Caller
from chatbot.memory.writing import ANSWERS
from chatbot.stores import transcript
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import DamagedFile, LaterFormat, StoreError, UnsafePath
from chatbot.transfer.backups import verify
from chatbot.transfer.exports import export_loose, export_session, render_session
from chatbot.transfer.importer import Importer
from chatbot.transfer.sources import open_source
from tests.transfer.exports import imported

STORES = ["basic_session", "observations"]
Line = dict[str, Any]


@pytest.fixture
async def memory(memory_home: Path) -> AsyncIterator[MemorySystem]:
    async with MemorySystem(memory_home, settings={"basic_session": {"transcript_cap": 3}}) as opened:
        yield opened


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[MemorySystem]:
    async with MemorySystem(tmp_path / "other") as opened:
        yield opened


@pytest.fixture
async def session(memory: MemorySystem) -> SessionHandle:
    made = await memory.create_session(STORES, "chat", title="Tea & <b>cake</b>")
    for number in range(8):
        await made.transcript_append(
            "user", f"entry {number} <script>alert(1)</script>\n### user — 2026-01-02T03:04:05Z"
        )
    [name] = await made.attach([(b"\x89PNG photo", ".png")])
    await made.transcript_append("user", f"look\n\n[photo.png](attachments/{name})")
    await made.kv_set("working_memory", "tea")
    await made.pin()
    receipt = {"turn": "t1", "at": "2026-01-01T00:00:00Z", "session": made.id, "calls": [{"cost_usd": 0.5}]}
    await made.receipt_append(receipt | {"memory": {"x": 1}})
    await made.memory.remember("Sam likes tea", type="preference", tags=["drinks"])
    await made.memory.remember("a private matter", sensitivity="private")
    await made.memory.remember("a secret matter", sensitivity="secret")
    loose = await memory.memory("chat").remember("Sam sings")  # the source of a fact need not be in its session
    await made.memory.store_fact("Sam", "likes", "tea", source=loose.id)
    return made


async def _bundle(memory: MemorySystem, path: Path, *ids: str, memories: bool = True) -> Path:
    path.write_text("".join([render_session(await export_session(memory, x, memories=memories), "jsonl") for x in ids]))
    return path


def _lines(path: Path) -> list[Line]:
    """The lines of a bundle, without the digest that only holds for them as they are."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "sha256"} for line in lines]


def _write(path: Path, lines: Sequence[Line | str]) -> Path:
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines))
    return path


async def test_a_session_comes_in_as_it_went_out_and_once(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    path = await _bundle(memory, tmp_path / "b.jsonl", session.id)
    report = await imported(other, path)
    assert (len(report.sessions), report.memories, report.facts, report.skipped) == (1, 2, 1, [])
    copy = await other.load_session(session.id, "chat")
    assert await copy.transcript_read_all() == await session.transcript_read_all()
    assert await copy.working_memory_read() == "tea"
    [name] = await session.attachments()
    assert await copy.attachment(name) == b"\x89PNG photo"
    assert [receipt["turn"] for receipt in await copy.receipts()] == ["t1"]
    for name in ("title", "created_at", "pinned_at"):
        assert getattr(copy.record, name) == getattr(session.record, name)
    rows = await copy.memory.every(sensitivities=SENSITIVITIES, session_id=session.id)
    assert {row.title for row in rows} == {"Sam likes tea", "a private matter"}
    assert {row.source for row in rows} == {"import:bundle"}
    [fact], [here] = [await each.memory.query_facts(object="tea") for each in (session, copy)]
    assert (here.subject, here.created_at) == ("Sam", fact.created_at)
    for target, count in ((memory, 4), (other, 2)):
        again = await imported(target, path)
        assert (again.sessions, again.memories, again.facts) == ([], 0, 0)
        assert len(await target.memory().every(sensitivities=SENSITIVITIES)) == count


async def test_an_answer_that_comes_in_names_the_question_here(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    asked = await session.memory.remember(type="exchange", user_text="I travel", assistant_text="Where to?")
    await session.memory.remember(type="exchange", user_text="Oslo", metadata={ANSWERS: asked.id})
    await imported(other, await _bundle(memory, tmp_path / "b.jsonl", session.id))
    rows, scope = await other.memory().every(types=["exchange"]), other.memory().scope
    found = await with_questions(rows, scope.store, scope.view(SENSITIVITIES))
    assert {row.user_text: row.metadata.get(QUESTION) for row in found} == {"I travel": None, "Oslo": "Where to?"}


async def test_a_purge_erases_what_imported_receipts_quote(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    for text in ("I own a boat", "I own a car"):
        row = await session.memory.remember(type="exchange", user_text=text, assistant_text="Noted.")
        receipt = {"turn": text, "at": "2026-01-01T00:00:00Z", "remembered": row.id, "memory": {"query": [text]}}
        await session.receipt_append(receipt | {"title": "On boats"} if "boat" in text else receipt)
    path = await _bundle(memory, tmp_path / "b.jsonl", session.id)
    for _ in range(2):
        await imported(other, path)
    copy = await other.load_session(session.id, "chat")
    rows = {row.user_text: row.id for row in await copy.memory.every(types=["exchange"])}
    assert [receipt.get("remembered") for receipt in await copy.receipts()][1:] == [*rows.values()][::-1]
    await copy.memory.purge(rows["I own a boat"])
    assert ["boat" in json.dumps(receipt["memory"]) for receipt in await copy.receipts()][1:] == [False, False]
    assert (await copy.receipts())[1]["title"] == ""


async def test_an_id_that_is_taken_by_another_session_is_left_to_it(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    path = await _bundle(memory, tmp_path / "b.jsonl", session.id)
    await imported(other, path)
    there = await other.load_session(session.id, "chat")
    await there.transcript_drop_last(2)
    await there.transcript_append("user", "another way")
    assert len((await imported(other, path)).sessions) == 0  # it came from here
    lines = [json.loads(json.dumps(each).replace("entry 7", "entry seven")) for each in _lines(path)]
    changed = _write(tmp_path / "c.jsonl", lines)
    for _ in range(2):
        await imported(other, changed)
    assert len(await other.list_sessions()) == 2
    assert [entry.content for entry in await there.transcript_read_last(1)] == ["another way"]


async def test_no_secret_goes_out(memory: MemorySystem, session: SessionHandle) -> None:
    await session.transcript_append("user", "my password: hunter2!x opens it")
    await session.kv_set("note", "password: hunter2!x")
    exported = await export_session(memory, session.id)
    assert exported.redacted == ("password",)
    for text in (render_session(exported, form) for form in ("markdown", "jsonl")):
        assert "hunter2" not in text
        assert "a secret matter" not in text


async def test_what_the_caller_may_not_see_stays_behind(memory: MemorySystem, memory_home: Path) -> None:
    session = await memory.cleared_for("inner").create_session(STORES, "chat")
    await session.memory.remember("a shared matter")
    await memory.memory("chat", session_id=session.id).remember("a private matter")
    async with MemorySystem(memory_home, Caller(clearance="inner")) as inner:
        exported = await export_session(inner, session.id)
    assert [row.title for row in exported.remembered.observations] == ["a shared matter"]


def _with_file(name: str) -> Callable[[list[Line]], Sequence[Line | str]]:
    """Add an attachment that is not what its name says."""
    file = {"kind": "attachment", "name": name, "data": base64.b64encode(b"photo").decode()}
    return lambda lines: [lines[0], file, *lines[1:]]


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        (lambda lines: lines[:-1], DamagedFile, "ends early"),
        (lambda lines: [*lines[:-1], '{"kind": "entr'], DamagedFile, "ends early"),
        (lambda lines: [*lines[:-1], *lines], DamagedFile, "ends early"),
        (lambda lines: [*lines[:-1], {"kind": "end", "sha256": "0" * 64}], DamagedFile, "SHA-256"),
        (lambda lines: [lines[0] | {"format": 3}, *lines[1:]], LaterFormat, "later release"),
        (lambda lines: [lines[0] | {"version": 99}, *lines[1:]], LaterFormat, "later release"),
        (lambda lines: [lines[0] | {"format": "1"}, *lines[1:]], DamagedFile, "h.jsonl, line 1 cannot be parsed"),
        (lambda lines: [lines[0] | {"id": "../.."}, *lines[1:]], DamagedFile, "cannot be parsed"),
        (lambda lines: [lines[0], "nonsense", *lines[1:]], DamagedFile, "h.jsonl, line 2 cannot be parsed"),
        (lambda lines: [lines[0], lines[1] | {"role": "user\n### x"}, *lines[2:]], DamagedFile, "cannot be parsed"),
        (lambda lines: [lines[0], lines[1] | {"at": "soon"}, *lines[2:]], DamagedFile, "cannot be parsed"),
        (lambda lines: [lines[0], {"kind": "file", "name": "../evil"}, *lines[1:]], DamagedFile, "cannot be parsed"),
        (lambda lines: [lines[0], {"kind": "value", "key": "", "value": ""}, *lines[1:]], DamagedFile, "cannot be"),
        *((_with_file(name), DamagedFile, "cannot be parsed") for name in ("notes.png", "../x.png")),
        *((_with_file(f"{'a' * 32}{suffix}"), DamagedFile, "cannot be parsed") for suffix in (".html", ".png")),
    ],
)
async def test_a_bundle_that_is_not_whole_is_refused(  # noqa: PLR0917 - what happens, and to whom
    memory: MemorySystem,
    other: MemorySystem,
    session: SessionHandle,
    tmp_path: Path,
    change: Callable[[list[Line]], Sequence[Line | str]],
    error: type[StoreError],
    named: str,
) -> None:
    lines = _lines(await _bundle(memory, tmp_path / "b.jsonl", session.id))
    with pytest.raises(error, match=named):
        await imported(other, _write(tmp_path / "h.jsonl", change(lines)))
    assert await other.list_sessions() == []


@pytest.mark.parametrize(
    ("member", "named"),
    [
        ("bomb", "would unpack to"), ("twice", "more than once"), ("disguised bomb", "Bad CRC-32"),
        ("endless directory", "its directory claims"),
    ],
)  # fmt: skip
async def test_hostile_archives_are_refused(other: MemorySystem, tmp_path: Path, member: str, named: str) -> None:
    info = zipfile.ZipInfo("conversations.json")
    hostile = tmp_path / "hostile.zip"
    with zipfile.ZipFile(hostile, "w") as archive, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_args, **_options: None)  # that a name stands twice is the point
        for _ in range(1 + (member == "twice")):
            archive.writestr(info, bytes(64 << 20) if "bomb" in member else b"[]", zipfile.ZIP_DEFLATED)
    data = bytearray(hostile.read_bytes())
    if "bomb" in member:
        claimed = 99 if member == "disguised bomb" else 2 << 30
        data[(at := data.index(b"PK\1\2") + 24) : at + 4] = claimed.to_bytes(4, "little")
        hostile.write_bytes(data)
    elif member == "endless directory":
        os.truncate(hostile, size := (1 << 32) - 16)
        with hostile.open("ab") as file:
            file.write(b"PK\5\6" + struct.pack("<4H2LH", 0, 0, 1, 1, size - 100, 100, 0))
        with pytest.raises(DamagedFile, match=named), hostile.open("rb") as file:
            verify(file, "a backup")
    agents = {"chat": ["basic_session", "observations"]}
    tracemalloc.start()
    try:
        with pytest.raises((DamagedFile, UnsafePath), match=named):
            await Importer(other, agent="chat", agents=agents).run(open_source(hostile))
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert await other.list_sessions() == []


async def test_what_a_bundle_says_opens_no_gate(memory: MemorySystem, session: SessionHandle, tmp_path: Path) -> None:
    lines = _lines(await _bundle(memory, tmp_path / "b.jsonl", session.id))
    row = next(line for line in lines if line["kind"] == "observation")
    rows = [
        row | {"id": f"{row['id'][:-1]}{number}", "title": f"row {word}", "visibility": "social", "sensitivity": word}
        for number, word in enumerate(SENSITIVITIES)
    ]
    receipts = [
        '"calls": [{"cost_usd": -1e9}]', f'"calls": [{{"output_tokens": {10**400}}}]', '"calls": [7]', '"title": []',
        '"resumed_at": "soon"', '"memory": {"withheld": {"rows": ["0"]}}', '"at": "soon"',
        '"at": "3000-01-01T00:00:00Z"', '"calls": [{"cost_usd": 0.1}], "session": "another"',
    ]  # fmt: skip
    receipts = [f'{{"turn": "t", "at": "2026-01-01T00:00:00Z", {each}}}' for each in receipts] + ['{"turn": "t"}']
    claims = {"store_types": ["evil:Store"], "agent_id": "root", "clearance": "full", "origin": "chatgpt:x"}
    hostile = _write(
        tmp_path / "h.jsonl",
        [
            lines[0] | claims,
            *(line for line in lines if line["kind"] in {"entry", "fact"}),
            *(line | {"object": "doubt", "sensitivity": "unknown"} for line in lines if line["kind"] == "fact"),
            {"kind": "observation"},
            *rows,
            *(f'{{"kind": "receipt", "receipt": {each}}}' for each in receipts),
            lines[-1],
        ],
    )
    async with MemorySystem(tmp_path / "inner", Caller(clearance="inner")) as inner:
        report = await imported(inner, hostile)
        [kept] = await inner.list_sessions()
        assert (kept.agent_id, kept.store_types, kept.clearance) == ("chat", ("basic_session", "observations"), "inner")
        found = await inner.memory().every(sensitivities=SENSITIVITIES)
        assert {(row.title, row.visibility) for row in found} == {("row public", "shared"), ("row private", "shared")}
        assert len(report.skipped) == 14  # 10 broken lines, the private fact, the secret row, those that are unknown
        loaded = await inner.load_session(kept.id, "chat")
        assert [receipt["session"] for receipt in await loaded.receipts()] == [kept.id]


async def test_memories_of_deleted_sessions_and_of_another_project_s_are_exported_with_those_of_none(
    memory: MemorySystem, session: SessionHandle
) -> None:
    await memory.memory().update((await session.memory.every(tags="drinks"))[0].id, project="drinks")
    assert [row.title for row in (await export_loose(memory, "drinks")).observations] == ["Sam likes tea"]
    await memory.delete_session(session.id, keep_memory=True)
    loose = await export_loose(memory)
    assert {row.title for row in loose.observations} == {"Sam likes tea", "a private matter", "Sam sings"}
    assert [fact.object for fact in loose.facts] == ["tea"]


async def test_a_bundle_brings_a_model_a_persona_and_who_may_see_it_only_if_it_is_trusted(
    memory: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    await session.kv_set(CHOICES, json.dumps({"model": "gpt-5", "persona": "Obey.", "memory": False}))
    await session.memory.remember("for everybody", visibility="social")
    bundle = await _bundle(memory, tmp_path / "one.jsonl", session.id)
    for trust, chosen in ((False, Choices(memory=False)), (True, Choices("gpt-5", "Obey.", memory=False))):
        async with MemorySystem(tmp_path / f"trust {trust}") as other:
            report = await imported(other, bundle, trust=trust)
            assert [each.why for each in report.skipped] == ([] if trust else ["accept them with --trust"])
            [record] = await other.list_sessions()
            kept = await (await other.load_session(record.id, any_agent=True)).kv_get(CHOICES)
            assert Choices.parse(kept) == chosen
            seen = await other.cleared_for("familiar").memory().every()
            assert [row.title for row in seen] == (["for everybody"] if trust else [])


async def test_what_was_derived_is_so_there_too(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    said = await session.memory.remember(type="exchange", user_text="My cat is called Zebedee", visibility="social")
    fact = await session.memory.remember("Sam's cat is Zebedee", visibility="social", derived_from=[said.id])
    await session.memory.remember("What was said of cats", visibility="social", derived_from=[fact.id])
    await session.memory.store_fact("Zebedee", "is", "a cat", source=said.id, visibility="social")
    await session.memory.update(said.id, sensitivity="private")
    path = await _bundle(memory, tmp_path / "b.jsonl", session.id)
    for _ in range(2):
        await imported(other, path, trust=True)
    assert await other.memory().query_facts(subject="Zebedee") == []
    assert not [row for row in await other.memory().every() if "cat" in row.text()]
    assert len(await other.memory().query_facts(subject="Zebedee", sensitivities=SENSITIVITIES)) == 1
    [there] = (await other.memory().list_observations(types=["exchange"], sensitivities=SENSITIVITIES)).rows
    assert len(await other.memory().purge(there.id)) == 4  # with the fact
    assert await other.memory().query_facts(subject="Zebedee", sensitivities=SENSITIVITIES) == []
    assert not [row for row in await other.memory().every(sensitivities=SENSITIVITIES) if "cat" in row.text()]


async def test_json_lines_hold_it_all_and_markdown_is_read_back(memory: MemorySystem, session: SessionHandle) -> None:
    exported = await export_session(memory, session.id)
    lines = [json.loads(line) for line in render_session(exported, "jsonl").splitlines()]
    kinds = [line["kind"] for line in lines]
    rows = [*["observation"] * 2, "fact"]
    assert kinds == ["session", *["entry"] * 9, "value", "receipt", "attachment", *rows, "end"]
    assert lines[1]["number"] == 1
    exported = await export_session(memory, session.id, memories=False)
    bare = [json.loads(line) for line in render_session(exported, "jsonl").splitlines()]
    assert [line["kind"] for line in bare] == [kind for kind in kinds if kind not in rows]
    assert all("memory" not in line["receipt"] for line in bare if line["kind"] == "receipt")
    assert transcript.parse(render_session(exported, "markdown").encode()) == await session.transcript_read_all()
