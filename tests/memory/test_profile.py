"""Statements of people about themselves fill typed slots, which keep their dates, their source and their history."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.memory import Memory
from chatbot.memory.profile_lines import Line, past_asked
from chatbot.memory.writing import Draft
from chatbot.stores.access import GUEST_RIGHTS, TOOL_RIGHTS
from chatbot.stores.errors import InvalidValue, MissingRight, UnknownObservation

BEGIN = datetime(2025, 10, 3, 9, tzinfo=UTC)
SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
STORES = ("basic_session", "observations")


class Clock:
    """A clock that stands where a test puts it."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


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


def told(lines: list[Line]) -> dict[str, str]:
    return {line.slot: line.value for line in lines if not line.ended}


async def test_the_newest_statement_holds_and_the_one_before_stays_in_the_history(
    session: SessionHandle, clock: Clock
) -> None:
    first = await say(session, clock, 0, "I live in Berlin.")
    await say(session, clock, 90, "I moved to Lisbon!")
    [line] = await session.profile("home")
    assert (line.value, line.valid_from, line.valid_to) == ("Lisbon", day_of(90), None)
    berlin, lisbon = await session.profile_history("home")
    assert (berlin.value, berlin.valid_to, berlin.sources) == ("Berlin", lisbon.valid_from, (first,))


async def test_a_statement_of_a_time_that_was_holds_then(session: SessionHandle, clock: Clock) -> None:
    await say(session, clock, 0, "I live in Berlin.")
    await say(session, clock, 90, "I moved to Lisbon two weeks ago.")
    assert told(await session.profile(as_of=day_of(70))) == {"home": "Berlin"}
    assert told(await session.profile(as_of=day_of(80))) == {"home": "Lisbon"}
    assert told(await session.profile(known_at=day_of(80))) == {"home": "Berlin"}
    assert told(await session.profile(as_of=day_of(-1))) == {}


async def test_a_correction_was_true_before_and_known_only_since(session: SessionHandle, clock: Clock) -> None:
    await say(session, clock, 0, "My birthday is on 3 June.")
    await say(session, clock, 1, "Sorry, my birthday is on 4 June.")
    assert told(await session.profile(as_of=day_of(0.5))) == {"birthday": "4 June"}
    assert told(await session.profile(known_at=day_of(0.5))) == {"birthday": "3 June"}


async def test_a_denial_ends_just_the_value_that_it_denies(session: SessionHandle, clock: Clock) -> None:
    await say(session, clock, 0, "I'm allergic to peanuts and cats.")
    await say(session, clock, 1, "Turns out I'm not allergic to cats.")
    lines = await session.profile("allergy")
    assert {line.value: line.ended for line in lines} == {"peanuts": False, "cats": True}
    assert {line.sensitivity for line in lines} == {"private"}
    assert await session.profile("allergy", ask=("public",)) == []


async def test_what_was_said_earlier_and_written_later_does_not_win(session: SessionHandle, clock: Clock) -> None:
    await say(session, clock, 90, "I live in Lisbon.")
    await say(session, clock, 10, "I live in Berlin.")
    assert told(await session.profile()) == {"home": "Lisbon"}
    assert told(await session.profile(as_of=day_of(50))) == {"home": "Berlin"}


async def test_a_date_in_the_future_never_wins(session: SessionHandle, clock: Clock) -> None:
    await say(session, clock, 0, "I live in Berlin.")
    draft = Draft(type="exchange", user_text="I live in Mars City.", source="chat", created_at=day_of(400))
    await session.remember_all([draft])
    assert told(await session.profile()) == {"home": "Berlin"}
    with pytest.raises(InvalidValue, match="future"):
        await session.profile_set("home", "Mars City", since=day_of(400))


async def test_purging_a_statement_does_not_bring_the_older_one_back(session: SessionHandle, clock: Clock) -> None:
    await say(session, clock, 0, "I live in Berlin.")
    newest = await say(session, clock, 90, "I moved to Lisbon.")
    await session.purge(newest)
    assert await session.profile("home") == []
    assert [line.value for line in await session.profile_history("home")] == ["Berlin"]


async def test_forgetting_what_was_said_forgets_what_was_taken_from_it(session: SessionHandle, clock: Clock) -> None:
    said = await say(session, clock, 0, "I live in Berlin.")
    await session.forget(said)
    assert await session.profile() == []


@pytest.mark.parametrize("source", ["import:chatgpt", "tool", "file:notes.md", "auto"])
async def test_what_is_not_said_here_changes_nothing(session: SessionHandle, clock: Clock, source: str) -> None:
    await say(session, clock, 0, "I live in Berlin.")
    await say(session, clock, 90, "I live in Lisbon.", source)
    assert told(await session.profile()) == {"home": "Berlin"}


async def test_the_words_of_the_bot_change_nothing(session: SessionHandle, clock: Clock) -> None:
    draft = Draft(type="exchange", user_text="Tell me of yourself.", assistant_text="I live in Lisbon.", source="chat")
    await session.remember_all([draft])
    assert await session.profile() == []


