"""Bundles: what goes out comes in again, and nothing comes in that is not what its manifest says."""

import hashlib
import io
import json
import stat
import zipfile
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.scope import CHOICES, Caller
from chatbot.stores import transcript
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import DamagedFile, LaterFormat, StoreError, UnsafePath
from chatbot.transfer import Importer, ImportReport, export_session, open_source
from chatbot.transfer.bundle import BundleWriter
from chatbot.transfer.exports import render_session

STORES = ["basic_session", "observations"]
NOW = datetime(2026, 1, 2, tzinfo=UTC)
Files = dict[str, bytes]


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
    await made.kv_set("working_memory", "tea")
    await made.receipt_append({"turn": "t1", "session": made.id, "calls": [{"cost_usd": 0.5}], "memory": {"x": 1}})
    await made.memory.remember("Sam likes tea", type="preference", tags=["drinks"])
    await made.memory.remember("a private matter", sensitivity="private")
    await made.memory.remember("a secret matter", sensitivity="secret")
    await made.memory.store_fact("Sam", "likes", "tea")
    return made


async def _bundle(memory: MemorySystem, path: Path, *ids: str, memories: bool = True) -> Path:
    with path.open("wb") as file:
        writer = BundleWriter(file, now=NOW)
        for each in ids:
            writer.add(await export_session(memory, each, memories=memories))
        writer.close()
    return path


async def _import(memory: MemorySystem, path: Path, **options: Any) -> ImportReport:
    agents = {"chat": ["basic_session", "observations"]}
    return await Importer(memory, agent="chat", agents=agents, **options).run(open_source(path, "bundle"))


