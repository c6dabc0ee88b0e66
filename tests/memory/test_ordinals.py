"""Sessions that are named by their place: what a question means, and which rows are raised, for whom."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem
from chatbot.memory.ordinals import session_places, sessions_named
from chatbot.memory.writing import Draft
from chatbot.stores.access import Clearance, Visibility
from chatbot.stores.query import Filter
from tests.clock import Clock

START = datetime(2026, 3, 4, 9, tzinfo=UTC)

PLACES = {
    "What did I say in session 3?": [3],
    "in our third session": [3],
    "the 30th session, and the twenty-first conversation": [30, 21],
    "Session #12 and session no. 2": [12, 2],
    "the first time we talked": [1],
    "the second time that you and I spoke": [2],
    "what did we discuss the last time we talked?": [-1],
    "when we last spoke": [-1],
    "the last session": [-1],
    "our previous conversation": [-1],
    "during last session": [-1],
    "the session before last": [-2],
    "two sessions ago": [-2],
    "the third time I met Anna": [],
    "the last time I went to Rome": [],
    "the session was long": [],
    "let us chat a little": [],
    "session 0": [],
    "two weeks ago": [],
    "": [],
}


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[MemorySystem]:
    settings = {"observations": {"cache": str(tmp_path / "cache")}}
    async with MemorySystem(tmp_path / "memory", clock=Clock(START), settings=settings) as memory:
        yield memory


async def talk(
    memory: MemorySystem, *said: str, days_ago: int, agent: str = "chat", visibility: Visibility = "shared"
) -> str:
    session = await memory.create_session(["basic_session", "observations"], agent)
    at = START - timedelta(days=days_ago)
    drafts = [
        Draft(type="exchange", user_text=text, created_at=at + timedelta(minutes=n), visibility=visibility)
        for n, text in enumerate(said)
    ]
    await session.remember_all(drafts)
    return session.id


@pytest.mark.parametrize("text", PLACES)
def test_a_question_names_these_places(text: str) -> None:
    assert session_places(text) == PLACES[text]


async def named(
    memory: MemorySystem,
    text: str,
    *,
    agent: str | None = "chat",
    clearance: Clearance = "full",
    now: str | None = None,
) -> list[str]:
    scope = replace(memory.memories("chat", session_id=now)._scope(), clearance=clearance)
    return await sessions_named(scope, scope.view(), text, Filter(agent_id=agent))


async def test_places_are_counted_over_the_agents_sessions_in_the_order_of_their_first_rows(
    memory: MemorySystem,
) -> None:
    later = await talk(memory, "b1", "b2", days_ago=5)
    await talk(memory, "other", days_ago=8, agent="another")
    first = await talk(memory, "a1", days_ago=9)
    newest = await talk(memory, "c1", days_ago=1)
    assert await named(memory, "in session 1 and session 2") == [first, later]
    assert await named(memory, "our third session") == [newest]
    assert await named(memory, "the last session") == [newest]
    assert await named(memory, "the last session", now=newest) == [later]
    assert await named(memory, "two sessions ago", now=newest) == [first]
    assert await named(memory, "session 4") == []
    assert await named(memory, "session 4", agent=None) == [newest]


async def test_a_session_that_may_not_be_seen_counts_for_nothing(memory: MemorySystem) -> None:
    await talk(memory, "hidden", days_ago=9, visibility="private")
    seen = await talk(memory, "seen", days_ago=5, visibility="social")
    await talk(memory, "hidden too", days_ago=1, visibility="private")
    for text in ("session 1", "the last session"):
        assert await named(memory, text, clearance="familiar") == [seen]
    assert await named(memory, "session 2", clearance="familiar") == []
    assert await named(memory, "session 2", clearance="full") == [seen]


async def test_a_session_of_which_all_was_forgotten_counts_no_more(memory: MemorySystem) -> None:
    await talk(memory, "gone", days_ago=9)
    kept = await talk(memory, "kept", days_ago=5)
    [row] = [each for each in (await memory.list_observations()).rows if each.user_text == "gone"]
    await memory.forget(row.id)
    assert await named(memory, "session 1") == [kept]


async def test_rows_of_a_named_session_come_first(memory: MemorySystem) -> None:
    await talk(memory, "we saw a parrot", days_ago=9)
    await talk(memory, "a parrot again", "and good bye", days_ago=5)
    hits = (await memory.recall("the parrot of the second session")).hits
    texts = [(hit.observation.user_text, "dates" in hit.parts) for hit in hits if hit.observation]
    assert texts[0] == ("a parrot again", True)
    assert {text for text, is_named in texts if is_named} == {"a parrot again", "and good bye"}


async def test_a_question_without_a_place_names_no_session(memory: MemorySystem) -> None:
    await talk(memory, "we saw a parrot", days_ago=9)
    [hit] = (await memory.recall("the parrot")).hits
    assert "dates" not in hit.parts


async def test_an_emoji_is_searched_for(memory: MemorySystem) -> None:
    await talk(memory, "my pet is a 🦜", *(f"line {n}" for n in range(5)), days_ago=9)
    assert [hit.observation.user_text for hit in await memory.search("🦜")] == ["my pet is a 🦜"]
