"""Recall through the public API: questions as people ask them, and promises for any memory."""

import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chatbot.chat.conversation_memory import ConversationMemory
from chatbot.config import AgentSettings
from chatbot.embedder import Embedder, EmbeddingResult
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.recall import RESCORED
from chatbot.memory.writing import Draft
from chatbot.messages import Usage
from chatbot.models.local_encoder import MiniLMEmbedder
from chatbot.stores.access import Clearance
from chatbot.stores.errors import InvalidValue
from chatbot.stores.query import Filter
from chatbot.stores.records import vector
from tests.clock import Clock
from tests.effort import rounds

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


async def recalled(memory: MemorySystem, *question: str, limit: int = 5, statements: bool = False) -> list[str]:
    found = await memory.memory().recall(question, limit=limit, statements=statements)
    return [hit.observation.user_text for hit in found.hits if hit.observation]


DIRECTIONS = {
    "How many cats": (1, 0, 0), "We have two": (0.8, 0.6, 0), "I walked": (0.5, 0, 0.87), "Moritz has": (0, 1, 0),
    "Both": (0, 0.98, -0.2),
}  # fmt: skip


class Directions(Embedder):
    """The meaning of a text by its first words."""

    name = "directions"
    sends_away = False

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


async def test_what_was_said_later_about_it_stands_beside_it_for_the_least_match(told_of_cats: MemorySystem) -> None:
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
    turn = ConversationMemory.of(session, AgentSettings())
    assert turn is not None
    recalled = await turn.recall(["How many cats do I have?"], since=None, most_tokens=2_000)
    assert "Moritz has died" in recalled.text
    [later] = [each for each in recalled.record["considered"] if "later" in each["parts"]]
    assert later["verdict"] == "recalled"
    assert later["id"] in recalled.record["injected"]


async def test_no_excluded_or_too_late_statement_is_recalled(told_of_cats: MemorySystem) -> None:
    question = "How many cats do I have?"
    found = await told_of_cats.memory().recall(question, limit=4, statements=True)
    [later] = [hit.id for hit in found.hits if "later" in hit.parts]
    for options in ({"exclude": {later}}, {"as_of": START - timedelta(days=20)}):
        found = await told_of_cats.memory().recall(question, limit=4, statements=True, **options)
        assert len(found.hits) == 4
        assert later not in {hit.id for hit in found.hits}


async def test_of_two_later_statements_equally_alike_none_is_about_the_same(told_of_cats: MemorySystem) -> None:
    for said, is_alone in (
        ("Both, Max and Moritz, slept?", True),  # a mere question states nothing
        ("Both of them slept all day.", True),  # it shares no word
        ("Both, Max and Moritz, slept.", False),
    ):
        await told(told_of_cats, said)
        await told_of_cats.memory().embed_memories()
        found = await told_of_cats.memory().recall("How many cats do I have?", limit=4, statements=True)
        assert any("later" in hit.parts for hit in found.hits) == is_alone


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
        await told(memory, *(f"Which book about bees, number {number}, am I reading?" for number in range(40)))
        assert await recalled(memory, question, limit=2, statements=True) == ["Middlemarch is on the bedside table."]
        (found_first,) = await recalled(memory, "Did I ask for books about comets?", limit=1)
        assert found_first == asked[1]


async def test_a_question_that_was_asked_before_is_answered_again(memory_home: Path) -> None:
    """The earlier question is far more alike than any answer, and must not decide how good an answer must be."""
    async with MemorySystem(memory_home, embedder=MiniLMEmbedder()) as memory:
        answers = ["The doctor put me on apixaban, and the warfarin is gone.", "My dentist is Dr. Huber."]
        questions = ["Which blood thinner do I take?", "Who is my dentist?"]
        await told(memory, "The dog is called Bosun.", *answers, *questions)
        for question, answer in zip(questions, answers, strict=True):
            found = await recalled(memory, question, statements=True)
            assert answer in found
            assert not {*found} & {*questions}
            assert (await memory.memory().search(question))[0].observation.user_text == answer


async def test_a_row_with_the_identifier_of_a_question_is_recalled_among_many_alike(memory_home: Path) -> None:
    async with MemorySystem(memory_home, embedder=MiniLMEmbedder()) as memory:
        orders = [f"Order {number} is late again." for number in range(7100, 7150)]
        await told(memory, *orders)
        assert await recalled(memory, "Anything on 7133?", limit=1, statements=True) == [orders[33]]


