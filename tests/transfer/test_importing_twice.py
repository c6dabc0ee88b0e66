"""A repeated import changes what came from that very file, and nothing else."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatbot.memory import MemorySystem
from chatbot.stores.access import SENSITIVITIES
from chatbot.transfer.exports import export_memories, export_session, render_memories
from tests.effort import examples
from tests.transfer.exports import AGENTS, imported

Counts = tuple[int, int, int]


async def _came(memory: MemorySystem, path: Path) -> Counts:
    """How many memories came in, were changed, and were here already; a dry run must have said so."""
    told = await imported(memory, path, dry_run=True)
    report = await imported(memory, path)
    assert (told.memories, told.changed, told.already) == (report.memories, report.changed, report.already)
    return report.memories, report.changed, report.already


async def _held(memory: MemorySystem) -> list[str]:
    return sorted(f"{row.title}: {row.narrative}".rstrip(": ") for row in await memory.memory().every())


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


ONE, OTHER, MOVED = "p1/CLAUDE.md", "p2/CLAUDE.md", "p3/CLAUDE.md"
THREE = "# House\nblue\n# Car\nred\n# Bike\ngrey"
Step = tuple[dict[str, str | None], str, Counts]
"""Files as they are written now, None for one that is removed; what is imported then; and what comes of it."""
LIVES: dict[str, tuple[list[Step], list[str]]] = {
    "files that call something alike stay apart": (
        [
            ({ONE: "# Project\nhost alpha", OTHER: "# Project\nhost beta"}, ONE, (1, 0, 0)),
            ({}, OTHER, (1, 0, 0)),
            ({}, ".", (0, 0, 2)),
            ({OTHER: "# Project\nhost gamma"}, OTHER, (0, 1, 0)),
        ],
        ["Project: host alpha", "Project: host gamma"],
    ),
    "an edited copy leaves what the other file still says": (
        [
            ({ONE: "# Style\ntabs\n# Host\nalpha", OTHER: "# Style\ntabs\n# Host\nbeta"}, ONE, (2, 0, 0)),
            ({}, OTHER, (1, 0, 1)),
            ({OTHER: "# Style\nspaces\n# Host\nbeta"}, OTHER, (1, 0, 1)),
        ],
        ["Host: alpha", "Host: beta", "Style: spaces", "Style: tabs"],
    ),
    "an edited original leaves what its copy still says": (
        [({ONE: "# A\nblue", OTHER: "# A\nblue"}, ".", (1, 0, 1)), ({ONE: "# A\ncyan"}, ".", (1, 1, 0))],
        ["A: blue", "A: cyan"],
    ),
    "an original that is read after its copy does so too": (
        [({OTHER: "# A\nblue"}, ".", (1, 0, 0)), ({ONE: "# A\nblue", OTHER: "# A\ncyan"}, ".", (1, 0, 1))],
        ["A: blue", "A: cyan"],
    ),
    "sections that say the same are told apart when one is edited": (
        [({ONE: "# Day\nrain\n# Day\nrain"}, ONE, (1, 0, 1)), ({ONE: "# Day\nrain\n# Day\nsun"}, ONE, (1, 0, 1))],
        ["Day: rain", "Day: sun"],
    ),
    "sections of one name that change places are kept": (
        [
            ({ONE: "# Day\nrain\n# Day\nsun"}, ONE, (2, 0, 0)),
            ({ONE: "# Day\nsun\n# Day\nrain"}, ONE, (0, 0, 2)),
            ({ONE: "# Day\nfog\n# Day\nsun\n# Day\nrain"}, ONE, (1, 1, 1)),
        ],
        ["Day: fog", "Day: rain", "Day: sun"],
    ),
    "what differs only in case is an edit, and as a copy the same": (
        [
            ({ONE: "# House\nblue", OTHER: "# House\nblue"}, ".", (1, 0, 1)),
            ({ONE: "# House\nBLUE"}, ONE, (0, 1, 0)),
            ({}, ".", (0, 0, 2)),
        ],
        ["House: BLUE"],
    ),
    "of a file with front matter every part is edited": (
        [
            ({ONE: "---\ntitle: Call\ndescription: open\n---\nthe bank"}, ONE, (1, 0, 0)),
            ({ONE: "---\ntitle: Call\ndescription: completed\n---\nthe bank"}, ONE, (0, 1, 0)),
        ],
        ["Call: the bank"],
    ),
    "what was moved is known, and what is edited in it is added": (
        [
            ({ONE: THREE}, ONE, (3, 0, 0)),
            ({ONE: None, MOVED: THREE}, ".", (0, 0, 3)),
            ({MOVED: THREE.replace("blue", "green")}, ".", (1, 0, 2)),
        ],
        ["Bike: grey", "Car: red", "House: blue", "House: green"],
    ),
}


@pytest.mark.parametrize("life", LIVES)
async def test_a_repeated_import_adds_news_and_changes_edits(memory: MemorySystem, tmp_path: Path, life: str) -> None:
    steps, held = LIVES[life]
    for files, where, counts in steps:
        for name, text in files.items():
            if text is None:
                (tmp_path / name).unlink()
            else:
                _write(tmp_path / name, text)
        assert await _came(memory, tmp_path / where) == counts
    assert (await _came(memory, tmp_path))[:2] == (0, 0)
    assert await _held(memory) == held


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


async def test_a_name_that_is_not_utf_8_ends_no_import_of_its_folder(memory: MemorySystem, tmp_path: Path) -> None:
    for name, text in ((b"caf\xe9.md", "tea"), (b"caf\xe8.md", "milk"), (b"good.md", "bread")):
        _write(tmp_path / os.fsdecode(name), text)
    assert [await _came(memory, tmp_path) for _ in range(2)] == [(3, 0, 0), (0, 0, 3)]
    _write(tmp_path / os.fsdecode(b"caf\xe9.md"), "coffee")
    assert await _came(memory, tmp_path) == (0, 1, 2)
    assert await _held(memory) == [r"caf\udce8: milk", r"caf\udce9: coffee", "good: bread"]


async def test_no_bundle_tells_where_our_folders_are(memory: MemorySystem, tmp_path: Path) -> None:
    await imported(memory, _write(tmp_path / "a.md", "# House\nblue"))
    session = await memory.create_session(AGENTS["chat"], "chat")
    await session.transcript_append("user", "hi")
    [row] = await memory.memory().every()
    kept = await session.memory.remember("Of the house", metadata=dict(row.metadata))
    exported = await export_session(memory, session.id)
    assert [each.id for each in exported.remembered.observations] == [kept.id]
    assert str(tmp_path) not in str(exported)


async def test_what_was_forgotten_stays_so_in_another_file_and_is_new_with_another_text(
    memory: MemorySystem, tmp_path: Path
) -> None:
    await _came(memory, _write(tmp_path / ONE, "# House\nblue"))
    [row] = await memory.memory().every()
    await memory.memory().forget(row.id)
    shutil.copytree((tmp_path / ONE).parent, tmp_path / "papers")
    assert await _came(memory, tmp_path / "papers") == (0, 0, 1)
    for name in (ONE, OTHER):
        _write(tmp_path / name, "# House\ngreen")
    assert [await _came(memory, tmp_path) for _ in range(2)] == [(1, 0, 2), (0, 0, 3)]
    assert await _held(memory) == ["House: green"]


async def test_what_somebody_said_himself_no_file_changes(memory: MemorySystem, tmp_path: Path) -> None:
    await memory.memory("chat").remember("House", narrative="blue", metadata={"colour": "yes"})
    path = _write(tmp_path / "a.md", "# House\nblue\n# Car\nred")
    assert [await _came(memory, path) for _ in range(2)] == [(1, 0, 1), (0, 0, 2)]
    [house] = [row for row in await memory.memory().every() if row.title == "House"]
    assert (house.metadata, house.mention_count) == ({"colour": "yes"}, 0)
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


async def test_what_was_exported_here_as_markdown_is_known_again(memory: MemorySystem, tmp_path: Path) -> None:
    here = memory.memory("chat")
    await here.remember("House", narrative="blue\n# bright", tags=("home",), sensitivity="private")
    await here.remember("", user_text="My name is Sam", assistant_text="Hello Sam", type="exchange")
    tea = await here.remember("Tea")
    path = _write(tmp_path / "all.md", render_memories(await export_memories(here, SENSITIVITIES), "markdown"))
    assert "\n# My name is Sam\n\nReply: Hello Sam\n" in path.read_text("utf-8"), "not as if the user had said it"
    await here.forget(tea.id)
    assert await _came(memory, path) == (0, 0, 3)
    _write(path, path.read_text("utf-8").replace("blue", "green"))
    assert await _came(memory, path) == (1, 0, 2)


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
            if said:
                await _came(memory, root)
            held = await _held(memory)
            assert len(held) == len(set(held))
            assert {f"{title}: {each}" for one in said.values() for title, each in one.items()} <= set(held)
        added, changed, _ = await _came(memory, root)
        assert (added, changed) == (0, 0)
