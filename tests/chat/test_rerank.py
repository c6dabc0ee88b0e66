"""A reranker orders what a turn recalls: billed, within the budget, of public memories alone, and never missed."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chatbot.chat import Chat, Event, Notice, Rules
from chatbot.chat.ledger import Ledger
from chatbot.chat.receipts import Receipt
from chatbot.config import AgentSettings, BudgetSettings, PriceSettings, ProviderSettings, RerankSettings
from chatbot.errors import ConfigError, ModelError, ProviderFailed
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.messages import Usage
from chatbot.models.rerank import LiteLLMReranker, Reranker, Reranking, open_reranker
from chatbot.models.scripted import ScriptedModel
from tests.servers.in_thread import answering

ROWS = ("The boiler is serviced by Ann", "The boiler is in the cellar", "The boiler is ten years old")


PRIVATE = "The boiler cost a fortune"


class Longest(Reranker):
    """Likes long texts; fails as it is told to."""

    name = "longest"
    usd_per_call = 0.01

    def __init__(self, failure: ModelError | None = None) -> None:
        self.asked: list[Sequence[str]] = []
        self._failure = failure

    async def rank(self, question: str, texts: Sequence[str]) -> Reranking:
        self.asked.append(texts)
        if self._failure:
            raise self._failure
        return Reranking([float(len(text)) for text in texts], Usage(10, cost_usd=0.01))


@pytest.fixture
async def session(memory_home: Path) -> AsyncIterator[SessionHandle]:
    settings = {"observations": {"cache": str(memory_home.parent / "cache")}}
    async with MemorySystem(memory_home, settings=settings) as memory:
        for row in ROWS:
            await memory.memory("chat").remember(row)
        await memory.memory("chat").remember(PRIVATE, sensitivity="private")
        yield await memory.create_session(("basic_session", "observations"), "chat")


async def turn(
    session: SessionHandle, home: Path, reranker: Reranker, *, day_usd: float = 0, rows: int = 8
) -> tuple[Receipt, Any]:
    rules = Rules("", "chat", AgentSettings(recall_rows=rows), BudgetSettings(day_usd=day_usd), 100)
    chat = Chat(model=ScriptedModel(["Yes."]), session=session, rules=rules, ledger=Ledger(home), reranker=reranker)
    told: list[Event] = []
    receipt = await chat.turn("What about the boiler?", told.append)
    titles = {row.id: row.title for row in await session.memory.every(ask=["public", "private"])}
    return receipt, ([titles[each] for each in receipt.memory["injected"]], told)


async def test_what_is_recalled_is_ranked_again_and_that_is_on_the_bill(session: SessionHandle, tmp_path: Path) -> None:
    reranker = Longest()
    receipt, (titles, _) = await turn(session, tmp_path, reranker, rows=1)
    assert titles == [max(ROWS, key=len)]
    assert [sorted(texts) for texts in reranker.asked] == [sorted(ROWS)], "nothing private is sent"
    bill = await Ledger(tmp_path).total()
    assert bill.by_purpose["rerank"].cost_usd == pytest.approx(0.01)
    assert [call.purpose for call in receipt.calls] == ["rerank", "chat"]


@pytest.mark.parametrize(("failure", "day_usd"), [(ProviderFailed("it is down"), 0), (None, 0.005)])
async def test_a_reranker_that_fails_or_costs_too_much_is_reported_and_the_ranking_stays(
    session: SessionHandle, tmp_path: Path, failure: ModelError | None, day_usd: float
) -> None:
    reranker = Longest(failure)
    receipt, (titles, told) = await turn(session, tmp_path, reranker, day_usd=day_usd)
    assert receipt.finish == "stop"
    assert sorted(titles) == sorted([*ROWS, PRIVATE])
    [notice] = [each.text for each in told if isinstance(each, Notice)]
    assert notice.startswith("memories are ranked without longest: ")
    assert bool(reranker.asked) is (failure is not None)
    assert (await Ledger(tmp_path).total()).by_purpose.keys() == {"chat"}


def test_none_is_opened_unasked_and_none_at_a_provider_that_is_sent_no_memories() -> None:
    assert open_reranker(RerankSettings()) is None
    with pytest.raises(ConfigError, match="memory = false"):
        open_reranker(RerankSettings(model="cohere/rerank-v3.5"), {"cohere": ProviderSettings(memory=False)})


@pytest.fixture
def address() -> Iterator[str]:
    """A server that speaks as Cohere's does, knows one key and one header, and prefers what comes last."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            count = len(asked["documents"])
            results = [{"index": number, "relevance_score": number / count} for number in reversed(range(count))]
            body = json.dumps({"id": "x", "results": results, "meta": {"billed_units": {"search_units": 1}}}).encode()
            is_ours = self.headers["authorization"].lower() == "bearer k" and self.headers["x-team"] == "bees"
            self.send_response(200 if is_ours else 401)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with answering(Handler, ThreadingHTTPServer) as address:
        yield address


@pytest.mark.nightly  # LiteLLM is imported
@pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")
async def test_a_model_of_litellm_is_asked_at_its_provider(address: str) -> None:
    settings = RerankSettings(model="cohere/rerank-v3.5")
    prices = {"rerank-v3.5": PriceSettings(usd_per_call=0.002)}
    provider = ProviderSettings(api_key="k", api_base=address, headers={"x-team": "bees"}, prices=prices)
    async with LiteLLMReranker(settings, {"cohere": provider}) as reranker:
        found = await reranker.rank("Which?", ["one", "two", "three"])
    assert found.scores == [0, pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert found.usage.cost_usd == 0.002
