"""A repeated import changes what came from that very file; imported conversations are remembered like others."""

import json
import os
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.episode import exchanges_in
from chatbot.memory.memorability import Memorability
from chatbot.memory.session_catalog import NOT_KEPT
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import StoreFailed
from chatbot.stores.observation import STATUSES, Observation
from chatbot.stores.records import TranscriptEntry, format_time
from chatbot.transfer.exports import export_memories, export_session, render_memories, render_session
from chatbot.transfer.importer import ImportReport
from tests import command
from tests.effort import examples
from tests.transfer import exports
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


AT = 1_700_000_000
"""In November 2023."""
CONFIG = '[model]\nname = "scripted"\n'
HOME = Path("identities/ada/memory")


async def _import(memory: MemorySystem, path: Path, **options: Any) -> ImportReport:
    return await exports.imported(memory, path, measure=Memorability(), **options)


def _talk(*said: str, key: str = "c-1") -> dict[str, Any]:
    """A conversation in which the user and the assistant take turns, a minute each."""
    messages = [
        exports.chatgpt_message("assistant" if number % 2 else "user", text, at=AT + 60 * number)
        for number, text in enumerate(said)
    ]
    return exports.chatgpt(*messages, key=key, title=f"talk {key}")


def _file(path: Path, *conversations: dict[str, Any]) -> Path:
    path.write_bytes(exports.as_bytes(list(conversations)))
    return path


async def _rows(memory: MemorySystem, **wanted: Any) -> list[Observation]:
    rows = await memory.memory().every(statuses=STATUSES, **wanted)
    return sorted((row for row in rows if row.type == "exchange"), key=lambda row: row.created_at)


BIKE = ("I ride a red Peugeot bicycle to work.", "A fine bicycle for a commute.")
LOCKER = ("My locker at the gym has the number 4711.", "Noted: 4711.")


async def test_what_was_said_elsewhere_is_recalled_here_with_its_age(memory: MemorySystem, tmp_path: Path) -> None:
    shed = ("The password: hunter2!x opens the shed in the garden.", "I shall remember the shed.")
    report = await _import(memory, _file(tmp_path / "c.json", _talk(*BIKE, "ok", "Good.", *LOCKER, *shed)))
    assert (len(report.sessions), report.exchanges, report.memories, report.skipped) == (1, 3, 0, [])
    assert report.redacted == Counter({"password": 1})
    assert "hunter2" not in json.dumps([row.as_json() for row in await _rows(memory)])
    [imported] = await memory.list_sessions()
    new = await memory.create_session(exports.AGENTS["chat"], "chat")
    [hit, *_] = (await new.memory.recall(["Which number has my locker?"])).hits
    row = hit.observation
    assert row is not None
    assert (row.user_text, row.assistant_text, row.session_id) == (*LOCKER, imported.id)
    assert row.created_at == datetime.fromtimestamp(AT + 240, UTC)
    assert (row.source, row.sensitivity, row.visibility) == ("import:chatgpt", "public", "private")
    assert (row.metadata["imported_from"], row.metadata["imported_key"]) == ("chatgpt", "c-1#5")
    found = await new.memory.search("what did I say in November 2023?")
    assert {each.observation.user_text for each in found} >= {BIKE[0], LOCKER[0]}


