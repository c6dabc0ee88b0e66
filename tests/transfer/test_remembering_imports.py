"""Imported conversations are remembered like those held here, and recalled from then on."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.episode import exchanges_in
from chatbot.memory.memorability import Memorability
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import StoreFailed
from chatbot.stores.observation import STATUSES, Observation
from chatbot.stores.records import TranscriptEntry
from chatbot.transfer.exports import export_session, render_session
from chatbot.transfer.importer import ImportReport
from tests import command
from tests.transfer import exports

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


def test_an_exchange_is_what_the_user_said_in_a_row_with_all_that_was_answered() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    roles = ["assistant", "user", "user", "assistant", "system", "assistant", "user", "assistant", "user"]
    entries = [TranscriptEntry(role, f"{role} {number}", at) for number, role in enumerate(roles, 1)]
    assert [tuple(each) for each in exchanges_in(entries)] == [
        (2, 6, at, "user 2\n\nuser 3", "assistant 4\n\nassistant 6", "assistant 1"),
        (7, 8, at, "user 7", "assistant 8", "assistant 6"),
    ]
    assert exchanges_in([]) == []


def test_an_imported_conversation_is_recalled_into_the_next_prompt() -> None:
    Path("config.toml").write_text(CONFIG, encoding="utf-8")
    path = _file(Path("conversations.json"), _talk(*BIKE, *LOCKER))
    assert "2 exchanges would be remembered" in command.ok("sessions", "import", str(path), "--dry-run")
    assert "2 exchanges remembered" in command.ok("sessions", "import", str(path))
    prompt = command.ok("prompt", "--new", "--dry-run", "Which number has my locker?")
    assert "My locker at the gym has the number 4711." in prompt
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
