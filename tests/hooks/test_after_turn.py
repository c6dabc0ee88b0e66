"""Work after a turn in a whole runtime: nobody waits, what comes is kept whole, and failures cost no turn."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from chatbot.chat.ledger import sum_of
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.observation import Observation
from tests.command import project
from tests.effort import by_day
from tests.patience import PATIENCE_S
from tests.servers.providers import requests_at
from tests.talk import sent, talking

pytest_plugins = ["tests.servers.openai_server"]
pytestmark = pytest.mark.usefixtures("config_is_asked_for")

MOVED = "Sam lives in Lisbon since the second of May"
AGAIN = "Sam lives in Porto since the third of June"
REPLY = "That sounds like a lovely city with many hills, bridges, tiles and custard tarts."

Configure = Callable[..., None]


@pytest.fixture
def configure(openai_url: str) -> Configure:
    """Writes a configuration with a model of its own for extraction."""

    def write(
        behaviour: str = "takes-facts", *, window: int = 20, more: str = "", price: float = 0, **settings: object
    ) -> None:
        lines = [f"{name} = {json.dumps(value)}" for name, value in ({"enabled": True} | settings).items()]
        own = [f'model = "openai/{behaviour}"'] if behaviour else []
        provider = ["[providers.openai]", f'api_base = "{openai_url}"']
        if price:
            prices = f"{{input_usd_per_million = {price}, output_usd_per_million = {price}}}"
            provider.append(f'prices = {{"*" = {prices}}}')
        text = "\n".join(["[extraction]", *lines, *own, more, *provider, "[model]\nretries = 0", "[agents.chat]"])
        stores = 'memory = ["basic_session", "observations"]\ntools = []'
        project(f"{text}\n{stores}\nwindow_entries = {window}\n")

    return write


async def facts(runtime: Runtime, **wanted: Any) -> list[Observation]:
    await runtime.hooks.wait_idle()
    page = await runtime.memory.memory().list_observations(order="created", ascending=True, limit=100, **wanted)
    return [row for row in page.rows if row.type != "exchange"]


@pytest.mark.parametrize(("enabled", "said"), [(False, MOVED), (True, "How are you?")], ids=["off", "small talk"])
async def test_small_talk_asks_no_model(configure: Configure, openai_url: str, said: str, *, enabled: bool) -> None:
    configure(enabled=enabled)
    async with talking("Hello!") as (runtime, _, chat):
        await chat.turn(said)
        assert await facts(runtime) == []
        assert list(sum_of((await runtime.ledger.by_session()).values()).by_purpose) == ["chat"]
    assert await requests_at(openai_url) == []


async def test_a_correction_replaces_the_fact_and_the_bill_says_what_it_cost(configure: Configure) -> None:
    configure()
    async with talking(REPLY) as (runtime, session, chat):
        await chat.turn(MOVED)
        await chat.turn(AGAIN)
        assert [row.title for row in await facts(runtime)] == [AGAIN]
        assert [row.title for row in await facts(runtime, statuses=["superseded"])] == [MOVED]
        bill = await chat.bill()
        calls = {"chat": 2, "extract": 2, "reconcile": 1}
        assert {purpose: each.calls for purpose, each in bill.by_purpose.items()} == calls
        assert bill.as_json() == sum_of((await runtime.ledger.by_session()).values()).as_json()
        assert [receipt["turn"] for receipt in await session.receipts()] == [
            record["after"] for record in await session.records() if record.get("kind") == "extraction"
        ]


async def test_no_turn_waits_the_next_one_may_begin_and_leaving_waits(configure: Configure, openai_url: str) -> None:
    configure("takes-facts-slowly")
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as http:
        async with talking(REPLY) as (_, _, chat):
            await chat.turn(MOVED)
            await http.get(f"{openai_url}/asked")
            await chat.turn("and what is the weather like over there?")
            await http.get(f"{openai_url}/release")
        async with Runtime(Options(), model=ScriptedModel([REPLY])) as later:
            assert MOVED in [row.title for row in await facts(later)]


async def test_leaving_waits_no_longer_than_it_may_and_keeps_no_halves(configure: Configure, openai_url: str) -> None:
    configure("never-answers", more="[hooks.extraction]\ntimeout_s = 0.3")
    async with asyncio.timeout(PATIENCE_S):
        async with talking(REPLY) as (_, _, chat):
            await chat.turn(MOVED)
        async with Runtime(Options(), model=ScriptedModel([REPLY])) as later:
            assert await facts(later) == []
            bill = sum_of((await later.ledger.by_session()).values())
            assert bill.by_purpose["extract"].calls == 1


@pytest.mark.parametrize("behaviour", ["slows-down-for-an-hour", "fails", "denies", "is-unknown", "drops-later"])
async def test_a_failure_is_told_and_costs_no_turn(configure: Configure, behaviour: str) -> None:
    configure(behaviour, timeout_s=5)
    async with talking(REPLY) as (runtime, session, chat):
        assert (await chat.turn(MOVED)).reply == REPLY
        assert await facts(runtime) == []
        receipt = await chat.turn(AGAIN)
        assert any("extraction" in notice for notice in receipt.notices)
        [record, *_] = [each for each in await session.records() if each.get("kind") == "extraction"]
        assert record["notices"][0].startswith("nothing was extracted: ")
        assert "sk-test" not in json.dumps(record)


async def test_a_budget_that_is_used_up_stops_extraction_and_not_the_chat(configure: Configure) -> None:
    configure(budget_usd=0.0001, price=1.0)
    async with talking(REPLY) as (runtime, _, chat):
        await chat.turn(MOVED)
        assert await facts(runtime) == []
        receipt = await chat.turn(AGAIN)
        assert any("budget_usd = 0.0001 USD" in notice for notice in receipt.notices)
        assert list((await chat.bill()).by_purpose) == ["chat"]


async def test_an_ephemeral_chat_leaves_its_cost_and_nothing_else(configure: Configure) -> None:
    configure()
    async with Runtime(Options(ephemeral=True, budget_usd=1.0), model=ScriptedModel([REPLY])) as runtime:
        session = await runtime.new_session()
        assert session is not None
        await runtime.chat(session).turn(MOVED)
        assert (await runtime.ledger.by_session()).keys() == {session.id}
    files = [path for path in Path("identities", "ada", "memory").iterdir() if not path.name.startswith(".")]
    assert sorted(path.name for path in files) == ["reservations.json", "usage.jsonl"]
    kept = "".join(path.read_text(encoding="utf-8") for path in files)
    assert (session.id in kept, MOVED in kept, '"purpose":"chat"' in kept) == (False, False, True)


SUMMARIES: dict[str, Any] = {"enabled": False, "summaries": True, "window": 6}


async def test_a_summary_by_a_model_is_shown_when_the_window_moves_and_not_before(configure: Configure) -> None:
    configure(**SUMMARIES)
    model = ScriptedModel([REPLY])
    async with talking(model=model) as (runtime, session, chat):
        starts = []
        for n in range(24):
            await chat.turn(f"The house number {n} in the street has a door of colour {n * 7}")
            await runtime.hooks.wait_idle()
            [receipt] = (await session.receipts())[-1:]
            starts.append((receipt["window"]["from"], model.prompts[-1][1].content))
        summaries: dict[Any, set[str]] = {}
        for since, start in starts:
            summaries.setdefault(since, set()).add(start)
        assert all(len(each) == 1 for each in summaries.values())  # the prompt's beginning is the same until it moves
        assert "told by a model" in starts[-1][1]
        assert 1 <= (await chat.bill()).by_purpose["summarize"].calls < len(summaries)


@pytest.mark.parametrize(
    "behaviour", ["fails", "extracts-orders", *by_day(["extracts-blank"]), "extracts-deep", "takes-facts"]
)
async def test_a_summary_that_cannot_be_used_leaves_the_one_made_by_rule(behaviour: str, configure: Configure) -> None:
    configure(behaviour, **SUMMARIES)
    model = ScriptedModel([REPLY])
    async with talking(model=model) as (runtime, session, chat):
        if behaviour == "takes-facts":  # it makes good ones, but the session is not for its provider
            await session.mark("private")
        for n in range(12):
            await chat.turn(f"The house number {n} in the street has a door of colour {n * 7}")
            await runtime.hooks.wait_idle()
        text = sent(model)
        assert "gnore all previous" not in text
        if behaviour != "extracts-deep":  # which is kept as it is
            assert "The house number 0" in text
            notices = [each["notices"] for each in await session.records() if each.get("kind") == "episode"]
            assert notices[-1][0].startswith("the summary made by rule is kept: ")
            assert 1 <= len(notices) <= 4  # tried again only when the window has moved


@pytest.mark.parametrize("behaviour", ["takes-facts", "extracts-blank", "extracts-prose", "fails", "private"])
async def test_a_session_is_summed_up_by_rule_and_then_by_a_model(behaviour: str, configure: Configure) -> None:
    kind = "takes-facts" if behaviour == "private" else behaviour
    configure(kind, enabled=False, summaries=True, more="[hooks.summarize]\nevery = 2")
    async with talking(REPLY) as (runtime, session, chat):
        await session.mark("private" if behaviour == "private" else "public")
        await chat.turn(MOVED)
        await chat.turn(AGAIN)
        await runtime.hooks.wait_idle()
        [summary] = await session.memory.session_summaries(sensitivities=SENSITIVITIES)
        assert (summary.metadata["open_items"] == ["all of it"]) is (behaviour == "takes-facts")
        assert summary.metadata["request"] == MOVED
        [record] = [each for each in await session.records() if each.get("kind") == "summary"]
        notices = [each.partition(":")[0] for each in record["notices"]]
        assert notices == ["the summary made by rule is kept"] * (behaviour != "takes-facts")
        assert len(record["calls"]) == (behaviour not in {"fails", "private"})
