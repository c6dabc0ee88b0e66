"""Spans: what is one, what it is within, and that nobody's words stand in it."""

import asyncio
import json
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from chatbot.config import ModelSettings
from chatbot.errors import ModelTimeout, RateLimited
from chatbot.messages import TextDelta, ToolCall
from chatbot.models import Price, ScriptedModel
from chatbot.models.gateway import LiteLLMModel
from chatbot.models.scripted import Reply
from chatbot.runtime import Options, Runtime
from chatbot.stores.errors import UnknownObservation
from tests.patience import PATIENCE_S
from tests.servers.providers import providers_at
from tests.telemetry.conftest import Talking, Watched

pytest_plugins = ["tests.servers.openai_server"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
    pytest.mark.usefixtures("config_is_asked_for"),
]

TURN = "invoke_agent chat"
FACTS = json.dumps({"facts": [{"content": "Sam lives in Porto", "subject": "Sam", "category": "home"}]})
MOVED = "I moved to Porto in the spring, and the locker there has the number 4711"
SEARCH = ToolCall("call_1", "memory_search", '{"query": "locker"}')


async def test_all_that_a_turn_does_is_within_it_also_afterwards(watched: Watched, talking: Talking) -> None:
    model = ScriptedModel([SEARCH, "The locker of yours has the number 4711.", FACTS])
    async with talking(model, "[extraction]\nenabled = true") as (runtime, session):
        watched.exporter.clear()
        await runtime.chat(session).turn(MOVED)
        await runtime.hooks.bus.drain()
        turn = watched.one(TURN)
        assert turn.context
        assert turn.attributes == {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "chat",
            "gen_ai.conversation.id": session.id,
            "chatbot.turn.id": (await session.receipts())[0]["turn"],
            "chatbot.turn.finish": "stop",
        }
        spans = watched.spans
        assert {span.context.trace_id for span in spans if span.context} == {turn.context.trace_id}
        assert [span.name for span in spans if span.parent is None] == [TURN]
        within = {span.name: watched.above(span) for span in spans}
    assert within["transcript_append basic_session"] == [TURN]
    assert within["memory recall"] == ["hook inject", TURN]
    assert within["candidates observations"][-1] == TURN
    assert within["memory summarize_episode"] == [TURN]
    assert within["execute_tool memory_search"] == [TURN]
    assert within["memory search"] == ["execute_tool memory_search", TURN]
    assert within["memory keep_words"] == [TURN]
    assert within["memory keep_reply"] == [TURN]
    assert {tuple(watched.above(span)) for span in spans if span.name == "commit observations"} >= {
        ("memory keep_words", TURN),
        (TURN,),
    }
    purposes = {span.attributes["chatbot.purpose"]: watched.above(span) for span in watched.named("chat scripted")
                if span.attributes}  # fmt: skip
    assert purposes == {"chat": [TURN], "extract": ["hook extraction", TURN]}
    background = watched.one("hook extraction")
    assert (background.end_time or 0) > (turn.end_time or 0), "nobody waited for it, and still it is the turn's"


async def test_a_turn_within_a_span_of_ones_own_is_its_child(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel(["Fine."])) as (runtime, session):
        with watched.tracers.get_tracer("own").start_as_current_span("our request"):
            await runtime.chat(session).turn(MOVED)
    assert watched.above(watched.one(TURN)) == ["our request"]


async def test_concurrent_turns_are_traces_of_their_own(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel([SEARCH, "Done."])) as (runtime, first):
        sessions = [first, *[await runtime.new_session() for _ in range(11)]]
        await asyncio.gather(*(runtime.chat(session).turn(MOVED) for session in sessions))
        await runtime.hooks.bus.drain()
    turns = watched.named(TURN)
    assert len({span.context.trace_id for span in turns if span.context}) == 12
    assert {(span.attributes or {})["gen_ai.conversation.id"] for span in turns} == {
        each.id for each in sessions if each
    }
    assert all(watched.above(span)[-1:] == [TURN] for span in watched.named("memory recall"))
    assert len(watched.named("memory recall")) == 12