async def test_a_guest_has_a_profile_of_their_own(system: MemorySystem, clock: Clock) -> None:
    owner = system.memories("chat")
    await say(owner, clock, 0, "I live in Berlin.")
    guest = system.cleared_for("full", rights=GUEST_RIGHTS, principal="token:tk_1").memories("chat")
    await say(guest, clock, 1, "I live in Lisbon.")
    assert told(await owner.profile()) == {"home": "Berlin"}
    assert told(await guest.profile()) == {"home": "Lisbon"}


async def test_who_speaks_where_others_may_speak_as_the_owner_does_not_change_what_was_said_in_private(
    system: MemorySystem, clock: Clock
) -> None:
    await say(system.memories("chat"), clock, 0, "I live in Berlin.")
    await say(system.cleared_for("familiar").memories("chat"), clock, 1, "I live in Lisbon.")
    assert told(await system.memories("chat").profile()) == {"home": "Berlin"}


async def test_an_accepted_value_is_as_private_as_its_proposal(system: MemorySystem) -> None:
    owner = system.memories("chat")
    tool = system.cleared_for("full", rights=TOOL_RIGHTS).memories("chat")
    proposal = await tool.profile_set("home", "Lisbon")
    await owner.update(proposal.id, sensitivity="private")
    await owner.profile_accept(proposal.id)
    assert await owner.profile(ask=("public",)) == []
    [line] = await owner.profile()
    assert (line.value, line.sensitivity) == ("Lisbon", "private")


@pytest.mark.parametrize("held", [None, "text", {}, {"value": None}, {"value": ["x"]}, {"value": {"x": 1}}])
async def test_what_proposes_no_value_is_no_proposal(system: MemorySystem, held: object) -> None:
    owner = system.memories("chat")
    metadata = {"kind": "proposed", "slot": "home"} | ({} if held is None else {"held": held})
    kept = await owner.remember("a proposal of home", category="profile", metadata=metadata)
    assert await owner.profile_proposals() == []
    with pytest.raises(UnknownObservation):
        await owner.profile_accept(kept.id)


async def test_a_tool_only_proposes_a_value_until_the_person_accepts_it(system: MemorySystem, clock: Clock) -> None:
    owner = system.memories("chat")
    await say(owner, clock, 0, "I live in Berlin.")
    tool = system.cleared_for("full", rights=TOOL_RIGHTS).memories("chat")
    await tool.profile_set("home", "Lisbon")
    assert told(await owner.profile()) == {"home": "Berlin"}
    [proposal] = await owner.profile_proposals()
    await owner.profile_accept(proposal.id)
    assert told(await owner.profile()) == {"home": "Lisbon"}
    assert await owner.profile_proposals() == []


async def test_an_answer_to_the_bots_own_question_fills_a_slot(session: SessionHandle) -> None:
    draft = Draft(type="exchange", user_text="Marta", source="chat", metadata={"question": "What's your name?"})
    await session.remember_all([draft])
    assert told(await session.profile()) == {"name": "Marta"}


async def test_any_slot_can_be_set_pinned_and_forgotten(session: SessionHandle) -> None:
    await session.profile_set("Editor", "Helix")
    await session.profile_set("editor", "Vim")
    await session.profile_pin("Editor")
    [line] = await session.profile()
    assert (line.slot, line.value, line.pinned) == ("editor", "Vim", True)
    await session.profile_set("editor", "Kakoune")
    assert [line.pinned for line in await session.profile()] == [True], "another value is as important"
    assert len(await session.profile_history("Editor")) == 3
    await session.profile_forget("EDITOR")
    assert await session.profile() == []
    with pytest.raises(UnknownObservation):
        await session.profile_pin("editor")


async def test_a_pin_is_neither_kept_nor_filled(session: SessionHandle, clock: Clock) -> None:
    said = await say(session, clock, 0, "My PIN is 4821.")
    [row] = await session.get([said])
    assert row.user_text == "My PIN is [redacted: pin]."
    for slot, value in (
        ("door code", "4821"),
        ("PUK", "1234 5678"),
        ("locker combination", "12-34-56"),
        ("note", SECRET),
    ):
        with pytest.raises(InvalidValue, match="would hold a secret"):
            await session.profile_set(slot, value)
    assert (await session.profile_set("locker number", "4821")).outcome == "added"
    assert [line.slot for line in await session.profile()] == ["locker number"]


async def test_a_key_of_ones_own_names_one_row(session: SessionHandle) -> None:
    first = await session.upsert("printer", "The printer is in the hall")
    second = await session.upsert("printer", "The printer is in the attic")
    again = await session.upsert("printer", "The printer is in the attic")
    assert (second.outcome, again.outcome, again.id) == ("added", "exact_dup", second.id)
    assert [row.id for row in await session.every(metadata={"key": "printer"})] == [second.id]
    assert [version.observation.id for version in await session.history(second.id)] == [first.id, second.id]


