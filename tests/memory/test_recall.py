"""Recall through the public API: what is found for questions as people ask them."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chatbot.chat.turn_memory import TurnMemory
from chatbot.config import AgentSettings
from chatbot.embedding import Embedder, EmbeddingResult
from chatbot.memory import MemorySystem
from chatbot.memory.writing import Draft
from chatbot.messages import Usage
from chatbot.models.local_encoder import MiniLMEmbedder
from chatbot.stores.records import vector
from tests.clock import Clock

START = datetime(2026, 3, 4, 9, tzinfo=UTC)
STORES = ["basic_session", "observations"]


@pytest.fixture
async def memory(memory_home: Path) -> AsyncIterator[MemorySystem]:
    async with MemorySystem(memory_home, clock=Clock(START, step=timedelta(seconds=1))) as memory:
        yield memory


async def told(memory: MemorySystem, *said: str, days_ago: float = 0) -> list[str]:
    session = await memory.create_session(STORES, "chat")
    at = START - timedelta(days=days_ago)
    drafts = [
        Draft(type="exchange", user_text=text, created_at=at + timedelta(minutes=n)) for n, text in enumerate(said)
    ]
    return [kept.id for kept in await session.memory.remember_all(drafts)]


async def test_a_summary_lends_nothing_to_what_was_said_beside_it(memory: MemorySystem) -> None:
    """It says the words again, and what was said last is not about them for standing beside it."""
    said = [
        "The locker has the number 4711.",
        *(f"We spoke of {what}." for what in ("rain", "bread", "trains")),
        "Good bye then.",
    ]
    ids = await told(memory, *said)
    session = (await memory.list_sessions())[0]
    handle = await memory.load_session(session.id, "chat")
    before = {
        row.id: row.parts["spill"] for row in (await memory.memory().recall("which number has the locker?")).considered
    }
    await handle.memory.remember(type="session_summary", narrative="The locker has the number 4711.", derived_from=ids)
    after = {
        row.id: row.parts["spill"] for row in (await memory.memory().recall("which number has the locker?")).considered
    }
    assert after.get(ids[-1], 0.0) == before.get(ids[-1], 0.0)
    assert after.get(ids[-2], 0.0) == before.get(ids[-2], 0.0)


async def recalled(memory: MemorySystem, *question: str, limit: int = 5, statements: bool = False) -> list[str]:
    found = await memory.memory().recall(question, limit=limit, statements=statements)
    return [hit.observation.user_text for hit in found.hits if hit.observation]


DIRECTIONS = {
    "How many cats": (1, 0, 0),
    "We have two": (0.8, 0.6, 0),
    "I walked": (0.5, 0, 0.87),
    "Moritz has": (0, 1, 0),
    "Both": (0, 0.98, -0.2),
}


class Directions(Embedder):
    """The meaning of a text by its first words."""

    name = "directions"
    sends_away = False
    dimension = 3

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        found = [next(at for begin, at in DIRECTIONS.items() if text.startswith(begin)) for text in texts]
        return EmbeddingResult([vector(at) for at in found], Usage())


@pytest.fixture
async def told_of_cats(memory_home: Path) -> AsyncIterator[MemorySystem]:
    """A statement, eight other ones, and a later statement about the same thing that no word of a question finds."""
    async with MemorySystem(memory_home, clock=Clock(START), embedder=Directions()) as memory:
        await told(memory, "We have two cats, Max and Moritz.", days_ago=90)
        await told(memory, *(f"I walked {number} miles to see cats." for number in range(8)), days_ago=50)
        await told(memory, "Moritz has died, so it is Max alone now.", days_ago=9)
        await memory.memory().embed_memories()
        yield memory


async def test_what_was_said_later_about_the_same_thing_stands_beside_it_in_place_of_the_least_match(
    told_of_cats: MemorySystem,
) -> None:
    found = await told_of_cats.memory().recall("How many cats do I have?", limit=4, statements=True)
    assert len(found.hits) == 4
    first, *_, last = found.hits
    assert first.observation is not None
    assert last.observation is not None
    assert first.observation.user_text.startswith("We have two")
    assert last.observation.user_text.startswith("Moritz has died")
    assert last.parts["later"] == pytest.approx(0.6)
    assert "later" not in first.parts
    assert [each.id for each in found.considered if each.verdict == "recalled"] == [hit.id for hit in found.hits]
    assert "over limit" in {each.verdict for each in found.considered}
    for limit, statements in ((1, True), (4, False)):
        found = await told_of_cats.memory().recall("How many cats do I have?", limit=limit, statements=statements)
        assert not any("later" in hit.parts for hit in found.hits)


async def test_the_receipt_lists_what_was_said_later_however_little_it_answers(told_of_cats: MemorySystem) -> None:
    await told(told_of_cats, *(f"I walked {number} miles to see cats again." for number in range(40)), days_ago=40)
    await told_of_cats.memory().embed_memories()
    session = await told_of_cats.create_session(STORES, "chat")
    turn = TurnMemory.of(session, AgentSettings(), Clock(START))
    assert turn is not None
    recalled = await turn.recall(["How many cats do I have?"], since=None, most_tokens=2_000)
    assert "Moritz has died" in recalled.text
    [later] = [each for each in recalled.record["considered"] if "later" in each["parts"]]
    assert later["verdict"] == "recalled"
    assert later["id"] in recalled.record["injected"]


async def test_no_later_statement_is_recalled_that_was_excluded_or_made_after_the_time_that_is_asked_about(
    told_of_cats: MemorySystem,
) -> None:
    question = "How many cats do I have?"
    [later] = [
        hit.id
        for hit in (await told_of_cats.memory().recall(question, limit=4, statements=True)).hits
        if "later" in hit.parts
    ]
    for options in ({"exclude": {later}}, {"as_of": START - timedelta(days=20)}):
        found = await told_of_cats.memory().recall(question, limit=4, statements=True, **options)
        assert len(found.hits) == 4
        assert later not in {hit.id for hit in found.hits}


async def test_of_two_later_statements_that_are_equally_near_none_is_known_to_be_about_the_same_thing(
    told_of_cats: MemorySystem,
) -> None:
    await told(told_of_cats, "Both of them slept all day?")
    await told_of_cats.memory().embed_memories()
    found = await told_of_cats.memory().recall("How many cats do I have?", limit=4, statements=True)
    assert any("later" in hit.parts for hit in found.hits), "a mere question states nothing"
    await told(told_of_cats, "Both of them slept all day.")
    await told_of_cats.memory().embed_memories()
    found = await told_of_cats.memory().recall("How many cats do I have?", limit=4, statements=True)
    assert not any("later" in hit.parts for hit in found.hits)


async def test_what_was_brought_in_later_and_said_before_is_no_later_statement(memory_home: Path) -> None:
    async with MemorySystem(memory_home, clock=Clock(START), embedder=Directions()) as memory:
        await told(memory, "We have two cats, Max and Moritz.", days_ago=9)
        await told(memory, "Moritz has died, so it is Max alone now.", days_ago=90)
        await memory.memory().embed_memories()
        found = await memory.memory().recall("How many cats do I have?", limit=4, statements=True)
        assert [hit.parts.get("later") for hit in found.hits] == [None]


async def test_several_questions_take_one_call_of_the_embedder_and_count_a_use_once(memory_home: Path) -> None:
    class Counting(MiniLMEmbedder):
        calls = 0

        async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
            self.calls += 1
            return await super().embed(texts)

    embedder = Counting()
    async with MemorySystem(memory_home, embedder=embedder) as memory:
        await told(memory, "On Sundays I play chess with my uncle.", "The boiler hums at night.")
        await memory.memory().embed_memories()
        before = embedder.calls
        questions = ["board games", "the noise of the heating", "chess", ""]
        answers = await memory.memory().search_batch(questions, limit=1)
        assert embedder.calls == before + 1
        assert [hit.observation.user_text[:3] for hits in answers[:3] for hit in hits] == ["On ", "The", "On "]
        assert [hit.observation.use_count for hit in await memory.memory().search("chess", limit=1)] == [1]


async def test_what_was_merely_asked_takes_no_place_among_statements(memory_home: Path) -> None:
    asked = [f"Which book about {what} would you recommend?" for what in ("bees", "comets", "maps", "fonts")]
    async with MemorySystem(memory_home, embedder=MiniLMEmbedder()) as memory:
        await told(memory, *asked, "Middlemarch is on the bedside table.")
        question = "Which book am I reading?"
        assert await recalled(memory, question, limit=2, statements=True) == ["Middlemarch is on the bedside table."]
        found = await memory.memory().recall(question, statements=True)
        assert {each.verdict for each in found.considered} == {"recalled", "only asked"}
        (found_first,) = await recalled(memory, "Did I ask for books about comets?", limit=1)
        assert found_first == asked[1]


async def test_a_question_that_was_asked_before_is_answered_again(memory_home: Path) -> None:
    """The earlier question is far more alike than any answer, and must not decide how good an answer must be."""
    async with MemorySystem(memory_home, embedder=MiniLMEmbedder()) as memory:
        await told(memory, "The doctor put me on apixaban, and the warfarin is gone.", "The dog is called Bosun.")
        await told(memory, "Which blood thinner do I take?")
        found = await memory.memory().recall("Which blood thinner do I take?", statements=True)
        assert [hit.observation.user_text[:10] for hit in found.hits if hit.observation] == ["The doctor"]


async def test_of_many_notes_of_one_form_the_one_about_both_comes_first(memory: MemorySystem) -> None:
    """Neighbours and the session raise talk; they must not put a note about somebody else before the exact one."""
    people = ("Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gil")
    things = ("chess", "kayak", "printer", "garden", "violin", "boiler")
    told_of = [(people[n * 3 % 7], things[n * 5 % 6]) for n in range(84)]
    texts = [f"{who} talked about the {what} with number {n}." for n, (who, what) in enumerate(told_of)]
    session = await memory.create_session(STORES, "chat")
    await session.memory.remember_all([Draft(type="note", narrative=text) for text in texts])
    for who, what in sorted(set(told_of))[::3]:
        [first, *_] = (await session.memory.recall(f"What did {who} say about the {what}?")).hits
        assert first.observation is not None
        assert {who, what} <= set(first.observation.narrative.split())