async def test_of_a_grown_conversation_only_the_new_is_remembered_once(memory: MemorySystem, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    await _import(memory, _file(path, _talk(*BIKE, LOCKER[0])))
    assert [row.user_text for row in await _rows(memory)] == [BIKE[0]]  # nobody has answered the other yet
    [record] = await memory.list_sessions()
    await (await memory.load_session(record.id, "chat")).mark("private")
    report = await _import(memory, _file(path, _talk(*BIKE, *LOCKER)))
    assert (report.exchanges, [session["entries"] for session in report.sessions]) == (1, [1])
    before = [(row.user_text, row.mention_count) for row in await _rows(memory, sensitivities=["private"])]
    assert [text for text, _ in before] == [BIKE[0], LOCKER[0]]
    report = await _import(memory, path)
    assert (report.sessions, report.exchanges, report.already) == ([], 0, 1)
    assert [(row.user_text, row.mention_count) for row in await _rows(memory, sensitivities=["private"])] == before


async def test_an_import_that_failed_midway_goes_on_under_the_same_id(memory_home: Path, tmp_path: Path) -> None:
    class Failing(MemorySystem):
        async def adopt_session(self, *_: Any, **__: Any) -> SessionHandle:
            raise StoreFailed("the disk is full")

    path = _file(tmp_path / "c.json", _talk(*BIKE, *LOCKER))
    async with Failing(memory_home) as failing:
        with pytest.raises(StoreFailed):
            await _import(failing, path)
    async with MemorySystem(memory_home) as memory:
        assert await memory.list_sessions() == []
        before = await _rows(memory)
        report = await _import(memory, path)
        assert (len(report.sessions), report.exchanges) == (1, 0)
        [record] = await memory.list_sessions()
        assert [(row.id, row.session_id) for row in await _rows(memory)] == [(row.id, record.id) for row in before]


async def test_a_bundle_brings_its_own_memories_or_else_its_exchanges_are_remembered_as_sensitive_as_the_session(
    memory: MemorySystem, tmp_path: Path
) -> None:
    session = await memory.create_session(exports.AGENTS["chat"], "chat", title="bikes")
    for role, text in zip(("user", "assistant"), BIKE, strict=True):
        await session.transcript_append(role, text)
    await session.memory.remember(type="exchange", user_text=BIKE[0], assistant_text="as it was kept")
    await session.mark("private")
    for with_memories, kept, asked, marked in (
        (True, "as it was kept", "public", "private"),
        (False, BIKE[1], "public", "private"),
        (False, BIKE[1], "secret", "secret"),
    ):
        path = tmp_path / f"{with_memories}.jsonl"
        path.write_text(render_session(await export_session(memory, session.id, memories=with_memories), "jsonl"))
        async with MemorySystem(tmp_path / f"{with_memories} {asked}") as other:
            for exchanges in (1, 0):
                assert (await _import(other, path, sensitivity=asked)).exchanges == exchanges
            [row], [record] = await _rows(other, sensitivities=SENSITIVITIES), await other.list_sessions()
            assert (row.user_text, row.assistant_text, row.session_id) == (BIKE[0], kept, session.id)
            assert (record.sensitivity, row.sensitivity) == (marked, marked)


async def test_of_a_bundle_nothing_said_without_memory_is_remembered_and_a_fork_takes_nothing_from_its_original(
    memory: MemorySystem, tmp_path: Path
) -> None:
    session, off = [await memory.create_session(exports.AGENTS["chat"], "chat") for _ in range(2)]
    await off.transcript_append("user", "My aunt lives in Faro.")  # before memory was off, and never answered
    for each, text in ((session, BIKE[0]), (off, "My locker at the station has the number 4711.")):
        await each.transcript_append("user", text)
        await each.transcript_append("assistant", BIKE[1])
    await session.memory.remember(type="exchange", user_text=BIKE[0])
    at = format_time((await off.transcript_read_all())[1].at)
    await off.receipt_append({"version": 1, "kind": NOT_KEPT, "at": at})
    fork = await memory.fork_session(session.id)
    exported = [await export_session(memory, each.id) for each in (off, fork, session)]
    path = tmp_path / "all.jsonl"
    path.write_text(
        "".join(render_session(each, "jsonl", left=left) for left, each in zip((2, 1, 0), exported, strict=True))
    )
    async with MemorySystem(tmp_path / "other") as other:
        await _import(other, path)
        [row] = await _rows(other)
        assert (row.user_text, row.session_id, row.mention_count) == (BIKE[0], session.id, 0)


def test_an_exchange_is_what_the_user_said_in_a_row_with_all_that_was_answered() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    roles = ["assistant", "user", "user", "assistant", "system", "assistant", "user", "assistant", "user"]
    entries = [TranscriptEntry(role, f"{role} {number}", at) for number, role in enumerate(roles, 1)]
    assert [tuple(each) for each in exchanges_in(entries)] == [
        (2, 6, at, "user 2\n\nuser 3", "assistant 4\n\nassistant 6", "assistant 1", None),
        (7, 8, at, "user 7", "assistant 8", "assistant 6", at),
    ]
    assert exchanges_in([]) == []


def test_an_imported_conversation_is_recalled_into_the_next_prompt() -> None:
    Path("config.toml").write_text(CONFIG, encoding="utf-8")
    path = _file(Path("conversations.json"), _talk(*BIKE, *LOCKER))
    assert "2 exchanges would be remembered" in command.ok("sessions", "import", str(path), "--dry-run")
    assert "2 exchanges remembered" in command.ok("sessions", "import", str(path))
    prompt = command.ok("prompt", "--new", "--dry-run", "Which number has my locker?")
    assert "- 14 Nov 2023: My locker at the gym has the number 4711." in prompt
    assert not (HOME / "usage.jsonl").exists()  # no model was asked


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ("", ["--no-exchanges"]),
        ('[agents.chat]\nmemory = ["basic_session", "observations"]\nremember_exchanges = false\n', []),
        ("[hooks.exchange]\nenabled = false\n", []),
    ],
)
def test_exchanges_are_remembered_as_the_configuration_says(more: str, options: list[str]) -> None:
    Path("config.toml").write_text(CONFIG + more, encoding="utf-8")
    told = json.loads(command.ok("sessions", "import", str(_file(Path("c.json"), _talk(*BIKE))), *options, "--json"))
    assert (len(told[0]["sessions"]), told[0]["exchanges"], told[0]["skipped"]) == (1, 0, [])