async def test_a_call_of_a_model_tells_what_it_took(watched: Watched, talking: Talking, openai_url: str) -> None:
    model = ModelSettings(name="openai/says", input_usd_per_million=10, output_usd_per_million=100)
    async with talking(LiteLLMModel(model, providers_at(openai_url))) as (runtime, session):
        await runtime.chat(session).turn("hello")
    call = watched.one("chat says")
    told = dict(call.attributes or {})
    assert call.kind is SpanKind.CLIENT
    assert 0 < float(str(told.pop("gen_ai.response.time_to_first_chunk"))) < 20
    assert float(str(told.pop("chatbot.cost_usd"))) == pytest.approx(120 * 10e-6 + 8 * 100e-6)
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "says",
        "gen_ai.request.max_tokens": 1024,
        "server.address": "127.0.0.1",
        "server.port": int(openai_url.rpartition(":")[2].partition("/")[0]),
        "gen_ai.response.model": told["gen_ai.response.model"],
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 8,
        "gen_ai.usage.cache_read.input_tokens": 100,
        "chatbot.usage.estimated": False,
        "chatbot.purpose": "chat",
    }


async def test_what_fails_tells_the_type_of_the_error_alone(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel()) as (_, session):
        with pytest.raises(UnknownObservation):
            await session.memory.history("plugh")
    span = watched.one("memory history")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "UnknownObservation"
    assert (span.status.description, span.events) == (None, ())


@pytest.mark.parametrize("error", [ModelTimeout("nothing came, plugh"), RateLimited("slow down, plugh")])
async def test_a_call_that_fails_fails_its_turn(error: Exception, watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel([[TextDelta("Half"), error]])) as (runtime, session):
        with pytest.raises(type(error)):
            await runtime.chat(session).turn("hello")
    for name in ("chat scripted", TURN):
        span = watched.one(name)
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == type(error).__name__
    assert (watched.one(TURN).attributes or {})["chatbot.turn.finish"] == "error"


async def test_a_turn_that_is_stopped_is_no_fault(watched: Watched, talking: Talking) -> None:
    asked = asyncio.Event()

    async def stalls() -> Any:
        yield TextDelta("Half a")
        asked.set()
        await asyncio.Event().wait()

    async with talking(ScriptedModel([stalls])) as (runtime, session):
        turn = asyncio.create_task(runtime.chat(session).turn("hello"))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
    span = watched.one(TURN)
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["chatbot.turn.finish"] == "cancelled"
    assert (watched.one("chat scripted").attributes or {})["error.type"] == "CancelledError"


async def test_no_word_of_anybody_stands_in_a_span_or_a_metric(watched: Watched, talking: Talking) -> None:
    replies: list[Reply] = [
        ToolCall("a", "memory_search", '{"query": "plugh in the tool"}'),
        [TextDelta("plugh in the reply "), RateLimited("plugh in the error")],
        ToolCall("b", "memory_write", '{"title": "plugh was written"}'),
        "I say plugh.",
    ]
    price = Price(1e-6, 1e-6)
    async with talking(ScriptedModel(replies, price=price), identity="plughette") as (runtime, session):
        await session.memory.remember("plugh title", narrative="plugh text", people=["Plugh"], tags=["plugh"])
        await session.kv_set("plugh", "plugh")
        await session.rename("plugh")
        chat = runtime.chat(session)
        with pytest.raises(RateLimited):
            await chat.turn("plugh said the user")
        await chat.turn("Where is plugh?")
        await session.memory.search("plugh", people=["Plugh"])
        await session.memory.summarize_session("plugh", "plugh", decisions=["plugh"])
        text = await asyncio.to_thread(watched.text)
    spans = "".join(span.to_json() for span in watched.spans)
    assert len(watched.spans) > 50
    assert "plugh" not in spans.lower()
    assert "plugh" not in text.lower()
    assert session.id in spans
    assert session.id not in text


async def test_other_runtimes_of_the_process_are_not_watched(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel()), Runtime(Options(), model=ScriptedModel()) as other:
        watched.exporter.clear()
        session = await other.new_session()
        assert session is not None
        await other.chat(session).turn(MOVED)
        await session.memory.search("locker")
        assert watched.spans == []
