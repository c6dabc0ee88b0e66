"""The profile in a prompt: first, dated, within its budget, and private lines only where that is consented."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from chatbot.chat.memory_block import PROFILE_TOKENS
from chatbot.chat.turn_memory import PromptMemory, TurnMemory, disclosed
from chatbot.config import AgentSettings
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.writing import Draft
from chatbot.models.disclosure import Disclosure
from chatbot.models.token_counts import estimate_text
from tests.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(step=timedelta(seconds=1))


@pytest.fixture
async def session(memory_home: Path, clock: Clock) -> AsyncIterator[SessionHandle]:
    settings = {"observations": {"cache": str(memory_home.parent / "cache")}}
    async with MemorySystem(memory_home, clock=clock, settings=settings) as memory:
        yield await memory.create_session(("basic_session", "observations"), "chat")


async def say(session: SessionHandle, text: str) -> None:
    await session.remember_all([Draft(type="exchange", user_text=text, assistant_text="ok", source="chat")])


async def asked(session: SessionHandle, clock: Clock, text: str) -> PromptMemory:
    memory = TurnMemory.of(session, AgentSettings(), clock)
    assert memory is not None
    return await memory.recall(["before", text], since=None, most_tokens=2_000)


async def test_what_holds_stands_first_and_what_held_is_dated(session: SessionHandle, clock: Clock) -> None:
    await say(session, "I live in Berlin.")
    clock.move(days=90)
    await say(session, "I moved to Lisbon!")
    text = (await asked(session, clock, "Where do I live?")).text
    lines = [line for line in text.splitlines() if "|" in line]
    assert lines[:2] == ["  title | lives in Lisbon", "  title | lives in Berlin"]
    heads = [line for line in text.splitlines() if line.startswith("[")]
    assert all("20" in head for head in heads), "each entry has its date"


async def test_a_question_about_a_time_brings_what_held_then(session: SessionHandle, clock: Clock) -> None:
    await say(session, "I live in Berlin.")
    month = f"{clock():%B %Y}"
    clock.move(days=200)
    await say(session, "I moved to Lisbon!")
    clock.move(days=60)
    text = (await asked(session, clock, f"Where did I live in {month}?")).text
    assert text.index("lives in Berlin") < text.index("lives in Lisbon")


async def test_lines_take_two_hundred_tokens_and_pinned_ones_come_all_the_same(
    session: SessionHandle, clock: Clock
) -> None:
    await say(
        session,
        "I speak German, French, Greek, Thai, Dutch, Welsh, Urdu, Czech, Latin, Malay",
    )
    await session.profile_set("motto", "Slow and steady wins the race")
    await session.profile_pin("motto")
    recalled = await asked(session, clock, "Which languages do I speak?")
    assert recalled.block is not None
    shown = recalled.text.split("exchange, importance")[0]
    assert "Slow and steady" in shown
    assert 2 <= len(recalled.block.profile) < 11
    assert estimate_text(shown) <= PROFILE_TOKENS + 80, "with what stands around the lines"


@pytest.mark.parametrize(
    ("disclosure", "sent"),
    [
        (Disclosure("openai"), False),
        (Disclosure("openai", sensitivity="public"), False),
        (Disclosure("openai", sensitivity="private"), True),
        (Disclosure("local"), True),
        (Disclosure(), True),
    ],
)
async def test_private_lines_are_sent_to_who_may_have_them(
    session: SessionHandle, clock: Clock, disclosure: Disclosure, *, sent: bool
) -> None:
    await session.profile_set("allergy", "peanuts")
    await session.profile_set("home", "Graz")
    recalled = disclosed(await asked(session, clock, "I live for dinner, what can I eat at my home?"), disclosure)
    assert ("allergic to peanuts" in recalled.text) is sent
    assert "lives in Graz" in recalled.text
    assert ("withheld" in recalled.record) is not sent


TOLD = (
    "I'm allergic to peanuts, so please keep that in mind for the picnic at the lake.",
    "I have asthma and no slot for it, please keep peanuts and the picnic at the lake in mind.",
)


@pytest.mark.parametrize("said", TOLD)
@pytest.mark.parametrize(("disclosure", "sent"), [(Disclosure("openai"), False), (Disclosure("local"), True)])
async def test_an_exchange_about_health_is_private_with_or_without_a_slot(
    session: SessionHandle, clock: Clock, disclosure: Disclosure, said: str, *, sent: bool
) -> None:
    await say(session, said)
    await say(session, "The picnic at the lake begins at noon on the jetty.")
    [told] = await session.every(types=("exchange",), ask=("private",))
    assert told.user_text == said
    whole = await asked(session, clock, "What about the picnic at the lake?")
    recalled = disclosed(whole, disclosure)
    assert ("peanuts" in recalled.text) is sent
    assert "on the jetty" in recalled.text
    if not sent:
        assert told.id in recalled.record["withheld"]["rows"]
        assert told.id not in recalled.record["injected"]
