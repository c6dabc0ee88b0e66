"""Each of our hooks: what it does, that it can be switched off, and that none keeps a session from its end."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chatbot.chat.ledger import sum_of
from chatbot.hooks.hook import HOOKS, Failures
from chatbot.memory.maintenance import NAME
from chatbot.messages import ToolCall
from chatbot.models import ScriptedModel
from chatbot.runtime import Runtime
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.observation import STATUSES, Observation
from chatbot.tools.function import FunctionTool
from tests.clock import Clock
from tests.command import project
from tests.effort import by_day
from tests.talk import begun, configure, sent, talking

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

REPLY = "The herring of Gotland is pickled in vinegar, with dill and allspice from the harbour market."
FACT = {"facts": [{"content": "Ingrid pickles herring in Gotland", "subject": "Ingrid", "type": "note"}]}
QUESTIONS = [
    "My sister Ingrid pickles herring from Gotland every autumn",
    "Which vinegar does Ingrid take for the herring?",
    "Why does the network router drop its lease at night?",
    "Where does the router log the network lease?",
]


async def look_up(path: str) -> str:
    """Look something up."""
    return f"{path}: the granite barge was built in 1871 and carries forty tons because the harbour is deep"


async def lived(*, turns: int = 12) -> dict[str, Any]:
    """Traces of a life with the hooks as they are configured: two sessions, a week apart."""
    clock = Clock(step=timedelta(milliseconds=1))
    call = ToolCall("c", "look_up", json.dumps({"path": "barge.md"}))
    model, receipts = Talker(call), []
    async with Runtime(model=model, tools=(FunctionTool(look_up),), clock=clock) as runtime:
        for number in range(3):
            await runtime.memory.memory("chat").remember(f"the green kettle in the kitchen leaks again {number}")
        for first in (QUESTIONS, [f"The house number {n} has a door of colour {n * 7}" for n in range(turns)]):
            session, chat = await begun(runtime)
            for text in first:
                await chat.turn(text)
                await runtime.hooks.wait_idle()
            receipts.append(await chat.turn("And what of the herring of Ingrid and the green kettle?"))
            await runtime.end_session(session)
            await runtime.hooks.wait_idle()
            clock.move(days=9)
        rows = (
            await runtime.memory.memory().list_observations(limit=200, statuses=STATUSES, sensitivities=SENSITIVITIES)
        ).rows
        return {
            "rows": rows,
            "capabilities": set(runtime.hooks.capabilities),
            "facts": await runtime.memory.memory().query_facts(predicate="boundary_at", limit=100),
            "purposes": set(sum_of((await runtime.ledger.by_session()).values()).by_purpose),
            "failures": Failures(runtime.memory.backend).read(),
            "receipts": receipts,
        }


class Talker(ScriptedModel):
    """Asks for a tool once, gives facts where they are asked for, and says the same otherwise."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__([call, REPLY])

    def _next_reply(self, messages: Any) -> Any:
        asked = messages[0].content
        if "take down what is worth remembering" in asked:
            return json.dumps(FACT)
        return "- told by a model" if "sum up" in asked else super()._next_reply(messages)


def rows_of(life: dict[str, Any], fits: Callable[[Observation], bool]) -> list[Observation]:
    return [row for row in life["rows"] if fits(row)]


DOES: dict[str, Callable[[dict[str, Any]], object]] = {
    "inject": lambda life: life["receipts"][-1].memory,
    "exchange": lambda life: rows_of(life, lambda row: row.type == "exchange"),
    "boundaries": lambda life: life["facts"],
    "capture": lambda life: rows_of(life, lambda row: "tool" in row.tags),
    "memorability": lambda life: "memory.memorability" in life["capabilities"],
    "temporal": lambda life: "memory.temporal" in life["capabilities"],
    "extraction": lambda life: "extract" in life["purposes"],
    "summarize": lambda life: rows_of(life, lambda row: row.type == "session_summary"),
    "episode": lambda life: "summarize" in life["purposes"],
    "consolidation": lambda life: rows_of(life, lambda row: row.strength is not None),
    "compression": lambda life: rows_of(life, lambda row: row.status == "compressed"),
}
TABLES = "[extraction]\nenabled = true\nsummaries = true"
TUNED = "[hooks.boundaries]\nwindow = 1\nthreshold = 1.0"
WINDOW = "window_entries = 6"