def _files(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(path: Path, files: Files, *, rehash: bool = True, **manifest: Any) -> Path:
    """The files as a bundle, with a manifest that is right but for what is asked for."""
    told = json.loads(files["manifest.json"])
    if rehash:
        told["files"] = {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
            if name != "manifest.json"
        }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (files | {"manifest.json": json.dumps(told | manifest).encode()}).items():
            archive.writestr(name, data)
    return path


async def test_a_session_comes_in_as_it_went_out(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    path = await _bundle(memory, tmp_path / "b.zip", session.id)
    report = await _import(other, path)
    assert (len(report.sessions), report.memories, report.facts, report.skipped) == (1, 2, 1, [])
    copy = await other.load_session(session.id, "chat")
    assert await copy.transcript_read_all() == await session.transcript_read_all()
    assert await copy.working_memory_read() == "tea"
    assert [receipt["turn"] for receipt in await copy.receipts()] == ["t1"]
    assert (copy.record.title, copy.record.created_at) == (session.record.title, session.record.created_at)
    rows = await copy.memory.every(ask=SENSITIVITIES, session_id=session.id)
    assert {row.title for row in rows} == {"Sam likes tea", "a private matter"}
    assert {row.source for row in rows} == {"import:bundle"}
    assert [fact.object for fact in await copy.memory.query_facts(subject="Sam")] == ["tea"]


async def test_a_bundle_comes_in_once(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    path = await _bundle(memory, tmp_path / "b.zip", session.id)
    for target in (memory, other, other):
        await _import(target, path)
    assert len(await memory.list_sessions()) == len(await other.list_sessions()) == 1
    assert len(await other.memory().every(ask=SENSITIVITIES)) == 2
    assert len(await memory.memory().every(ask=SENSITIVITIES)) == 3


async def test_an_id_that_is_taken_by_another_session_is_left_to_it(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    path = await _bundle(memory, tmp_path / "b.zip", session.id)
    await _import(other, path)
    there = await other.load_session(session.id, "chat")
    await there.transcript_drop_last(2)
    await there.transcript_append("user", "another way")
    assert len((await _import(other, path)).sessions) == 0  # it came from here
    files = _files(path)
    name = f"sessions/{session.id}/transcript.md"
    changed = _write(tmp_path / "c.zip", files | {name: files[name].replace(b"entry 7", b"entry seven")})
    for _ in range(2):
        await _import(other, changed)
    assert len(await other.list_sessions()) == 2
    assert [entry.content for entry in await there.transcript_read_last(1)] == ["another way"]


async def test_no_secret_goes_out(memory: MemorySystem, session: SessionHandle, tmp_path: Path) -> None:
    await session.transcript_append("user", "my password: hunter2!x opens it")
    await session.kv_set("note", "password: hunter2!x")
    exported = await export_session(memory, session.id)
    assert exported.redacted == ("password",)
    bundle = b"".join(_files(await _bundle(memory, tmp_path / "b.zip", session.id)).values())
    for text in (bundle, *(render_session(exported, form).encode() for form in ("markdown", "jsonl", "html"))):
        assert b"hunter2" not in text
        assert b"a secret matter" not in text


async def test_what_the_caller_may_not_see_stays_behind(memory: MemorySystem, memory_home: Path) -> None:
    session = await memory.cleared_for("inner").create_session(STORES, "chat")
    await session.memory.remember("a shared matter")
    await memory.memory("chat", session_id=session.id).remember("a private matter")
    async with MemorySystem(memory_home, Caller(clearance="inner")) as inner:
        exported = await export_session(inner, session.id)
    assert [row.title for row in exported.remembered.observations] == ["a shared matter"]


async def test_memories_stay_behind_when_they_are_not_wanted(
    memory: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    files = _files(await _bundle(memory, tmp_path / "b.zip", session.id, memories=False))
    assert not any(name.endswith(("observations.jsonl", "facts.jsonl")) for name in files)
    assert b'"memory"' not in files[f"sessions/{session.id}/receipts.jsonl"]


async def test_the_same_session_gives_the_same_bytes(
    memory: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    first, second = [await _bundle(memory, tmp_path / name, session.id) for name in ("a.zip", "b.zip")]
    assert first.read_bytes() == second.read_bytes()


def _hostile_name(name: str) -> Callable[[Files], Files]:
    return lambda files: files | {name: b"x"}


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        (_hostile_name("../../evil"), UnsafePath, "points outside"),
        (_hostile_name("/etc/passwd"), UnsafePath, "points outside"),
        (_hostile_name("sessions\\..\\evil"), UnsafePath, "points outside"),
        (_hostile_name("C:evil"), UnsafePath, "points outside"),
        (_hostile_name("sessions/x/session.json"), DamagedFile, "unexpected file"),
        (_hostile_name("extra.txt"), DamagedFile, "unexpected file"),
        (
            lambda files: {name: data for name, data in files.items() if "session.json" not in name},
            DamagedFile,
            "parsed",
        ),
    ],
)
async def test_a_bundle_with_a_hostile_name_is_refused(  # noqa: PLR0917 - what happens, and to whom
    memory: MemorySystem,
    other: MemorySystem,
    session: SessionHandle,
    tmp_path: Path,
    change: Callable[[Files], Files],
    error: type[StoreError],
    named: str,
) -> None:
    files = _files(await _bundle(memory, tmp_path / "b.zip", session.id))
    with pytest.raises(error, match=named):
        await _import(other, _write(tmp_path / "h.zip", change(files)))
    assert await other.list_sessions() == []


async def test_a_bundle_that_is_not_what_it_says_is_refused(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    files = _files(await _bundle(memory, tmp_path / "b.zip", session.id))
    name = f"sessions/{session.id}/transcript.md"
    for changed, error, named in (
        (
            _write(tmp_path / "1.zip", files | {name: files[name].replace(b"entry", b"antry")}, rehash=False),
            DamagedFile,
            "SHA-256",
        ),
        (_write(tmp_path / "2.zip", files | {name: files[name] + b"x"}, rehash=False), DamagedFile, "another size"),
        (
            _write(tmp_path / "3.zip", {key: files[key] for key in files if key != name}, rehash=False),
            DamagedFile,
            "differ",
        ),
        (_write(tmp_path / "4.zip", files | {"extra": b"x"}, rehash=False), DamagedFile, "differ"),
        (_write(tmp_path / "5.zip", files, version=3), LaterFormat, "later release"),
        (_write(tmp_path / "6.zip", files, version="1"), DamagedFile, "invalid"),
        (_write(tmp_path / "7.zip", files, sessions=["../.."]), DamagedFile, "invalid"),
        (_write(tmp_path / "8.zip", files, sessions=[session.id] * 2), DamagedFile, "invalid"),
        (
            _write(tmp_path / "9.zip", files | {name.replace("transcript.md", "kv.json"): b"{"}),
            DamagedFile,
            "parsed",
        ),
    ):
        with pytest.raises(error, match=named):
            await _import(other, changed)
    assert await other.list_sessions() == []


async def test_links_bombs_and_names_that_stand_twice_are_refused(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    path = await _bundle(memory, tmp_path / "b.zip", session.id)
    name = f"sessions/{session.id}/kv.json"
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    for number, (member, data, error, named) in enumerate(
        (
            (link, b"/etc/passwd", UnsafePath, "symbolic link"),
            (zipfile.ZipInfo("bomb"), bytes(64 << 20), DamagedFile, "would unpack to"),
            (zipfile.ZipInfo(name), b"{}", DamagedFile, "more than once"),
        )
    ):
        hostile = tmp_path / f"{number}.zip"
        hostile.write_bytes(path.read_bytes())
        with zipfile.ZipFile(hostile, "a", zipfile.ZIP_DEFLATED) as archive, pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_args, **_options: None)  # that a name stands twice is the point
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)
        with pytest.raises(error, match=named):
            await _import(other, hostile)
    assert await other.list_sessions() == []


async def test_what_a_bundle_says_opens_no_gate(memory: MemorySystem, session: SessionHandle, tmp_path: Path) -> None:
    files = _files(await _bundle(memory, tmp_path / "b.zip", session.id))
    folder = f"sessions/{session.id}"
    record = json.loads(files[f"{folder}/session.json"])
    row = json.loads(files[f"{folder}/observations.jsonl"].splitlines()[0])
    rows = [
        row | {"id": f"{row['id'][:-1]}{number}", "title": f"row {word}", "visibility": "social", "sensitivity": word}
        for number, word in enumerate(SENSITIVITIES)
    ]
    receipts = [
        {"turn": "t", "calls": [{"cost_usd": -1e9}]},
        {"turn": "t", "calls": [{"cost_usd": float("inf")}]},
        {"turn": "t", "calls": [{"output_tokens": 10**400}]},
        {"turn": 7, "calls": []},
        {"turn": "t", "calls": [7]},
        {"turn": "t", "calls": [{"cost_usd": 0.1}], "session": "another"},
    ]
    hostile = _write(
        tmp_path / "h.zip",
        files
        | {
            f"{folder}/session.json": json.dumps(
                record | {"store_types": ["evil:Store"], "agent_id": "root", "clearance": "full", "origin": "chatgpt:x"}
            ).encode(),
            f"{folder}/observations.jsonl": b"nonsense\n" + b"\n".join(json.dumps(each).encode() for each in rows),
            f"{folder}/receipts.jsonl": b"\n".join(json.dumps(each).encode() for each in receipts),
        },
    )
    async with MemorySystem(tmp_path / "inner", Caller(clearance="inner")) as inner:
        report = await _import(inner, hostile)
        [kept] = await inner.list_sessions()
        assert (kept.agent_id, kept.store_types, kept.clearance) == ("chat", ("basic_session", "observations"), "inner")
        found = await inner.memory().every(ask=SENSITIVITIES)
        assert {(row.title, row.visibility) for row in found} == {("row public", "shared"), ("row private", "shared")}
        assert len(report.skipped) == 4  # the broken lines, the private fact, the secret row, the one that is unknown
        loaded = await inner.load_session(kept.id, "chat")
        assert [receipt["session"] for receipt in await loaded.receipts()] == [kept.id]


async def test_a_bundled_session_brings_its_own_model_and_persona_only_if_it_is_trusted(
    memory: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    await session.kv_set(CHOICES, json.dumps({"model": "gpt-5", "persona": "Obey.", "memory": False}))
    bundle = await _bundle(memory, tmp_path / "one.zip", session.id)
    for trust, chosen in ((False, {"memory": False}), (True, {"model": "gpt-5", "persona": "Obey.", "memory": False})):
        async with MemorySystem(tmp_path / f"trust {trust}") as other:
            report = await _import(other, bundle, trust=trust)
            assert [each.why for each in report.skipped] == ([] if trust else ["accept them with --trust"])
            [record] = await other.list_sessions()
            kept = await (await other.load_session(record.id, any_agent=True)).kv_get(CHOICES)
            assert json.loads(kept or "") == chosen


async def test_a_bundle_that_is_trusted_keeps_who_may_see_it(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    await session.memory.remember("for everybody", visibility="social")
    path = await _bundle(memory, tmp_path / "b.zip", session.id)
    await _import(other, path, trust=True)
    [row] = await other.memory().within(clearance="familiar").every()
    assert row.title == "for everybody"


@pytest.mark.parametrize("times", [1, 2])
async def test_what_was_derived_is_so_there_too(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path, times: int
) -> None:
    said = await session.memory.remember(type="exchange", user_text="My cat is called Zebedee", visibility="social")
    fact = await session.memory.remember("Sam's cat is Zebedee", visibility="social", derived_from=[said.id])
    await session.memory.remember("What was said of cats", visibility="social", derived_from=[fact.id])
    await session.memory.store_fact("Zebedee", "is", "a cat", source=said.id, visibility="social")
    await session.memory.update(said.id, sensitivity="private")
    path = await _bundle(memory, tmp_path / "b.zip", session.id)
    for _ in range(times):
        await _import(other, path, trust=True)
    assert await other.memory().query_facts(subject="Zebedee") == []
    assert not [row for row in await other.memory().every() if "cat" in row.text()]
    assert len(await other.memory().query_facts(subject="Zebedee", ask=SENSITIVITIES)) == 1
    [there] = (await other.memory().list_observations(types=["exchange"], ask=SENSITIVITIES)).rows
    assert len(await other.memory().purge(there.id)) == 4  # with the fact
    assert await other.memory().query_facts(subject="Zebedee", ask=SENSITIVITIES) == []
    assert not [row for row in await other.memory().every(ask=SENSITIVITIES) if "cat" in row.text()]


async def test_markdown_can_be_read_back(memory: MemorySystem, session: SessionHandle) -> None:
    exported = await export_session(memory, session.id, memories=False)
    assert transcript.parse(render_session(exported, "markdown").encode()) == await session.transcript_read_all()


async def test_json_lines_hold_it_all(memory: MemorySystem, session: SessionHandle) -> None:
    lines = [
        json.loads(line) for line in render_session(await export_session(memory, session.id), "jsonl").splitlines()
    ]
    kinds = [line["kind"] for line in lines]
    assert kinds == ["session", *["entry"] * 8, *["observation"] * 2, "fact"]
    assert lines[1]["number"] == 1


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


async def test_a_page_is_whole_by_itself_and_runs_nothing(memory: MemorySystem, session: SessionHandle) -> None:
    page = render_session(await export_session(memory, session.id), "html")
    parser = _Tags()
    parser.feed(page)
    assert {tag for tag, _ in parser.tags}.isdisjoint({"script", "link", "img", "iframe", "b c"})
    assert all("src" not in attributes and "onload" not in attributes for _, attributes in parser.tags)
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in parser.tags)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "Tea &amp; &lt;b&gt;cake" in page


def test_an_empty_bundle_is_one_too() -> None:
    file = io.BytesIO()
    BundleWriter(file, now=NOW).close()
    assert json.loads(zipfile.ZipFile(file).read("manifest.json"))["sessions"] == []


async def test_attachments_go_out_and_come_in_with_their_session(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path
) -> None:
    [name] = await session.attach([(b"\x89PNG photo", ".png")])
    await session.transcript_append("user", f"look\n\n[photo.png](attachments/{name})")
    path = await _bundle(memory, tmp_path / "b.zip", session.id)
    await _import(other, path)
    copy = await other.load_session(session.id, "chat")
    assert await copy.attachment(name) == b"\x89PNG photo"
    assert (await copy.transcript_read_all())[-1].content.endswith(f"(attachments/{name})")


@pytest.mark.parametrize(
    "name", ["attachments/notes.png", f"attachments/{'a' * 32}.html", f"attachments/{'a' * 32}.png", "other/x.png"]
)
async def test_an_attachment_that_is_not_what_its_name_says_is_refused(
    memory: MemorySystem, other: MemorySystem, session: SessionHandle, tmp_path: Path, name: str
) -> None:
    files = _files(await _bundle(memory, tmp_path / "b.zip", session.id))
    path = _write(tmp_path / "c.zip", files | {f"sessions/{session.id}/{name}": b"photo"})
    with pytest.raises(DamagedFile):
        await _import(other, path)
    assert await other.list_sessions() == []
