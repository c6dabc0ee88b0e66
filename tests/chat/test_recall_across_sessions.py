"""Told in one session, asked in another days later: the right exchange is in the prompt, and the receipt says why."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from chatbot.chat.receipts import Receipt
from chatbot.config import AgentSettings
from chatbot.errors import ProviderFailed
from chatbot.memory import MemorySystem
from chatbot.memory.episode import without_forgotten
from chatbot.models import ScriptedModel
from tests.clock import Clock
from tests.talk import chat_of, sent

STORES = ("basic_session", "observations")


@pytest.fixture
async def memory(memory_home: Path, clock: Clock) -> AsyncIterator[MemorySystem]:
    async with MemorySystem(memory_home, clock=clock) as memory:
        yield memory


async def told_in_one_asked_in_another(memory: MemorySystem, clock: Clock) -> tuple[ScriptedModel, Receipt]:
    first = await memory.create_session(STORES, "chat")
    chat = chat_of(ScriptedModel(["Noted."]), first, clock=clock)
    await chat.turn("My sister Ellen keeps two alpacas named Castor and Pollux.")
    other = await memory.create_session(STORES, "chat")
    await chat_of(ScriptedModel(["Noted."]), other, clock=clock).turn("The boiler was repaired by the Meyer company.")
    clock.move(days=9)
    second = await memory.create_session(STORES, "chat")
    model = ScriptedModel(["Castor and Pollux."])
    receipt = await chat_of(model, second, clock=clock).turn("What are the names of the alpacas of my sister?")
    return model, receipt


async def test_a_follow_up_still_sees_what_was_recalled_a_turn_ago_once(memory: MemorySystem, clock: Clock) -> None:
    first = await memory.create_session(STORES, "chat")
    await chat_of(ScriptedModel(["Noted."]), first, clock=clock).turn("My sister Ellen keeps two alpacas in Lisbon.")
    second = await memory.create_session(STORES, "chat")
    model = ScriptedModel(["Two alpacas."])
    chat = chat_of(model, second, clock=clock)
    await chat.turn("What animals does Ellen keep?")
    before = model.prompts[-1]
    await chat.turn("And in which town are the alpacas of Ellen?")
    assert sent(model).count("keeps two alpacas in Lisbon") == 1
    assert model.prompts[-1][: len(before)] == before


async def test_a_fork_is_told_nothing_that_it_shows_and_what_it_left_behind(memory: MemorySystem, clock: Clock) -> None:
    first = await memory.create_session(STORES, "chat")
    chat = chat_of(ScriptedModel(["Noted."] * 2), first, clock=clock)
    await chat.turn("My sister Ellen keeps two alpacas in Lisbon.")
    for step in (
        first.memory.remember("Counted the heads in the paddock", source="auto"),
        chat.turn("The alpacas of Ellen are called Castor and Pollux."),
    ):
        clock.move(minutes=1)
        await step
    await first.memory.summarize_session("The animals of Ellen", "They have a paddock.")
    clock.move(minutes=1)
    model = ScriptedModel(["Two alpacas."])
    fork = await memory.fork_session(first.id, at=2)
    receipt = await chat_of(model, fork, clock=clock).turn(
        "What animals does Ellen keep, and what are the alpacas called?"
    )
    assert sent(model).count("keeps two alpacas in Lisbon") == 1
    assert sent(model).count("Castor and Pollux") == 1
    assert len(receipt.memory["injected"]) == 1
    await chat_of(model, await memory.fork_session(first.id), clock=clock).turn("What about the paddock of Ellen?")
    assert "have a paddock" not in sent(model)  # the summary of what it shows
    assert "Counted the heads" not in sent(model)


async def test_a_correction_is_told_in_place_of_what_was_said(memory: MemorySystem, clock: Clock) -> None:
    session = await memory.create_session(STORES, "chat")
    receipt = await chat_of(ScriptedModel(["Noted."]), session, clock=clock).turn("My car is a green Saab.")
    await session.memory.update(str(receipt.remembered), narrative="My car is a blue Volvo.")
    model = ScriptedModel(["A Volvo."])
    await chat_of(model, await memory.create_session(STORES, "chat"), clock=clock).turn("What car do I own?")
    assert "My car is a blue Volvo." in sent(model)
    assert "Saab" not in sent(model)


async def test_what_is_forgotten_is_in_no_summary_also_if_it_was_said_twice(memory: MemorySystem, clock: Clock) -> None:
    session = await memory.create_session(STORES, "chat")
    chat = chat_of(ScriptedModel([ProviderFailed("overloaded"), "Noted."]), session, clock=clock)
    with pytest.raises(ProviderFailed):
        await chat.turn("My car is a green Saab.")
    clock.move(seconds=1)
    receipt = await chat.turn("My car is a green Saab.")
    assert await session.receipts_since(session.record.created_at) == await session.receipts()
    await session.memory.forget(str(receipt.remembered))
    assert await without_forgotten(session, await session.transcript_read_last(9)) == []


async def test_a_session_begins_with_the_titles_of_what_lasts_where_wanted(memory: MemorySystem, clock: Clock) -> None:
    memories = memory.memory("chat")
    for number in range(4):
        await memories.remember(f"We chose port {8000 + number}", narrative="and a long story why", type="decision")
    await memories.remember("The sky was grey", type="event")
    session = await memory.create_session(STORES, "chat")
    model = ScriptedModel(["Good morning.", "I see.", "Well."])
    chat = chat_of(model, session, clock=clock, settings=AgentSettings(index_rows=3))
    receipt = await chat.turn("Good morning to you!")
    listed = receipt.memory["listed"]
    assert (len(listed), receipt.memory["injected"]) == (3, [])
    assert [port for port in ("8000", "8001", "8002", "8003") if port in sent(model)] == ["8001", "8002", "8003"]
    assert "long story" not in sent(model)
    assert "sky" not in sent(model)
    await memories.forget(listed[0])
    receipt = await chat.turn("Which port did we choose?")
    assert "listed" not in receipt.memory
    others = {"We chose port 8001", "We chose port 8002"}
    assert {row.title for row in await session.memory.get(receipt.memory["injected"], count_use=False)} >= others
    assert "8003" not in sent(model)


async def test_what_was_said_again_after_something_else_has_its_last_day_and_comes_last(
    memory: MemorySystem, clock: Clock
) -> None:
    for text in ("I live in Ghent.", "I live in Antwerp now.", "I live in Ghent."):
        session = await memory.create_session(STORES, "chat")
        await chat_of(ScriptedModel(["Noted."]), session, clock=clock).turn(text)
        clock.move(days=40)
    model = ScriptedModel(["In Ghent."])
    await chat_of(model, await memory.create_session(STORES, "chat"), clock=clock).turn("Where do I live?")
    first, other, again = (f"{day.day} {day:%b %Y}" for day in (clock() - timedelta(40 * ago) for ago in (3, 2, 1)))
    notes = f"- {other}: I live in Antwerp now.\n- {first}, again {again}: I live in Ghent.\n"
    assert notes in sent(model)
    [*_, question] = [each for each in await memory.memory("chat").standing() if each.rows]
    assert [row.user_text for row in question.rows] == ["I live in Ghent.", "I live in Antwerp now."]


async def test_recalling_counts_as_a_use_and_looking_does_not(memory: MemorySystem, clock: Clock) -> None:
    _, receipt = await told_in_one_asked_in_another(memory, clock)
    session = await memory.create_session(STORES, "chat")
    for _ in range(2):
        [row] = await session.memory.get(receipt.memory["injected"], count_use=False)
        assert row.use_count == 1


async def test_nothing_is_recalled_or_kept_where_that_is_switched_off(memory: MemorySystem, clock: Clock) -> None:
    await told_in_one_asked_in_another(memory, clock)
    session = await memory.create_session(STORES, "chat")
    model = ScriptedModel(["I do not know."])
    settings = AgentSettings(recall_rows=0, remember_exchanges=False)
    receipt = await chat_of(model, session, clock=clock, settings=settings).turn("Which alpacas does my sister have?")
    assert "Castor" not in sent(model)
    assert receipt.memory == {}
    assert receipt.remembered is None


@pytest.mark.nightly
async def test_a_thousand_turns_later_a_prompt_is_no_longer_than_before(memory: MemorySystem, clock: Clock) -> None:
    session = await memory.create_session(STORES, "chat")
    model = ScriptedModel(["Noted."])
    chat = chat_of(model, session, clock=clock)
    sizes = []
    for number in range(150):
        await chat.turn(f"Fact number {number}: the crate {number * 31 % 97} holds {number} green bottles.")
        sizes.append(sum(len(message.content) for message in model.prompts[-1]))
    assert max(sizes[-40:]) <= 1.5 * max(sizes[30:70])


async def test_open_tasks_come_up_with_details_in_the_first_turn_alone(memory: MemorySystem, clock: Clock) -> None:
    memory = memory.cleared_for(project="travel")
    earlier = await memory.create_session(STORES, "chat")
    task = await earlier.memory.add_task(
        "Renew the passport", due="2026-04-01", priority="high", project="travel", note="2 photos"
    )
    session = await memory.create_session(STORES, "chat")
    model = ScriptedModel(["Good morning."])
    chat = chat_of(model, session, clock=clock)
    await chat.turn("Which birds sing at dawn?")
    assert "Renew the passport" in sent(model)
    assert "open task: Renew the passport. due 2026-04-01 · high priority · project travel · 2 photos" in sent(model)
    for question in ("Which of them migrate to Africa?", "And how far do they fly?"):
        await chat.turn(question)
    assert "Renew the passport" not in sent(model)
    await session.memory.update_task(task.id, status="completed")
    third = await memory.create_session(STORES, "chat")
    await chat_of(model, third, clock=clock).turn("Which birds sing at dusk?")
    assert "Renew the passport" not in sent(model)