def test_every_hook_is_looked_at() -> None:
    assert set(DOES) == set(HOOKS.own), "add to DOES how it is seen that the hook has run"


@pytest.mark.parametrize("name", by_day(DOES, "exchange"))
async def test_each_can_be_switched_off_and_the_others_go_on(name: str) -> None:
    off = "enabled = false" if name == "boundaries" else f"[hooks.{name}]\nenabled = false"
    configure(f"{TABLES}\n{TUNED}\n{off}", WINDOW)
    life = await lived()
    assert life["failures"] == []
    needed = {"exchange": {"extraction", "exchange"}}  # what was not kept is small talk, of which no model is asked
    assert {each for each, does in DOES.items() if not does(life)} == needed.get(name, {name})
    assert life["receipts"][0].reply == REPLY


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(days=-400)])
async def test_a_clock_that_runs_backwards_harms_nothing(step: timedelta) -> None:
    configure("[hooks.summarize]\nevery = 2")
    clock = Clock(step=timedelta(milliseconds=1))
    async with talking(REPLY, clock=clock) as (runtime, session, chat):
        receipts = []
        for text in QUESTIONS:
            receipts.append(await chat.turn(text))
            assert (receipts[-1].reply, receipts[-1].notices) == (REPLY, [])
            await runtime.hooks.wait_idle()
            clock.now += step
        await runtime.end_session(session)
        await runtime.hooks.wait_idle()
        kept = [receipt.remembered for receipt in receipts if receipt.remembered]
        assert len(kept) >= 2
        assert len(await session.memory.get(kept)) == len(kept)
        assert [entry.content for entry in await session.transcript_read_all() if entry.role == "user"] == QUESTIONS
        assert len(await session.memory.session_summaries(session_id=session.id)) == 1
        found = await session.memory.search("which vinegar for herring", types="exchange")
        assert found[0].observation.user_text == QUESTIONS[1]
        assert Failures(runtime.memory.backend).read() == []


async def test_hooks_at_the_end_of_a_session_are_stopped_if_the_closing_is() -> None:
    configure()
    async with talking(REPLY) as (runtime, _, chat):
        await chat.turn(QUESTIONS[0])
        await runtime.hooks.wait_idle()
        closing = asyncio.create_task(runtime.aclose())
        while runtime.hooks.is_idle():  # noqa: ASYNC110 - until the hooks of the end run
            await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        await runtime.hooks.wait_idle()
        assert runtime.hooks.failures.read() == []


@pytest.mark.parametrize("how", ["forget", "purge", "update", "hide"])
async def test_what_the_last_turn_was_shown_is_not_shown_once_more_when_it_is_gone(how: str) -> None:
    configure()
    model = ScriptedModel(["Two of them."])
    async with Runtime(model=model) as runtime:
        kept = await runtime.memory.memory("chat").remember("Ellen keeps two alpacas called Castor and Pollux")
        session, chat = await begun(runtime)
        await chat.turn("Which alpacas does Ellen keep?")
        assert "Castor" in sent(model)
        if how == "update":
            await session.memory.update(kept.id, title="Ellen keeps no alpacas any more")
        elif how == "hide":
            await session.memory.update(kept.id, sensitivity="secret")
        else:
            await getattr(session.memory, how)(kept.id)
        await chat.turn("And is the harbour deep?")
        assert "Castor" not in sent(model)


async def test_sessions_without_observations_leave_nothing_behind() -> None:
    project('[model]\nname = "scripted"\n[agents.chat]\nmemory = ["basic_session"]\n')
    async with talking("ok", clock=Clock()) as (_, _, chat):
        await chat.turn("ok")
    assert not Path("identities/ada/memory", NAME).exists()
