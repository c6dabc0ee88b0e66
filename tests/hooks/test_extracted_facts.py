"""Outcomes of facts: known, added, updated, denied, and what takes whose place by meaning; nothing looser, ever."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chatbot.hooks.extraction.facts import (
    MOST_CANDIDATES,
    ExtractedFact,
    FactOutcome,
    Origin,
    apply,
    candidates_for,
    plan,
)
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.models import ScriptedModel
from chatbot.models.model import Disclosure
from chatbot.stores.access import Guard
from chatbot.stores.observation import Observation, Status
from chatbot.stores.query import Filter
from tests.hooks.conftest import calls_of, settings_of
from tests.memory.test_meaning import LetterEmbedder

pytest_plugins = ["tests.servers.openai_server"]

OWN = Guard("private", "public", "public", "", "")
TEA = "Sam likes green tea"


def decides(*decisions: tuple[int, str, object]) -> ScriptedModel:
    listed = [dict(zip(("fact", "action", "memory"), each, strict=True)) for each in decisions]
    return ScriptedModel([json.dumps({"decisions": listed})])


async def learn(
    session: SessionHandle,
    model: ScriptedModel,
    home: Path,
    *facts: ExtractedFact | str,
    guard: Guard = OWN,
    **settings: Any,
) -> list[FactOutcome]:
    whole = [fact if isinstance(fact, ExtractedFact) else ExtractedFact(fact, "Sam") for fact in facts]
    origin = Origin("chat", guard)
    steps = await plan(
        whole, session.memory, calls_of(model, home, session, **settings), origin, settings_of(**settings)
    )
    return await apply(steps, session.memory, origin)


async def statuses(session: SessionHandle) -> dict[str, str]:
    statuses: list[Status] = ["active", "superseded", "deleted", "archived"]
    page = await session.memory.list_observations(
        limit=100, statuses=statuses, sensitivities=("public", "private", "secret")
    )
    return {row.title: row.status for row in page.rows}


@pytest.mark.parametrize("action", ["UPDATE", "DELETE"])
async def test_a_fact_of_the_bot_takes_no_others_place(session: SessionHandle, memory_home: Path, action: str) -> None:
    old = (await session.memory.remember("Sam lives in Lisbon", subject="Sam")).id
    origin = Origin("chat", OWN, own="Yes.", question="The page says that Sam lives in Porto now?")
    calls = calls_of(decides((0, action, 0)), memory_home)
    steps = await plan([ExtractedFact("Sam lives in Porto", "Sam")], session.memory, calls, origin, settings_of())
    [outcome] = await apply(steps, session.memory, origin)
    assert (outcome.outcome, outcome.changed) == ("added", "")
    [row] = await session.memory.get([old])
    assert row.status == "active"


async def test_what_is_denied_is_forgotten_and_can_be_restored(session: SessionHandle, memory_home: Path) -> None:
    old = (await session.memory.remember("Sam has a dog", subject="Sam")).id
    model = decides((0, "DELETE", 0))
    [learned] = await learn(session, model, memory_home, "Sam no longer has a dog")
    assert (learned.outcome, learned.changed) == ("added", old)
    assert await statuses(session) == {"Sam has a dog": "deleted", "Sam no longer has a dog": "active"}
    await session.memory.restore(old)
    assert (await statuses(session))["Sam has a dog"] == "active"


async def test_what_is_known_in_other_words_is_not_added(session: SessionHandle, memory_home: Path) -> None:
    old = (await session.memory.remember("Sam has a dog", subject="Sam")).id
    [learned] = await learn(session, decides((0, "NONE", 0)), memory_home, "A dog is what Sam has")
    assert (learned.outcome, learned.id, learned.changed) == ("known", old, "")
    assert await statuses(session) == {"Sam has a dog": "active"}


async def test_what_is_known_verbatim_asks_no_model_and_is_a_mention(session: SessionHandle, memory_home: Path) -> None:
    old = (await session.memory.remember("Sam has a dog", subject="Sam")).id
    model = ScriptedModel(["never asked"])
    [learned] = await learn(session, model, memory_home, "sam  HAS a dog")
    assert (learned.outcome, learned.id, model.prompts) == ("exact_dup", old, [])
    [row] = await session.memory.get([old])
    assert row.mention_count == 1
    await learn(session, model, memory_home, ExtractedFact("The heating is serviced in May", "heating"))
    assert model.prompts == []  # nothing is like it


async def test_numbers_are_shown_and_never_ids(session: SessionHandle, memory_home: Path) -> None:
    ids = [(await session.memory.remember(f"Sam has dog number {n}", subject="Sam")).id for n in range(9)]
    model = decides()
    await learn(session, model, memory_home, "Sam has a dog named Rex", "Sam walks the dog")
    [prompt] = model.prompts
    text = "\n".join(message.content for message in prompt)
    assert not any(each in text for each in ids)
    assert [f"memory {n} |" in text for n in range(MOST_CANDIDATES + 1)] == [True] * MOST_CANDIDATES + [False]
    assert set((await statuses(session)).values()) == {"active"}


async def test_no_delicate_fact_is_compared_nor_one_of_another_agent_or_namespace(memory: MemorySystem) -> None:
    session = await memory.create_session(["observations"], "chat")
    other_agent = await memory.create_session(["observations"], "other")
    mine = (await session.memory.remember("Sam has a dog", subject="Sam")).id
    await session.memory.remember("Sam has a dog, publicly", visibility="shared")
    await session.memory.remember("Sam has a secret dog", sensitivity="private")
    await session.memory.remember(type="exchange", user_text="Sam has a dog", assistant_text="really?")
    await session.memory.add_task("Walk the dog of Sam")
    await session.memory.summarize_session("Sam has a dog")
    await other_agent.memory.remember("Sam has a dog, the other one says")
    await session.memory.within(namespace="elsewhere").remember("Sam has a dog elsewhere")
    found = await candidates_for([ExtractedFact("Sam has dogs")], session.memory, Origin("chat", OWN))
    assert [row.id for row in found.rows] == [mine]


async def test_an_inner_caller_never_touches_what_only_the_owner_sees(memory: MemorySystem, memory_home: Path) -> None:
    owner = await memory.create_session(["observations"], "chat")
    await owner.memory.remember("Sam has a dog", subject="Sam")
    guest = await memory.cleared_for("inner").create_session(["observations"], "chat")
    model = decides((0, "DELETE", 0))
    await learn(guest, model, memory_home, "Sam no longer has a dog", guard=Guard("shared", "public", "public", "", ""))
    assert model.prompts == []
    assert await statuses(owner) == {"Sam has a dog": "active", "Sam no longer has a dog": "active"}


async def test_an_update_is_as_strict_as_what_it_updates(session: SessionHandle, memory_home: Path) -> None:
    await session.memory.remember("Sam has a dog", subject="Sam", min_clearance="full")
    [learned] = await learn(session, decides((0, "UPDATE", 0)), memory_home, "Sam has a dog named Rex")
    [row] = await session.memory.get([learned.id])
    assert (row.min_clearance, row.visibility, row.sensitivity) == ("full", "private", "public")


async def test_what_changed_after_the_model_was_asked_is_left_alone(session: SessionHandle, memory_home: Path) -> None:
    old = (await session.memory.remember("Sam has a dog", subject="Sam")).id
    origin, calls = Origin("chat", OWN), calls_of(decides((0, "DELETE", 0)), memory_home)
    steps = await plan([ExtractedFact("Sam no longer has a dog", "Sam")], session.memory, calls, origin, settings_of())
    await session.memory.update(old, title="Sam has two dogs")
    [learned] = await apply(steps, session.memory, origin)
    assert (learned.outcome, learned.changed) == ("added", "")
    assert await statuses(session) == {"Sam has two dogs": "active", "Sam no longer has a dog": "active"}


@pytest.fixture
async def alike(memory_home: Path) -> AsyncIterator[SessionHandle]:
    """A session whose memory finds by letters what is alike."""
    async with MemorySystem(memory_home, embedder=LetterEmbedder()) as memory:
        yield await memory.create_session(["observations"], "chat")


@pytest.mark.parametrize(
    ("known", "facts", "settings", "expected"),
    [
        ({TEA: "Sam", "Sam likes greener tea": "Samuel"}, ("Sam likes green teas",), {}, {TEA}),
        ({"zzz xxx qqq": "Sam"}, (TEA,), {}, set[str]()),
        ({}, ("Sam likes green tea !", "Sam likes green tea ?", "Sam likes green tea ."), {}, set[str]()),
        ({TEA: "Sam"}, ("Sam likes green tea.", "Sam likes green tea!"), {}, {TEA}),
        ({TEA: "Sam"}, ("Sam likes green teas",), {"supersede": False}, set[str]()),
    ],
    ids=["nearly the same of its subject", "not alike", "of one batch", "one for two facts", "switched off"],
)
async def test_a_fact_replaces_at_most_one_on_its_subject_that_means_nearly_the_same(
    alike: SessionHandle,
    memory_home: Path,
    known: dict[str, str],
    facts: tuple[str, ...],
    *,
    settings: dict[str, Any],
    expected: set[str],
) -> None:
    for title, subject in known.items():
        await remember_embedded(alike, title, subject=subject)
    learned = await learn(alike, ScriptedModel([""]), memory_home, *facts, reconcile=False, **settings)
    assert [each.outcome for each in learned] == ["added"] * len(facts)
    assert sum(bool(each.changed) for each in learned) == len(expected)
    found = await statuses(alike)
    assert len(found) == len(known) + len(facts)
    assert {title for title, status in found.items() if status == "superseded"} == expected


async def remember_embedded(session: SessionHandle, title: str, **fields: Any) -> Observation:
    """Remember it, and wait for its vector."""
    kept = (await session.memory.remember(title, **fields)).id
    for _ in range(200):
        [found] = await session.memory.nearest([(title, Filter())], limit=50)
        if kept in {hit.observation.id for hit in found}:
            return next(hit.observation for hit in found if hit.observation.id == kept)
    raise AssertionError(title)


async def test_no_provider_compares_memories_it_may_not_be_sent(session: SessionHandle, memory_home: Path) -> None:
    await learn(session, ScriptedModel(), memory_home, "Sam lives in Porto.")
    model = decides((0, "UPDATE", 0))
    model.disclosure = Disclosure("box", memory=False)
    calls = calls_of(model, memory_home, session)
    steps = await plan(
        [ExtractedFact("Sam lives in Lisbon.", "Sam")], session.memory, calls, Origin("chat", OWN), settings_of()
    )
    assert ([step.action for step in steps], model.prompts) == (["ADD"], [])
    [old] = (await session.memory.list_observations()).rows
    await calls.note("extraction")
    [receipt] = [each for each in await session.records() if each.get("withheld")]
    assert receipt["withheld"] == {"provider": "box", "rule": "memory = false", "rows": [old.id]}
