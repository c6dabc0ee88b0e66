"""A value stated under a key keeps its dates and history; standing questions are answered by what people say."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chatbot.config import STANDING, StandingSettings
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.memory import Memory
from chatbot.memory.profile import StandingAnswer
from chatbot.memory.profile_lines import ProfileLine, past_time
from chatbot.memory.recall import RESCORED
from chatbot.memory.scope import SystemOptions
from chatbot.memory.writing import Draft
from chatbot.models.local_encoder import LocalEmbedder
from chatbot.stores.access import GUEST_RIGHTS, TOOL_RIGHTS, Sensitivity
from chatbot.stores.errors import InvalidValue, MissingRight, UnknownObservation
from chatbot.stores.observation import STATUSES
from tests.clock import Clock

BEGIN = datetime(2025, 10, 3, 9, tzinfo=UTC)
SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
STORES = ("basic_session", "observations")


@pytest.fixture
def clock() -> Clock:
    return Clock(BEGIN)


@pytest.fixture
async def system(tmp_path: Path, clock: Clock) -> AsyncIterator[MemorySystem]:
    settings = {"observations": {"cache": str(tmp_path / "cache")}}
    async with MemorySystem(tmp_path / "memory", clock=clock, settings=settings) as memory:
        yield memory


@pytest.fixture
async def session(system: MemorySystem) -> SessionHandle:
    return await system.create_session(STORES, "chat")


async def say(memories: Memory, clock: Clock, day: float, text: str, source: str = "chat") -> str:
    clock.now = max(clock.now, BEGIN + timedelta(days=day))
    draft = Draft(type="exchange", user_text=text, assistant_text="ok", source=source, created_at=day_of(day))
    [kept] = await memories.remember_all([draft])
    return kept.id


def day_of(day: float) -> datetime:
    return BEGIN + timedelta(days=day)


async def state(memories: Memory, clock: Clock, day: float, key: str, value: str) -> str:
    """Say something on a day, of which a model makes a line of the profile; return the id of what was said."""
    said = await say(memories, clock, day, f"My {key} is {value}.")
    await memories.profile_learn([(key, value)], said, day_of(day))
    return said


def told(lines: list[ProfileLine]) -> dict[str, str]:
    return {line.key: line.value for line in lines}


async def test_what_is_set_also_stands_by_others_until_one_replaces_all(session: SessionHandle, clock: Clock) -> None:
    await session.memory.profile_set("favourite tea", "sencha")
    clock.now = day_of(1)
    await session.memory.profile_set("favourite tea", "oolong", also=True)
    clock.now = day_of(2)
    assert [line.value for line in await session.memory.profile("favourite tea")] == ["oolong", "sencha"]
    assert (await session.memory.profile_set("Favourite Tea", "sencha")).outcome == "updated"
    assert {line.key for line in await session.memory.profile()} == {"favourite tea", "Favourite Tea"}  # as typed
    await session.memory.profile_set("ｆavourite  tea", "genmaicha")
    assert [line.value for line in await session.memory.profile("Favourite tea")] == ["genmaicha"]
    assert told(await session.memory.profile(as_of=day_of(0.5))) == {"Favourite Tea": "sencha"}
    assert [line.value for line in await session.memory.profile(as_of=day_of(1.5))] == ["oolong", "sencha"]


async def test_what_was_marked_private_stays_private_and_unmarked_is_public(session: SessionHandle) -> None:
    await session.memory.profile_set("allergy", "peanuts", sensitivity="private")
    await session.memory.profile_set("allergy", "cats")
    await session.memory.profile_set("home", "Graz")
    assert told(await session.memory.profile(sensitivities=("public",))) == {"home": "Graz"}
    assert told(await session.memory.profile()) == {"allergy": "cats", "home": "Graz"}


async def test_a_value_set_again_takes_new_spelling_start_and_sensitivity(system: MemorySystem, clock: Clock) -> None:
    owner = system.memory("chat")
    first = await owner.profile_set("home", "izmir")
    clock.now = day_of(9)
    again = await owner.profile_set("home", "İzmir", since=day_of(-9), sensitivity="private")
    assert (again.id, again.outcome) == (first.id, "updated")
    [line] = await owner.profile()
    assert (line.value, line.valid_from, line.sensitivity) == ("İzmir", day_of(-9), "private")
    assert (await owner.profile_set("home", "İzmir")).outcome == "exact_dup"
    assert await owner.profile(sensitivities=("public",)) == []
    with pytest.raises(MissingRight, match="declassify"):
        await system.cleared_for(rights=GUEST_RIGHTS).memory().profile_set("home", "İzmir", sensitivity="public")
    await owner.update(line.id, title="home: İzmir, by the sea")
    assert told(await owner.profile()) == {"home": "İzmir, by the sea"}, "a prompt shows the title"


async def test_a_value_in_the_words_of_another_memory_is_a_line_all_the_same(session: SessionHandle) -> None:
    noted = await session.memory.remember("home: Graz")
    line = await session.memory.profile_set("home", "Graz")
    assert (line.outcome, told(await session.memory.profile())) == ("added", {"home": "Graz"})
    assert (await session.memory.remember("Home: Graz")).id == noted.id


async def test_what_was_said_earlier_and_written_later_does_not_win(session: SessionHandle, clock: Clock) -> None:
    await state(session.memory, clock, 90, "home", "Lisbon")
    await state(session.memory, clock, 10, "home", "Berlin")
    assert told(await session.memory.profile()) == {"home": "Lisbon"}
    assert told(await session.memory.profile(as_of=day_of(50))) == {"home": "Berlin"}


async def test_a_value_of_a_clock_that_was_ahead_is_valid_until_the_next_one(
    session: SessionHandle, clock: Clock
) -> None:
    await state(session.memory, clock, 0, "home", "Berlin")
    await state(session.memory, clock, 400, "home", "Graz")
    clock.now = day_of(1)
    assert told(await session.memory.profile()) == {"home": "Graz"}
    assert told(await session.memory.profile(as_of=day_of(0.5))) == {"home": "Berlin"}
    await session.memory.profile_set("home", "Porto")
    assert told(await session.memory.profile()) == {"home": "Porto"}
    clock.now = day_of(500)
    assert told(await session.memory.profile()) == {"home": "Porto"}
    said = await say(session.memory, clock, 501, "My home is Faro.")
    clock.now = day_of(500.9)  # set back meanwhile
    await session.memory.profile_learn([("home", "Faro")], said, day_of(501))
    with pytest.raises(InvalidValue, match="future"):
        await session.memory.profile_set("home", "Mars City", since=day_of(600))
    assert told(await session.memory.profile()) == {"home": "Faro"}


async def test_in_company_nobody_changes_what_was_said_in_private(system: MemorySystem, clock: Clock) -> None:
    await system.memory("chat").profile_set("home", "Berlin")
    clock.now = day_of(1)
    await system.cleared_for("familiar").memory("chat").profile_set("home", "Lisbon")
    assert told(await system.memory("chat").profile()) == {"home": "Berlin"}


async def test_an_accepted_value_has_the_privacy_and_begin_of_its_proposal(system: MemorySystem, clock: Clock) -> None:
    owner = system.memory("chat")
    tool = system.cleared_for("full", rights=TOOL_RIGHTS).memory("chat")
    clock.now = day_of(1)
    proposed: dict[str, Sensitivity] = {"home": "public", "job": "private"}
    for key, sensitivity in proposed.items():
        proposal = await tool.profile_set(key, "Lisbon", since=day_of(0), sensitivity=sensitivity)
        assert [row.sensitivity for row in await owner.profile_proposals()] == [sensitivity]
        await owner.update(proposal.id, sensitivity="private")
        await owner.profile_accept(proposal.id)
        assert await owner.profile(sensitivities=("public",)) == []
        [line] = await owner.profile(key)
        assert (line.value, line.sensitivity, line.valid_from) == ("Lisbon", "private", day_of(0))


@pytest.mark.parametrize("held", [None, "text", {}, {"value": None}, {"value": ["x"]}, {"value": {"x": 1}}])
async def test_what_proposes_no_value_is_no_proposal(system: MemorySystem, held: object) -> None:
    owner = system.memory("chat")
    metadata = {"kind": "proposed line", "line": "home"} | ({} if held is None else {"held": held})
    kept = await owner.remember("a proposal of home", category="profile", metadata=metadata)
    assert await owner.profile_proposals() == []
    with pytest.raises(UnknownObservation):
        await owner.profile_accept(kept.id)


@pytest.mark.parametrize(("also", "homes"), [(False, ["Lisbon"]), (True, ["Lisbon", "Berlin"])])
async def test_tools_only_propose_values(system: MemorySystem, clock: Clock, *, also: bool, homes: list[str]) -> None:
    owner = system.memory("chat")
    await owner.profile_set("home", "Berlin")
    clock.now = day_of(1)
    tool = system.cleared_for("full", rights=TOOL_RIGHTS).memory("chat")
    await tool.profile_set("home", "Lisbon", also=also)
    assert told(await owner.profile()) == {"home": "Berlin"}
    [proposal] = await owner.profile_proposals()
    with pytest.raises(MissingRight):
        await tool.profile_accept(proposal.id)
    await owner.profile_accept(proposal.id)
    assert [line.value for line in await owner.profile("home")] == homes
    assert await owner.profile_proposals() == []


async def test_any_key_can_be_set_pinned_and_forgotten(session: SessionHandle) -> None:
    await session.memory.profile_set("Editor", "Helix")
    await session.memory.profile_set("editor", "Vim")
    await session.memory.profile_pin("Editor")
    [line] = await session.memory.profile()
    assert (line.key, line.value, line.pinned) == ("editor", "Vim", True)
    await session.memory.profile_set("editor", "Kakoune")
    await session.memory.profile_set("editor", "Zed", also=True)
    assert [line.pinned for line in await session.memory.profile()] == [True, True], "another value is as important"
    assert len(await session.memory.profile_history("Editor")) == 4
    await session.memory.profile_forget("EDITOR")
    assert await session.memory.profile() == []
    with pytest.raises(UnknownObservation):
        await session.memory.profile_pin("editor")


async def test_a_pin_is_neither_kept_nor_filled(session: SessionHandle, clock: Clock) -> None:
    said = await say(session.memory, clock, 0, "My PIN is 4821.")
    [row] = await session.memory.get([said])
    assert row.user_text == "My PIN is [redacted: pin]."
    secrets = {"door code": "4821", "PUK": "1234 5678", "locker combination": "12-34-56", "note": SECRET}
    for key, value in secrets.items():
        with pytest.raises(InvalidValue, match="would hold a secret"):
            await session.memory.profile_set(key, value)
    assert (await session.memory.profile_set("locker number", "4821")).outcome == "added"
    assert [line.key for line in await session.memory.profile()] == ["locker number"]


async def test_a_key_of_ones_own_is_found_however_many_others_use_the_same(system: MemorySystem, clock: Clock) -> None:
    first = await system.memory().upsert("editor", "uses vim")
    for number in range(3):
        clock.now += timedelta(minutes=1)
        guest = system.cleared_for(principal=f"token:tk_{number}", rights=GUEST_RIGHTS)
        await guest.memory().upsert("editor", f"uses editor {number}")
    second = await system.memory().upsert("editor", "uses emacs")
    [before] = await system.memory().every(statuses=("superseded",))
    assert (before.id, before.superseded_by) == (first.id, second.id)


async def test_of_ones_own_key_every_version_is_in_history_and_a_repetition_sets_fields(system: MemorySystem) -> None:
    memory = system.memory()
    first = await memory.upsert("kiln", "is cold", metadata={"state": "cold", "door": "open"})
    second = await memory.upsert("kiln", "is hot", metadata={"state": "hot", "lid": "shut", "imported_key": "7"})
    assert [version.observation.id for version in await memory.history(second.id)] == [first.id, second.id]
    again = await memory.upsert("kiln", "is hot", metadata={"state": "hotter"}, tags=["fire"])
    row = await memory.row(second.id)
    metadata = {"state": "hotter", "key": "kiln", "imported_key": "7"}
    assert (again.outcome, row.metadata, row.tags) == ("updated", metadata, ("fire",))
    await memory.remember("is warm", metadata={"key": "kiln"})  # as a sync brings it from another machine
    last = await memory.upsert("kiln", "is cool")
    assert [row.id for row in await memory.every(metadata={"key": "kiln"})] == [last.id]
    task = await memory.upsert("kiln", "light it", type="task", metadata={"due": "2030-01-01", "priority": "high"})
    done = await memory.update_task(task.id, status="completed")
    await memory.upsert("kiln", "light it", type="task", metadata={"due": "2030-01-01", "priority": "high"})
    assert await memory.tasks(statuses=["completed", "pending"]) == [done]
    await memory.upsert("kiln", "light it", type="task", metadata={"status": "pending", "surface": "startup"})
    assert [(each.status, each.surface, each.due, each.priority) for each in await memory.tasks()] == [
        ("pending", "startup", "", "high")
    ]


async def test_a_key_of_ones_own_holds_one_row_whoever_writes_at_once_or_is_cancelled(system: MemorySystem) -> None:
    writers = [system.memory().upsert("editor", f"uses editor {number}") for number in range(8)]
    writing = [asyncio.create_task(each) for each in writers]
    await asyncio.sleep(0)
    writing[3].cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    last = await system.memory().upsert("editor", "uses Vim")
    again = await system.memory().upsert("editor", "uses vim")
    [row] = await system.memory().every(metadata={"key": "editor"})
    assert (row.id, row.title, again.outcome) == (last.id, "uses vim", "updated")


@pytest.mark.parametrize("key", ["", " a", "a  b", "a\nb", "a\u202eb", "x" * 1_001])
async def test_a_key_that_could_become_another_one_is_refused(system: MemorySystem, key: str) -> None:
    for refused in (system.memory().upsert(key, "uses vim"), system.keyed_session(key, ["in_memory"], "chat")):
        with pytest.raises(InvalidValue, match="the key"):
            await refused


async def test_a_model_sets_keys_to_what_the_person_said(session: SessionHandle, clock: Clock) -> None:
    said = await say(session.memory, clock, 0, "Lisbon here we come, with Rex and Luna! The Berlin flat is gone.")
    stated = [("Home", "Lisbon"), ("dog", "Rex"), ("dog", "Luna"), ("door code", "4821"), ("", "Berlin"), ("flat", "")]
    await session.memory.profile_learn(stated, said, day_of(0))
    lines = await session.memory.profile()
    assert [(line.key, line.value) for line in lines] == [("dog", "Luna"), ("dog", "Rex"), ("Home", "Lisbon")]
    assert {(line.by, line.sources) for line in lines} == {("model", (said,))}
    assert await session.memory.profile_proposals() == []


async def test_recall_and_search_go_back_in_time(session: SessionHandle, clock: Clock) -> None:
    old = await session.memory.remember("The staging server listens on port 8100")
    await session.memory.store_fact("Ada", "lives in", "Rome")
    clock.now = day_of(30)
    await session.memory.store_fact("Ada", "lives in", "Milan")
    new = await session.memory.remember("The staging server listens on port 9200", supersedes=old.id)
    clock.now = day_of(60)
    for at, expected in ((None, new.id), (day_of(10), old.id), (day_of(40), new.id)):
        [hit] = await session.memory.search("staging server port", as_of=at)
        assert hit.observation.id == expected
        [recalled] = (await session.memory.recall("staging server port", known_at=at)).hits
        assert recalled.id == expected
    assert [fact.object for fact in await session.memory.query_facts(as_of=day_of(10))] == ["Rome"]
    assert len(await session.memory.query_facts()) == 2
    for refused in (session.memory.search("port", as_of=day_of(90)), session.memory.profile(as_of=day_of(90))):
        with pytest.raises(InvalidValue, match="future"):
            await refused


async def test_what_was_brought_in_later_takes_no_place_of_what_was_known(session: SessionHandle, clock: Clock) -> None:
    known = await session.memory.remember("The staging server in the cellar listens on a port of its own")
    clock.now = day_of(60)
    later = [Draft(f"staging server port {number}", created_at=day_of(5)) for number in range(RESCORED + 20)]
    await session.memory.remember_all(later)
    question, then = "staging server port", day_of(10)
    recollection = await session.memory.recall(question, known_at=then, limit=2)
    [found] = await session.memory.search(question, known_at=then, limit=2)
    [newest] = await session.memory.search(known_at=then, limit=1)
    assert [hit.id for hit in recollection.hits] == [found.observation.id] == [newest.observation.id] == [known.id]
    assert {each.id for each in recollection.considered if each.verdict == "recalled"} == {known.id}
    await session.memory.profile_set("port", "8100")
    [line] = await session.memory.search("8100", as_of=clock.now)
    assert line.observation.title == "port: 8100", "a search as of a time finds what a search finds"


async def test_of_two_statements_alike_the_newer_is_first_and_both_hold(session: SessionHandle, clock: Clock) -> None:
    old = await say(session.memory, clock, 0, "My rent is 1,200 euros.")
    new = await say(session.memory, clock, 90, "My rent is 1,450 euros now.")
    hits = (await session.memory.recall("How much is my rent?")).hits
    assert [hit.id for hit in hits] == [new, old]
    [alone] = (await session.memory.recall("How much is my rent?", limit=1)).hits
    assert alone.id == new
    assert {row.status for row in await session.memory.every(statuses=STATUSES)} == {"active"}


async def test_lines_of_the_profile_are_not_recalled_beside_what_was_said(session: SessionHandle, clock: Clock) -> None:
    said = await state(session.memory, clock, 0, "home", "Berlin")
    recollection = await session.memory.recall("What is my home in Berlin?")
    assert [hit.id for hit in recollection.hits] == [said]
    assert "in the profile" in {each.verdict for each in recollection.considered}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("Where did I live in May?", datetime(2025, 5, 16, 12, tzinfo=UTC)),
        ("Where did I live in 2019?", datetime(2019, 7, 2, 12, tzinfo=UTC)),
        ("Where did I live in mid-May 2024?", datetime(2024, 5, 16, 12, tzinfo=UTC)),
        ("Where did I live in the summer of 2024?", datetime(2024, 7, 17, tzinfo=UTC)),
        ("Where did I live on 29 February 2024?", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("Where did I live in December 2024?", datetime(2024, 12, 16, 12, tzinfo=UTC)),
        ("Where do I live?", None),
        ("What is on tomorrow?", None),
    ],
)
def test_a_question_names_the_time_that_it_is_about(asked: str, expected: datetime | None) -> None:
    assert past_time(asked, BEGIN) == expected


async def test_a_value_whose_successor_holds_since_before_it_never_held(session: SessionHandle, clock: Clock) -> None:
    await state(session.memory, clock, 100, "home", "Berlin")
    clock.now = day_of(120)
    await session.memory.profile_set("home", "Lisbon", since=day_of(10))
    berlin = next(line for line in await session.memory.profile_history("home") if line.value == "Berlin")
    assert berlin.valid_to == berlin.valid_from == day_of(100)
    assert told(await session.memory.profile(as_of=day_of(110))) == {"home": "Lisbon"}
    assert told(await session.memory.profile(known_at=day_of(110))) == {"home": "Berlin"}


@pytest.fixture
async def asked(tmp_path: Path, clock: Clock) -> AsyncIterator[MemorySystem]:
    question = StandingSettings(question="Where do I live?")
    settings = {"observations": {"cache": str(tmp_path / "cache")}}
    options = SystemOptions(questions=lambda: [question])
    async with MemorySystem(tmp_path / "asked", clock=clock, settings=settings, options=options) as memory:
        yield memory


async def answer(memories: Memory, **options: Any) -> StandingAnswer:
    [found] = await memories.standing(**options)
    return found


async def test_in_a_small_memory_a_row_answers_the_question_that_it_fits_best(tmp_path: Path) -> None:
    said = ["I am Marit, I live in Tromso with my husband Ola and two kids", "My mother lives alone in Harstad."]
    questions = [StandingSettings(question=STANDING[each], pinned=True) for each in ("home", "family", "money")]
    async with MemorySystem(
        tmp_path, embedder=LocalEmbedder(), options=SystemOptions(questions=lambda: questions)
    ) as memory:
        await memory.memory().remember_all([Draft(type="exchange", user_text=each) for each in said])
        await memory.memory().embed_memories()  # on a busy machine a question waits for less
        home, family, money = await memory.memory().standing()
        assert [row.user_text for row in home.rows] == said[::-1], (
            "one that fits better elsewhere leaves no worse alone"
        )
        assert (len(family.rows), money.rows) == (2, [])
        assert [len(each.rows) for each in await memory.memory().standing(pinned=True)] == [0, 2, 0]  # for each prompt


async def test_a_question_that_was_typed_without_its_mark_answers_none(tmp_path: Path) -> None:
    said = ["soy alergica a las nueces", "que puedo merendar"]
    health = StandingSettings(question=STANDING["health"])
    options = SystemOptions(questions=lambda: [health])
    async with MemorySystem(tmp_path, embedder=LocalEmbedder(), options=options) as memory:
        await memory.memory().remember_all([Draft(type="exchange", user_text=each) for each in said])
        await memory.memory().embed_memories()
        assert [row.user_text for row in (await answer(memory.memory())).rows] == said[:1]


async def test_standing_questions_are_answered_newest_first_in_own_words(asked: MemorySystem, clock: Clock) -> None:
    owner = asked.memory("chat")
    imported = await say(owner, clock, 0, "I live in Berlin.", "import:chatgpt")
    for source in ("tool", "file:notes.md", "auto"):
        await say(owner, clock, 1, f"I live in a {source}.", source)
    await say(owner, clock, 2, "Where do I live?")
    private = await say(owner, clock, 3, "I live in a hideout.")
    await owner.update(private, sensitivity="private")
    note = await owner.remember("Where I live: I live in Gent, I live there")
    guest = asked.cleared_for("full", rights=GUEST_RIGHTS, principal="token:tk_1").memory("chat")
    theirs = await say(guest, clock, 4, "I live next door.")
    assert [row.id for row in (await answer(owner)).rows] == [note.id, imported]
    rows = (await answer(owner, sensitivities=("public", "private"))).rows
    assert [row.id for row in rows] == [note.id, private, imported]
    assert [row.id for row in (await answer(guest)).rows] == [theirs]
    assert [row.id for row in (await answer(owner, as_of=day_of(2))).rows] == [imported]
    assert await owner.standing(pinned=True) == []
    for number in range(30):  # what others said takes no place
        await say(owner, clock, 5, f"I live, live and live at {number}.", "tool")
    assert imported in [row.id for row in (await answer(owner)).rows]