async def test_a_key_of_ones_own_is_found_however_many_others_use_the_same(system: MemorySystem, clock: Clock) -> None:
    first = await system.upsert("editor", "uses vim")
    for number in range(3):
        clock.now += timedelta(minutes=1)
        guest = system.cleared_for(principal=f"token:tk_{number}", rights=GUEST_RIGHTS)
        await guest.upsert("editor", f"uses editor {number}")
    second = await system.upsert("editor", "uses emacs")
    [before] = await system.every(statuses=("superseded",))
    assert (before.id, before.superseded_by) == (first.id, second.id)


async def test_who_may_only_propose_accepts_nothing(system: MemorySystem) -> None:
    tool = system.cleared_for(rights=TOOL_RIGHTS)
    proposal = await tool.profile_set("home", "Graz")
    with pytest.raises(MissingRight):
        await tool.profile_accept(proposal.id)
    assert [row.id for row in await system.profile_proposals()] == [proposal.id]


async def test_facts_of_a_model_fill_the_same_slots(session: SessionHandle, clock: Clock) -> None:
    said = await say(session, clock, 0, "We are packing with Rex, Lisbon here we come, and the Berlin flat is gone.")
    facts = [
        "The user lives in Lisbon.",
        "The user's dog is called Rex.",
        "Anna lives in Hull.",
        "The user might move.",
    ]
    await session.profile_learn(facts, said, day_of(0))
    assert told(await session.profile()) == {"home": "Lisbon", "dog": "Rex"}


async def test_recall_and_search_go_back_in_time(session: SessionHandle, clock: Clock) -> None:
    old = await session.remember("The staging server listens on port 8100")
    clock.now = day_of(30)
    new = await session.remember("The staging server listens on port 9200", supersedes=old.id)
    clock.now = day_of(60)
    for at, expected in ((None, new.id), (day_of(10), old.id), (day_of(40), new.id)):
        [hit] = await session.search("staging server port", as_of=at)
        assert hit.observation.id == expected
        [recalled] = (await session.recall("staging server port", known_at=at)).hits
        assert recalled.id == expected
    with pytest.raises(InvalidValue, match="future"):
        await session.search("port", as_of=day_of(90))
    with pytest.raises(InvalidValue, match="future"):
        await session.profile(as_of=day_of(90))


async def test_recall_goes_back_to_what_was_said_and_not_to_a_line_of_the_profile(
    session: SessionHandle, clock: Clock
) -> None:
    old = await say(session, clock, 0, "I live in Berlin.")
    await say(session, clock, 90, "I moved to Lisbon.")
    clock.now = day_of(200)
    [hit] = (await session.recall("Do I live in Berlin or in Lisbon?", as_of=day_of(50))).hits
    assert hit.id == old


async def test_facts_are_listed_as_of_a_time(session: SessionHandle, clock: Clock) -> None:
    await session.store_fact("Ada", "lives in", "Rome")
    clock.now = day_of(30)
    await session.store_fact("Ada", "lives in", "Milan")
    assert [fact.object for fact in await session.query_facts(as_of=day_of(10))] == ["Rome"]
    assert len(await session.query_facts()) == 2


async def test_lines_of_the_profile_are_not_recalled_beside_what_was_said(session: SessionHandle, clock: Clock) -> None:
    said = await say(session, clock, 0, "I live in Berlin, near the river.")
    recollection = await session.recall("Where do I live in Berlin?")
    assert [hit.id for hit in recollection.hits] == [said]
    assert "in the profile" in {each.verdict for each in recollection.considered}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("Where did I live in May?", datetime(2025, 5, 16, 12, tzinfo=UTC)),
        ("Where did I live in 2019?", datetime(2019, 7, 2, 12, tzinfo=UTC)),
        ("Where did I live in mid-May 2024?", datetime(2024, 5, 16, 12, tzinfo=UTC)),
        ("Where did I live in summer 2024?", datetime(2024, 7, 17, tzinfo=UTC)),
        ("Where did I live on 29 February 2024?", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("Where did I live in December 2024?", datetime(2024, 12, 16, 12, tzinfo=UTC)),
        ("Where do I live?", None),
        ("What is on tomorrow?", None),
    ],
)
def test_a_question_names_the_time_that_it_is_about(asked: str, expected: datetime | None) -> None:
    assert past_asked(asked, BEGIN) == expected


async def test_a_value_whose_successor_holds_since_before_it_never_held(session: SessionHandle, clock: Clock) -> None:
    await say(session, clock, 100, "I live in Berlin.")
    clock.now = day_of(120)
    await session.profile_set("home", "Lisbon", since=day_of(10))
    berlin = next(line for line in await session.profile_history("home") if line.value == "Berlin")
    assert berlin.valid_to == berlin.valid_from == day_of(100)
    assert told(await session.profile(as_of=day_of(110))) == {"home": "Lisbon"}
    assert told(await session.profile(known_at=day_of(110))) == {"home": "Berlin"}