async def test_a_fact_in_a_long_message_is_as_near_to_a_question_as_alone(memory_home: Path) -> None:
    facts = (
        "I am 67 and I live in Aveiro with my dog Figo.", "My daughter Ines has two boys who come on Sundays.",
        "I sing in a choir on Thursday evenings.", "My sister lives in Lisbon, and I go there by train in May.",
        "My car is older than the boys, and it has never left me standing.", "On Saturdays I buy fish at the harbour.",
        "The neighbours keep bees, and they give me honey for my roses.", "I used to teach chemistry.",
        "The doctor says that I must never take ibuprofen.", "It is for my kidneys, he says.",
    )  # fmt: skip
    async with MemorySystem(memory_home, embedder=MiniLMEmbedder()) as memory:
        await told(memory, " ".join(facts), "A tablet helps against a headache.", " ".join(facts[8:]))
        await memory.memory().embed_memories()
        [found] = await memory.memory().nearest([("Which medicine must I not take?", Filter())])
        score = {hit.observation.user_text: hit.score for hit in found}
        assert score[" ".join(facts)] == pytest.approx(score[" ".join(facts[8:])])


async def test_a_statement_with_a_question_mark_is_recalled(memory_home: Path) -> None:
    async with MemorySystem(memory_home, embedder=MiniLMEmbedder()) as memory:
        await told(memory, "I don't eat cheese, I'm lactose intolerant, funny for a baker, no?", "Is cheese healthy?")
        found = await memory.memory().recall("May I eat cheese?", statements=True)
        is_shown = {"recalled": True, "only asked": False}
        assert {each.verdict: each.observation is not None for each in found.considered} == is_shown


async def test_the_best_rows_are_compared_with_the_question_word_by_word_and_say_so(memory_home: Path) -> None:
    async with MemorySystem(memory_home, embedder=MiniLMEmbedder()) as memory:
        await told(
            memory, *(f"We spoke of {what}." for what in ("rain", "bread", "trains")), "I am allergic to walnuts."
        )
        considered = (await memory.memory().recall("Which nuts may I not eat?")).considered
        parts = [each.parts["closeness"] for each in considered]
        assert sum(parts) == pytest.approx(0, abs=1e-6)
        assert max(parts) == parts[0] > 0
        assert [each.score for each in considered] == sorted((each.score for each in considered), reverse=True)


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


WEDNESDAY = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock(WEDNESDAY)


@pytest.fixture(params=["files", "in memory"])
async def either(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[MemorySystem]:
    home = tmp_path / "memory" if request.param == "files" else None
    async with MemorySystem(home, clock=clock) as opened:
        yield opened


async def opened(either: MemorySystem, clearance: Clearance = "full") -> SessionHandle:
    store = "observations" if either.home else "in_memory"
    return await either.cleared_for(clearance).create_session([store], "chat")


def exchange(text: str, reply: str = "", *, days: float = 0, **given: Any) -> Draft:
    at = WEDNESDAY - timedelta(days=days)
    return Draft(type="exchange", user_text=text, assistant_text=reply, created_at=at, **given)


async def say(session: SessionHandle, *drafts: Draft | str) -> list[str]:
    given = [exchange(each) if isinstance(each, str) else each for each in drafts]
    return [kept.id for kept in await session.memory.remember_all(given)]


async def texts_of(session: SessionHandle, texts: str | Sequence[str], **options: Any) -> list[str]:
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
    ("What did I buy yesterday?", "I bought a cello."), ("What did I do yesterday?", "I bought a cello."),
    ("谁养羊驼?", "我妹妹养了两只羊驼。"), ("2月21日我在哪里?", "昨天我去了东京塔。"), ("东京", "昨天我去了东京塔。"),
    ("What does NewSQLiteStore do?", "sqlite.go calls NewSQLiteStore twice."),
    ("Which file is called sqlite.go?", "sqlite.go calls NewSQLiteStore twice."),
    ("How was it to rename a git branch?", "How do I rename a branch?"),
]  # fmt: skip


@pytest.mark.parametrize("profile", ["inject", "search"])
async def test_the_right_thing_comes_first(either: MemorySystem, profile: str) -> None:
    for draft in SAID:
        await say(await opened(either), draft)
    session = await opened(either)
    for question, answer in ASKED:
        found = await texts_of(session, question, profile=profile)
        assert found[0] == answer, question


async def test_a_search_finds_what_was_said_on_a_day_although_others_hold_a_word(either: MemorySystem) -> None:
    session = await opened(either)
    await say(session, *SAID, exchange("Yesterday is a song.", days=50))
    found = [hit.observation.user_text for hit in await session.memory.search("What did I do yesterday?")]
    assert {"Yesterday is a song.", "I bought a cello."} <= {*found}


