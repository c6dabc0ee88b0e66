"""Promises of recall for any memory: the right thing first, the gate kept, one order, and bounded work."""

import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.recall import RESCORED
from chatbot.memory.writing import Draft
from chatbot.stores.access import Clearance
from chatbot.stores.errors import InvalidValue
from tests.clock import Clock
from tests.effort import rounds

WEDNESDAY = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock(WEDNESDAY)


@pytest.fixture(params=["files", "in memory"])
async def memory(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[MemorySystem]:
    home = tmp_path / "memory" if request.param == "files" else None
    async with MemorySystem(home, clock=clock) as opened:
        yield opened


async def opened(memory: MemorySystem, clearance: Clearance = "full") -> SessionHandle:
    store = "observations" if memory.home else "in_memory"
    return await memory.cleared_for(clearance).create_session([store], "chat")


def exchange(text: str, reply: str = "", *, days: float = 0, **given: Any) -> Draft:
    at = WEDNESDAY - timedelta(days=days)
    return Draft(type="exchange", user_text=text, assistant_text=reply, created_at=at, **given)


async def say(session: SessionHandle, *drafts: Draft | str) -> list[str]:
    given = [exchange(each) if isinstance(each, str) else each for each in drafts]
    return [kept.id for kept in await session.memory.remember_all(given)]


async def recalled(session: SessionHandle, texts: str | Sequence[str], **options: Any) -> list[str]:
    found = await session.memory.recall(texts, **options)
    return [hit.observation.user_text for hit in found.hits if hit.observation]


LONG = "Here is a thorough overview with many options, steps, considerations and examples for you. " * 12

SAID = [
    exchange("My sister Ellen keeps two alpacas.", days=40),
    exchange("The boiler was repaired by the Meyer company.", days=30),
    exchange("We flew to Lisbon last Friday.", days=20),
    exchange("I bought a cello.", days=1),
    exchange("我妹妹养了两只羊驼。", days=12),
    exchange("昨天我去了东京塔。", days=10),
    exchange("How do I rename a branch?", "With git branch -m. " + LONG, days=9),
    exchange("Suggest a hobby.", "Perhaps alpacas, cellos or boilers. " + LONG, days=8),
    exchange("sqlite.go calls NewSQLiteStore twice.", days=7),
]

ASKED = [
    ("Who keeps alpacas?", "My sister Ellen keeps two alpacas."),
    ("Was the boiler ever repaired?", "The boiler was repaired by the Meyer company."),
    ("What happened on February 6?", "We flew to Lisbon last Friday."),
    ("Where was I on 2026-02-06?", "We flew to Lisbon last Friday."),
    ("What did I buy yesterday?", "I bought a cello."),
    ("What did I do yesterday?", "I bought a cello."),
    ("谁养羊驼?", "我妹妹养了两只羊驼。"),
    ("2月21日我在哪里?", "昨天我去了东京塔。"),
    ("东京", "昨天我去了东京塔。"),
    ("What does NewSQLiteStore do?", "sqlite.go calls NewSQLiteStore twice."),
    ("Which file is called sqlite.go?", "sqlite.go calls NewSQLiteStore twice."),
    ("How was it to rename a git branch?", "How do I rename a branch?"),
]


@pytest.mark.parametrize("profile", ["inject", "search"])
async def test_the_right_thing_comes_first(memory: MemorySystem, profile: str) -> None:
    for draft in SAID:
        await say(await opened(memory), draft)
    session = await opened(memory)
    for question, answer in ASKED:
        found = await recalled(session, question, profile=profile)
        assert found[0] == answer, question


async def test_all_that_the_user_said_is_asked_for_and_the_last_weighs_most(memory: MemorySystem) -> None:
    for draft in SAID:
        await say(await opened(memory), draft)
    session = await opened(memory)
    assert (await recalled(session, ["Tell me of the boiler.", "Who did that?"]))[0] == SAID[1].user_text
    found = await recalled(session, ["Tell me of the boiler.", "And of the cello?"])
    assert found[0] == SAID[3].user_text
    assert SAID[1].user_text in found


async def test_what_holds_none_of_the_words_is_recalled_beside_what_does(memory: MemorySystem) -> None:
    talk, other = await opened(memory), await opened(memory)
    await say(talk, "Nothing so far.", "Shall we name the parrot?", "Yes, Captain Flint!", "Done.", "Else?", "Bye.")
    await say(other, "Yes, Captain Ahab!")
    found = await (await opened(memory)).memory.recall("What about the parrot?", limit=20, profile="search")
    by_text = {hit.observation.user_text: hit for hit in found.hits if hit.observation}
    assert next(iter(by_text)) == "Shall we name the parrot?"
    assert by_text["Yes, Captain Flint!"].parts["lexical"] == 0
    assert by_text["Yes, Captain Flint!"].parts["spill"] > by_text["Done."].parts["spill"] > 0
    assert not {"Bye.", "Yes, Captain Ahab!"} & by_text.keys()


async def test_of_equal_matches_the_one_whose_session_is_about_it_comes_first(memory: MemorySystem) -> None:
    talk, other = await opened(memory), await opened(memory)
    filling = [f"Filler {number}." for number in range(8)]
    await say(talk, "Sailing is on.", *filling[:4], "A regatta was held.")
    await say(other, "Cooking is on.", *filling[4:], "A regatta was seen.")
    found = await recalled(await opened(memory), "the sailing regatta")
    assert found.index("A regatta was held.") < found.index("A regatta was seen.")


@pytest.mark.parametrize("profile", ["inject", "search"])
@pytest.mark.parametrize("words", [3, 300])
async def test_nonsense_finds_nothing(memory: MemorySystem, profile: str, words: int) -> None:
    for draft in SAID:
        await say(await opened(memory), draft)
    nonsense = " ".join(f"xq{number}zzk" for number in range(words))
    session = await opened(memory)
    assert (await session.memory.recall(nonsense, profile=profile)).considered == ()
    assert await session.memory.search(nonsense) == []


async def test_stop_words_alone_find_what_is_newest_and_put_nothing_into_a_prompt(memory: MemorySystem) -> None:
    session = await opened(memory)
    await say(session, *(exchange(f"Number {number} said.", days=9 - number) for number in range(9)))
    newest = [hit.observation.user_text for hit in await session.memory.search("what is it about?", limit=3)]
    assert newest == [f"Number {number} said." for number in (8, 7, 6)]
    found = await session.memory.recall("what is it about?")
    assert found.hits == ()
    assert {each.verdict for each in found.considered} == {"below relative floor"}


async def test_a_long_message_is_searched_for_by_its_rarest_words_wherever_they_stand(memory: MemorySystem) -> None:
    common = [f"common{number}" for number in range(60)]
    for said in (*(f"{one} {other}" for one, other in pairwise(common)), "The parrot is Captain Flint."):
        await say(await opened(memory), said)
    found = await recalled(await opened(memory), " ".join(common) + ". And the parrot, Captain Flint?", limit=3)
    assert found[0] == "The parrot is Captain Flint."


async def test_verdicts_tell_why_and_excluded_rows_make_room(memory: MemorySystem) -> None:
    session = await opened(memory)
    ids = await say(session, *(f"Tea number {number}." for number in range(4)))
    best = [hit.id for hit in (await session.memory.recall("tea", limit=4)).hits]
    assert set(best) == set(ids)
    found = await session.memory.recall("tea", limit=2, exclude={best[0]})
    assert [each.id for each in found.hits] == best[1:3]
    assert {each.id: each.verdict for each in found.considered} == {
        best[0]: "seen already",
        best[1]: "recalled",
        best[2]: "recalled",
        best[3]: "over limit",
    }
    assert all(each.observation is None for each in found.considered if each.verdict != "recalled")
    scores = [each.score for each in found.considered]
    assert scores == sorted(scores, reverse=True)
    with pytest.raises(InvalidValue, match="did you mean 'inject'"):
        await session.memory.recall("tea", profile="injekt")


async def test_the_order_is_the_same_each_time_and_in_both_stores(tmp_path: Path, clock: Clock) -> None:
    words = [f"word{number}" for number in range(30)]
    orders = []
    for home in (tmp_path / "memory", None):
        made = random.Random(7)
        async with MemorySystem(home, clock=clock) as memory:
            for _ in range(rounds(8, least=2)):
                said = [exchange(" ".join(made.choices(words, k=5)), days=made.randrange(9)) for _ in range(20)]
                await say(await opened(memory), *said)
            asking = await opened(memory)
            questions = [" ".join(made.choices(words, k=4)) for _ in range(10)]
            twice = [[await recalled(asking, each, limit=50) for each in questions] for _ in range(2)]
            assert twice[0] == twice[1]
            orders.append(twice[0])
            batch = await asking.memory.search_batch(questions, limit=5, count_use=False)
            single = [await asking.memory.search(each, limit=5, count_use=False) for each in questions]
            assert batch == single
    assert orders[0] == orders[1]


async def test_words_of_the_filter_hold_for_neighbours_too(memory: MemorySystem) -> None:
    session = await opened(memory)
    await say(session, "A parrot.", "Beside it.")
    await session.memory.remember("A parrot as a note.", type="note")
    await session.memory.remember("A note beside it.", type="note")
    found = await session.memory.recall("parrot", limit=20, types=("note",))
    assert {hit.observation.type for hit in found.hits if hit.observation} == {"note"}
    assert len(found.considered) == 2


async def test_a_long_session_costs_the_same_at_its_end_as_at_its_start(memory: MemorySystem) -> None:
    session = await opened(memory)
    said = [f"Filler number {number}." for number in range(400)]
    said[10], said[200], said[390] = "The parrot.", "The walrus.", "The lizard."
    await say(session, *said)
    for animal in ("parrot", "walrus", "lizard"):
        found = await session.memory.recall(f"Tell me of the {animal}", profile="search")  # which has no floors
        assert len(found.considered) == 5


async def test_a_word_that_all_rows_hold_makes_no_more_work_than_the_bounds_allow(memory: MemorySystem) -> None:
    session = await opened(memory)
    await say(session, *(f"tea {number}" for number in range(RESCORED * 5 // 2)))
    found = await session.memory.recall("tea", profile="search")
    assert len(found.considered) <= 2 * RESCORED


async def test_a_row_is_beside_what_is_seen_as_rows_come_and_go(memory: MemorySystem) -> None:
    session = await opened(memory)
    ids = await say(session, "One parrot.", "Two.", "Three.", "Four.")

    async def beside() -> set[str]:
        found = (await session.memory.recall("parrot", limit=9, profile="search")).hits
        return {hit.observation.user_text for hit in found if hit.observation}

    assert await beside() == {"One parrot.", "Two.", "Three."}
    await session.memory.forget(ids[1])
    assert await beside() == {"One parrot.", "Three.", "Four."}
    await session.memory.restore(ids[1])
    assert await beside() == {"One parrot.", "Two.", "Three."}
    await session.memory.purge(ids[1], ids[2])
    await say(session, "Five.")
    assert await beside() == {"One parrot.", "Four.", "Five."}
