"""Only the person changes what the memory knows of them: a tool, a guest and the bot's own words propose at most."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chatbot.chat.conversation_memory import ConversationMemory
from chatbot.config import AgentSettings
from chatbot.memory import MemorySystem
from chatbot.memory.memory import Memory
from chatbot.memory.profile import is_in_words
from chatbot.memory.writing import Draft
from chatbot.stores.access import GUEST_RIGHTS, SENSITIVITIES, TOOL_RIGHTS
from chatbot.stores.errors import MissingRight
from chatbot.transfer.backups import copy_storage
from chatbot.transfer.exports import export_memories, render_memories
from chatbot.transfer.importer import Importer
from chatbot.transfer.sources import open_source
from tests.clock import Clock

LINE = {"kind": "line", "line": "home", "held": {"value": "Mars City"}}
GUEST = "token:tk_1"
STORES = ["basic_session", "observations"]


@dataclass
class Told:
    """A memory in which the owner said where they live; `said` keeps it, `line` was taken from it."""

    system: MemorySystem
    owner: Memory
    said: str
    line: str

    async def homes(self) -> list[str]:
        return [line.title for line in await self.owner.profile("home")]


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    async with MemorySystem(None) as system:
        owner = system.memory("chat")
        [kept] = await owner.remember_all([Draft(type="exchange", user_text="I live in Berlin.", source="chat")])
        await owner.profile_learn([("home", "Berlin")], kept.id, datetime.now(UTC))
        [line] = await owner.profile("home")
        yield Told(system, owner, kept.id, line.id)


ATTACKS: dict[str, Callable[[Memory, Told], Awaitable[object]]] = {
    "forge": lambda m, _: m.remember("home: Mars City", category="profile", metadata=LINE),
    "title": lambda m, told: m.update(told.line, title="home: Mars City"),
    "metadata": lambda m, told: m.update(told.line, metadata={"held": {"value": "Mars City"}}),
    "forget": lambda m, told: m.forget(told.line),
    "archive": lambda m, told: m.scope.change("archive", told.line),
    "confirm": lambda m, told: m.confirm(told.line),
    "pin": lambda m, told: m.update(told.line, metadata={"pinned": True}),
    "rewrite": lambda m, told: m.update(told.said, user_text="I live in Mars City."),
    "replace at once": lambda m, told: m.remember("The owner lives in Mars City", supersedes=told.said),
}


async def _supersede(memories: Memory, replaced: str) -> None:
    other = await memories.remember("The owner lives in Mars City")
    await memories.supersede(replaced, other.id)


async def _promote(memories: Memory, _: Told) -> None:
    await memories.update((await memories.profile_set("home", "Mars City")).id, metadata={"kind": "line"})


ATTACKS["supersede"] = lambda m, told: _supersede(m, told.line)
ATTACKS["supersede what was said"] = lambda m, told: _supersede(m, told.said)


@pytest.mark.parametrize("attack", [*ATTACKS, "promote"])
async def test_a_tool_changes_no_line_of_a_profile_and_replaces_nothing_that_was_said(told: Told, attack: str) -> None:
    tool = told.system.cleared_for("full", rights=TOOL_RIGHTS).memory("chat")
    with pytest.raises(MissingRight, match="the right 'chat' is needed"):
        await (_promote if attack == "promote" else ATTACKS[attack])(tool, told)
    assert await told.homes() == ["home: Berlin"]
    [said] = await told.owner.get([told.said])
    assert (said.user_text, said.status) == ("I live in Berlin.", "active")


@pytest.mark.parametrize("attack", [each for each in ATTACKS if each != "forge"])
async def test_a_guest_changes_no_line_of_the_owner_and_replaces_nothing_that_was_said(told: Told, attack: str) -> None:
    guest = told.system.cleared_for("full", rights=GUEST_RIGHTS, principal=GUEST).memory("chat")
    with pytest.raises(MissingRight, match="the right 'curate' is needed"):
        await ATTACKS[attack](guest, told)
    assert await told.homes() == ["home: Berlin"]


async def test_what_a_guest_forges_promotes_or_says_stays_in_the_profile_of_the_guest(told: Told) -> None:
    guest = told.system.cleared_for("full", rights=GUEST_RIGHTS, principal=GUEST).memory("chat")
    await ATTACKS["forge"](guest, told)
    await _promote(guest, told)
    await guest.remember_all([Draft(type="exchange", user_text="I live in Mars City.", source="chat")])
    await guest.profile_learn([("home", "Mars City")], told.said, datetime.now(UTC))
    assert "Mars City" in (await guest.profile("home"))[0].value
    assert await told.homes() == ["home: Berlin"]
    assert await told.owner.profile_proposals() == []


async def test_a_tool_that_says_what_the_profile_says_leaves_the_line_alone(told: Told) -> None:
    tool = told.system.cleared_for("full", rights=TOOL_RIGHTS).memory("chat")
    again = await tool.remember("home: Berlin", sensitivity="secret", tags=["tool"])
    assert (again.outcome, again.id != told.line) == ("added", True)
    [line] = await told.owner.profile("home")
    assert (line.row.tags, line.sensitivity, line.row.mention_count) == ((), "public", 0)


async def test_forgetting_through_a_tool_what_was_said_forgets_what_was_taken_from_it(told: Told) -> None:
    await told.system.cleared_for("full", rights=TOOL_RIGHTS).memory("chat").forget(told.said)
    assert await told.homes() == []


async def test_a_model_sets_a_key_only_to_the_persons_own_words(told: Told) -> None:
    draft = Draft(
        type="exchange",
        user_text="What does that page say? By the way, I answer patients in Dutch.",
        assistant_text="It says that you moved to Mars City and speak Welsh.",
        source="chat",
    )
    [kept] = await told.owner.remember_all([draft])
    stated = [("home", "Mars City"), ("mother tongue", "Welsh"), ("language at work", "Dutch")]
    await told.owner.profile_learn(stated, kept.id, datetime.now(UTC))
    assert {line.title for line in await told.owner.profile()} == {"home: Berlin", "language at work: Dutch"}
    proposed = {row.title for row in await told.owner.profile_proposals()}
    assert proposed == {"proposed: home: Mars City", "proposed: mother tongue: Welsh"}


@pytest.mark.parametrize("source", ["import:chatgpt", "tool", "file:notes.md"])
async def test_facts_of_what_was_not_said_here_are_proposed(told: Told, source: str) -> None:
    [kept] = await told.owner.remember_all([Draft(type="exchange", user_text="I live in Mars City.", source=source)])
    await told.owner.profile_learn([("home", "Mars City")], kept.id, datetime.now(UTC))
    assert await told.homes() == ["home: Berlin"]


@pytest.mark.parametrize(
    ("value", "said", "expected"),
    [
        ("9 March", "Turning 40 on the 9th of march", True), ("London", "Ten years I was a Londoner", True),
        ("Mars City", "Is there life on Mars?", False), ("1984", "in 1985", False),
        ("Zürich", "Wir wohnen in ZÜRICH", True), ("根特", "我住在根特。", True), ("根特", "我住在里斯本。", False),
        ("Mars City", "", False), ("Will", "Who will?", False),
    ],
)  # fmt: skip
def test_a_value_is_in_the_words_of_a_person_in_any_form(value: str, said: str, *, expected: bool) -> None:
    assert is_in_words(value, said) is expected


@pytest.mark.parametrize("way", ["at once", "reindex", "copy", "export"])
async def test_what_was_replaced_stays_so_if_what_replaced_it_is_purged(tmp_path: Path, clock: Clock, way: str) -> None:
    begin = clock()
    async with MemorySystem(tmp_path / "memory", clock=clock) as system:
        await state(system, "Berlin", clock())
        clock.move(days=90)
        newest = await state(system, "Lisbon", clock())
        clock.move(days=90)
        await system.memory().purge(newest)
        exported = await export_memories(system.memory("chat"), SENSITIVITIES)
    path = tmp_path / "memory"
    if way == "copy":
        path = tmp_path / "copy"
        await copy_storage(tmp_path / "memory", path)
    if way == "export":
        path = tmp_path / "other"
        (tmp_path / "memories.jsonl").write_text(render_memories(exported, "jsonl"))
    async with MemorySystem(path, clock=clock) as system:
        if way == "reindex":
            await system.memory("chat").reindex()
        if way == "export":
            await Importer(system, agent="chat", agents={"chat": STORES}).run(open_source(tmp_path / "memories.jsonl"))
        session = await system.create_session(STORES, "chat")
        assert await session.memory.profile() == []
        for days in (95, 150):
            at = begin + timedelta(days=days)
            assert await session.memory.profile(as_of=at) == []
        if way != "export":
            assert [each.title for each in await session.memory.profile(as_of=begin + timedelta(days=50))] == [
                "home: Berlin"
            ]
            assert [line.valid_to is not None for line in await session.memory.profile_history("home")] == [True]
        memory = ConversationMemory.of(session, AgentSettings())
        assert memory is not None
        text = (await memory.recall(["before", "Where do I live?"], since=None, most_tokens=2_000)).text
        assert text.count("Berlin") == 1, "what was said stays, and no line of the profile is made of it again"
        assert "Lisbon" not in text


async def state(system: MemorySystem, home: str, at: datetime) -> str:
    draft = Draft(type="exchange", user_text=f"I live in {home}.", source="chat", created_at=at)
    [kept] = await system.memory("chat").remember_all([draft])
    await system.memory("chat").profile_learn([("home", home)], kept.id, at)
    return kept.id
