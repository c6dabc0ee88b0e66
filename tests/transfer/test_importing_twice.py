"""A repeated import changes what came from that very file, and nothing else."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatbot.memory import MemorySystem
from chatbot.transfer import Importer, ImportReport, export_session, open_source
from tests.effort import examples

AGENTS = {"chat": ["basic_session", "observations"]}
Counts = tuple[int, int, int]


@pytest.fixture
async def memory(memory_home: Path) -> AsyncIterator[MemorySystem]:
    async with MemorySystem(memory_home) as opened:
        yield opened


async def _import(memory: MemorySystem, path: Path, *, dry_run: bool = False) -> ImportReport:
    return await Importer(memory, agent="chat", agents=AGENTS, dry_run=dry_run).run(open_source(path))


async def _came(memory: MemorySystem, path: Path) -> Counts:
    """How many memories came in, were changed, and were here already; a dry run must have said so."""
    told = await _import(memory, path, dry_run=True)
    report = await _import(memory, path)
    assert (told.memories, told.changed, told.already) == (report.memories, report.changed, report.already)
    return report.memories, report.changed, report.already


async def _held(memory: MemorySystem) -> list[str]:
    return sorted(f"{row.title}: {row.narrative}".rstrip(": ") for row in await memory.memory().every())


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


async def test_files_that_call_something_alike_stay_apart(memory: MemorySystem, tmp_path: Path) -> None:
    one = _write(tmp_path / "p1" / "CLAUDE.md", "# Project\nhost alpha")
    other = _write(tmp_path / "p2" / "CLAUDE.md", "# Project\nhost beta")
    assert [await _came(memory, each) for each in (one, other, one, other)] == [(1, 0, 0)] * 2 + [(0, 0, 1)] * 2
    assert [await _came(memory, each.parent) for each in (one, other)] == [(0, 0, 1)] * 2
    assert await _held(memory) == ["Project: host alpha", "Project: host beta"]
    _write(other, "# Project\nhost gamma")
    assert await _came(memory, other) == (0, 1, 0)
    assert await _came(memory, one) == (0, 0, 1)
    assert await _held(memory) == ["Project: host alpha", "Project: host gamma"]


@pytest.mark.parametrize("named", ["notes", "notes/", "./notes", "notes/../notes", "link"])
async def test_a_folder_is_the_same_however_it_is_named(
    memory: MemorySystem, tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "notes" / "a.md", "# House\nblue")
    (tmp_path / "link").symlink_to("notes")
    await _came(memory, tmp_path / "notes")
    monkeypatch.chdir(tmp_path)
    assert await _came(memory, Path(named)) == (0, 0, 1)
    _write(tmp_path / "notes" / "a.md", "# House\ngreen")
    assert await _came(memory, Path(named)) == (0, 1, 0)


@pytest.mark.parametrize("moved", ["new/notes/a.md", "notes/deep/a.md", "notes/b.md"])
async def test_what_was_moved_is_known_and_its_edits_are_changes(
    memory: MemorySystem, tmp_path: Path, moved: str
) -> None:
    old = _write(tmp_path / "notes" / "a.md", "# House\nblue\n# Car\nred\n# Bike\ngrey")
    await _came(memory, old)
    new = tmp_path / moved
    new.parent.mkdir(parents=True, exist_ok=True)
    old.rename(new)
    assert await _came(memory, new) == (0, 0, 3)
    _write(new, "# House\ngreen\n# Car\nred\n# Bike\ngrey")
    added, changed, _ = await _came(memory, new)
    assert added + changed == 1
    if new.name == old.name:
        assert await _held(memory) == ["Bike: grey", "Car: red", "House: green"]


async def test_what_was_edited_since_its_file_was_moved_is_added(memory: MemorySystem, tmp_path: Path) -> None:
    old = _write(tmp_path / "notes" / "a.md", "# House\nblue\n# Car\nred\n# Bike\ngrey")
    await _came(memory, old.parent)
    shutil.move(old.parent, tmp_path / "papers")
    _write(tmp_path / "papers" / "a.md", "# House\ngreen\n# Car\nred\n# Bike\ngrey")
    assert await _came(memory, tmp_path / "papers") == (1, 0, 2)
    assert await _held(memory) == ["Bike: grey", "Car: red", "House: blue", "House: green"]


async def test_an_edited_copy_leaves_what_the_other_file_still_says(memory: MemorySystem, tmp_path: Path) -> None:
    one = _write(tmp_path / "p1" / "CLAUDE.md", "# Style\ntabs\n# Host\nalpha")
    other = _write(tmp_path / "p2" / "CLAUDE.md", "# Style\ntabs\n# Host\nbeta")
    assert [await _came(memory, each) for each in (one, other)] == [(2, 0, 0), (1, 0, 1)]
    _write(other, "# Style\nspaces\n# Host\nbeta")
    assert await _came(memory, other) == (1, 0, 1)
    assert [await _came(memory, each) for each in (one, other)] == [(0, 0, 2)] * 2
    assert await _held(memory) == ["Host: alpha", "Host: beta", "Style: spaces", "Style: tabs"]


async def test_sections_that_say_the_same_are_told_apart_when_one_is_edited(
    memory: MemorySystem, tmp_path: Path
) -> None:
    path = _write(tmp_path / "a.md", "# Day\nrain\n# Day\nrain")
    report = await _import(memory, path)
    assert (report.memories, report.already) == (1, 1)
    _write(path, "# Day\nrain\n# Day\nsun")
    assert await _came(memory, path) == (1, 0, 1)
    assert await _held(memory) == ["Day: rain", "Day: sun"]


async def test_sections_of_one_name_that_change_places_are_kept(memory: MemorySystem, tmp_path: Path) -> None:
    path = _write(tmp_path / "a.md", "# Day\nrain\n# Day\nsun")
    await _came(memory, path)
    _write(path, "# Day\nsun\n# Day\nrain")
    assert await _came(memory, path) == (0, 0, 2)
    _write(path, "# Day\nfog\n# Day\nsun\n# Day\nrain")
    assert await _came(memory, path) == (1, 0, 2)
    assert await _held(memory) == ["Day: fog", "Day: rain", "Day: sun"]


async def test_no_bundle_tells_where_our_folders_are(memory: MemorySystem, tmp_path: Path) -> None:
    await _import(memory, _write(tmp_path / "a.md", "# House\nblue"))
    session = await memory.create_session(AGENTS["chat"], "chat")
    await session.transcript_append("user", "hi")
    [row] = await memory.memory().every()
    kept = await session.memory.remember("Of the house", metadata=dict(row.metadata))
    exported = await export_session(memory, session.id)
    assert [each.id for each in exported.remembered.observations] == [kept.id]
    assert str(tmp_path) not in str(exported)


async def test_what_was_forgotten_stays_so_when_its_file_is_moved(memory: MemorySystem, tmp_path: Path) -> None:
    old = _write(tmp_path / "notes" / "a.md", "# House\nblue")
    await _came(memory, old)
    [row] = await memory.memory().every()
    await memory.memory().forget(row.id)
    shutil.move(old.parent, tmp_path / "papers")
    assert await _came(memory, tmp_path / "papers") == (0, 0, 1)
    assert await _held(memory) == []


async def test_what_was_known_already_keeps_what_is_written_of_it(memory: MemorySystem, tmp_path: Path) -> None:
    await memory.memory("chat").remember("House", narrative="blue", metadata={"colour": "yes"})
    path = _write(tmp_path / "a.md", "# House\nblue")
    for _ in range(2):
        assert (await _import(memory, path)).already == 1
    [row] = await memory.memory().every()
    assert row.metadata == {"colour": "yes"}


async def test_what_somebody_said_himself_no_file_changes(memory: MemorySystem, tmp_path: Path) -> None:
    await memory.memory("chat").remember("House", narrative="blue")
    path = _write(tmp_path / "a.md", "# House\nblue\n# Car\nred")
    await _came(memory, path)
    _write(path, "# House\ngreen\n# Car\nred")
    assert await _came(memory, path) == (1, 0, 1)
    _write(path, "# House\ngreen\n# Car\nblue")
    assert await _came(memory, path) == (0, 1, 1)
    assert await _held(memory) == ["Car: blue", "House: blue", "House: green"]


async def test_what_somebody_corrected_no_file_changes(memory: MemorySystem, tmp_path: Path) -> None:
    path = _write(tmp_path / "a.md", "# House\nblue")
    await _came(memory, path)
    [row] = await memory.memory().every()
    await memory.memory("chat").remember(
        "House", narrative="red", metadata=dict(row.metadata), source="user", supersedes=row.id
    )
    for text in ("blue", "green"):
        _write(path, f"# House\n{text}")
        assert await _came(memory, path) == (0, 0, 1)
    assert await _held(memory) == ["House: red"]


FILES = st.sampled_from(["a/CLAUDE.md", "b/CLAUDE.md", "b/notes.md"])
SAID = st.dictionaries(st.sampled_from(["House", "Car", "Bike"]), st.sampled_from(["red", "blue"]), min_size=1)
STEPS = st.one_of(
    st.tuples(st.just("edit"), FILES, SAID),
    st.tuples(st.just("move"), FILES, FILES),
    st.tuples(st.just("copy"), FILES, FILES),
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=1, max_size=8))
async def test_whatever_is_done_to_files_all_that_they_say_is_remembered_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, Any]]
) -> None:
    root = tmp_path_factory.mktemp("files")
    said: dict[str, dict[str, str]] = {}
    async with MemorySystem(None) as memory:
        for what, name, more in steps:
            if what == "edit":
                said[name] = more
                _write(root / name, "\n".join(f"# {title}\n{colour}" for title, colour in more.items()))
            elif name in said and name != more:
                (root / more).parent.mkdir(parents=True, exist_ok=True)
                (shutil.move if what == "move" else shutil.copy)(root / name, root / more)
                said[more] = said.pop(name) if what == "move" else said[name]
            touched = name if what == "edit" else more
            if touched in said:
                await _came(memory, root / touched)
            held = await _held(memory)
            assert len(held) == len(set(held))
            assert {f"{title}: {each}" for one in said.values() for title, each in one.items()} <= set(held)
        added, changed, _ = await _came(memory, root)
        assert (added, changed) == (0, 0)