async def test_all_that_the_user_said_is_asked_for_and_the_last_weighs_most(either: MemorySystem) -> None:
    for draft in SAID:
        await say(await opened(either), draft)
    session = await opened(either)
    assert (await texts_of(session, ["Tell me of the boiler.", "Who did that?"]))[0] == SAID[1].user_text
    found = await texts_of(session, ["Tell me of the boiler.", "And of the cello?"])
    assert found[0] == SAID[3].user_text
    assert SAID[1].user_text in found


async def test_of_equal_matches_the_one_whose_session_is_about_it_comes_first(either: MemorySystem) -> None:
    talk, other = await opened(either), await opened(either)
    filling = [f"Filler {number}." for number in range(8)]
    await say(talk, "Sailing is on.", *filling[:4], "A regatta was held.")
    await say(other, "Cooking is on.", *filling[4:], "A regatta was seen.")
    found = await texts_of(await opened(either), "the sailing regatta")
    assert found.index("A regatta was held.") < found.index("A regatta was seen.")


@pytest.mark.parametrize("profile", ["inject", "search"])
@pytest.mark.parametrize("words", [3, 300])
async def test_nonsense_finds_nothing(either: MemorySystem, profile: str, words: int) -> None:
    for draft in SAID:
        await say(await opened(either), draft)
    nonsense = " ".join(f"xq{number}zzk" for number in range(words))
    session = await opened(either)
    assert (await session.memory.recall(nonsense, profile=profile)).considered == ()
    assert await session.memory.search(nonsense) == []


async def test_stop_words_alone_find_what_is_newest_and_put_nothing_into_a_prompt(either: MemorySystem) -> None:
    session = await opened(either)
    await say(session, *(exchange(f"Number {number} said.", days=9 - number) for number in range(9)))
    newest = [hit.observation.user_text for hit in await session.memory.search("what is it about?", limit=3)]
    assert newest == [f"Number {number} said." for number in (8, 7, 6)]
    found = await session.memory.recall("what is it about?")
    assert found.hits == ()
    assert {each.verdict for each in found.considered} == {"much weaker than the best"}


async def test_a_long_message_is_searched_for_by_its_rarest_words_wherever_they_stand(either: MemorySystem) -> None:
    common = [f"common{number}" for number in range(60)]
    for said in (*(f"{one} {other}" for one, other in pairwise(common)), "The parrot is Captain Flint."):
        await say(await opened(either), said)
    found = await texts_of(await opened(either), " ".join(common) + ". And the parrot, Captain Flint?", limit=3)
    assert found[0] == "The parrot is Captain Flint."


async def test_verdicts_tell_why_and_excluded_rows_make_room(either: MemorySystem) -> None:
    session = await opened(either)
    ids = await say(session, *(f"Tea number {number}." for number in range(4)))
    best = [hit.id for hit in (await session.memory.recall("tea", limit=4)).hits]
    assert set(best) == set(ids)
    found = await session.memory.recall("tea", limit=2, exclude={best[0]})
    assert [each.id for each in found.hits] == best[1:3]
    verdicts = ("seen already", "recalled", "recalled", "over limit")
    assert {each.id: each.verdict for each in found.considered} == dict(zip(best[:4], verdicts, strict=True))
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
        async with MemorySystem(home, clock=clock) as either:
            for _ in range(rounds(8, least=2)):
                said = [exchange(" ".join(made.choices(words, k=5)), days=made.randrange(9)) for _ in range(20)]
                await say(await opened(either), *said)
            asking = await opened(either)
            questions = [" ".join(made.choices(words, k=4)) for _ in range(10)]
            twice = [[await texts_of(asking, each, limit=50) for each in questions] for _ in range(2)]
            assert twice[0] == twice[1]
            orders.append(twice[0])
            batch = await asking.memory.search_batch(questions, limit=5, count_use=False)
            single = [await asking.memory.search(each, limit=5, count_use=False) for each in questions]
            assert batch == single
    assert orders[0] == orders[1]


async def test_a_word_that_all_rows_hold_makes_no_more_work_than_the_bounds_allow(either: MemorySystem) -> None:
    session = await opened(either)
    await say(session, *(f"tea {number}" for number in range(RESCORED * 5 // 2)))
    found = await session.memory.recall("tea", profile="search")
    assert len(found.considered) <= 2 * RESCORED
