"""Spans: what is one, what it is within, that nobody's words stand in it, and that names are the published ones."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as published
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode

from chatbot.chat.ledger import sum_of
from chatbot.config import ModelSettings
from chatbot.errors import RateLimited
from chatbot.messages import Message, TextDelta, ToolCall
from chatbot.models import Price, ScriptedModel, litellm_import
from chatbot.models.litellm_model import LiteLLMModel
from chatbot.models.scripted import ScriptedReply
from chatbot.runtime import Options, Runtime
from chatbot.stores.errors import UnknownObservation
from tests.patience import PATIENCE_S
from tests.servers.providers import providers_at
from tests.talk import begun
from tests.telemetry.conftest import Talking, Watched

pytest_plugins = ["tests.servers.openai_server"]
pytestmark = pytest.mark.usefixtures("config_is_asked_for")

TURN = "invoke_agent chat"
FACTS = json.dumps({"facts": [{"content": "Sam lives in Porto", "subject": "Sam", "category": "home"}]})
MOVED = "I moved to Porto in the spring, and the locker there has the number 4711"
SEARCH = ToolCall("call_1", "memory_search", '{"query": "locker"}')


async def test_all_that_a_turn_does_is_within_it_also_afterwards(watched: Watched, talking: Talking) -> None:
    model = ScriptedModel([SEARCH, "The locker of yours has the number 4711.", FACTS])
    async with talking(model, "[extraction]\nenabled = true") as (runtime, session):
        for store in ("basic_session", "observations"):
            opening = {"chatbot.store": store, "chatbot.operation": "open", "chatbot.store.access": "open"}
            assert watched.one(f"open {store}").attributes == opening
        watched.exporter.clear()
        await runtime.chat(session).turn(MOVED)
        await runtime.hooks.wait_idle()
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
    commits = {("memory keep_words", TURN), (TURN,)}
    assert {tuple(watched.above(span)) for span in spans if span.name == "commit observations"} >= commits
    purposes = {span.attributes["chatbot.purpose"]: watched.above(span) for span in watched.named("chat scripted")
                if span.attributes}  # fmt: skip
    assert purposes == {"chat": [TURN], "extract": ["hook extraction", TURN]}
    background = watched.one("hook extraction")
    assert (background.end_time or 0) > (turn.end_time or 0), "nobody waited for it, and still it is the turn's"


async def test_concurrent_turns_are_traces_of_their_own(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel([SEARCH, "Done."])) as (runtime, first):
        sessions = [first, *[await runtime.new_session() for _ in range(11)]]
        await asyncio.gather(*(runtime.chat(session).turn(MOVED) for session in sessions))
        await runtime.hooks.wait_idle()
    turns = watched.named(TURN)
    assert len({span.context.trace_id for span in turns if span.context}) == 12
    assert {(one.attributes or {})["gen_ai.conversation.id"] for one in turns} == {each.id for each in sessions if each}
    assert all(watched.above(span)[-1:] == [TURN] for span in watched.named("memory recall"))
    assert len(watched.named("memory recall")) == 12


async def test_a_call_of_a_model_tells_what_it_took(watched: Watched, talking: Talking, openai_url: str) -> None:
    providers = providers_at(openai_url, input_usd_per_million=10, output_usd_per_million=100)
    async with talking(LiteLLMModel(ModelSettings(name="openai/says"), providers)) as (runtime, session):
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


@pytest.mark.usefixtures("with_encoders")
async def test_search_by_meaning_calls_embedder_and_store(watched: Watched, talking: Talking, openai_url: str) -> None:
    settings = f'[embedding]\nmodel = "openai/embeds"\n[providers.openai]\napi_base = "{openai_url}"\n'
    await litellm_import.litellm()  # else it is imported within the time that a question may take
    async with talking(ScriptedModel(), settings) as (runtime, session):
        await session.memory.remember("tea is green")
        await session.memory.search("what is green?")
        assert sum_of((await runtime.ledger.by_session()).values()).by_purpose.keys() == {"embed"}
    assert watched.above(watched.named("candidates observations")[0]) == ["memory search"]
    call = watched.named("embeddings embeds")[-1]
    assert call.attributes
    assert call.attributes["chatbot.purpose"] == "embed"
    assert call.attributes["gen_ai.usage.input_tokens"] == 3
    labels = {"gen_ai_operation_name": "embeddings", "gen_ai_token_type": "input"}
    assert watched.value("gen_ai_client_token_usage_count", **labels) > 0


async def test_work_on_memory_is_a_span_that_tells_how_much_and_what_failed(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel()) as (runtime, session):
        for memory in (session.memory, session.memory.within(), runtime.memory.memory("chat")):
            old, new = [(await memory.remember(f"tea number {uuid.uuid4()}")).id for _ in range(2)]
            watched.exporter.clear()
            await memory.search("tea")
            await memory.supersede(old, new)
            assert [span.name for span in watched.spans if span.parent is None] == ["memory search", "memory supersede"]
            used, changed = watched.named("commit observations")
            assert [watched.above(each)[-1] for each in (used, changed)] == ["memory search", "memory supersede"]
            assert (changed.attributes or {})["chatbot.changes"] == ("supersede",)
            assert (watched.one("memory supersede").attributes or {})["chatbot.rows"] == 1
        with pytest.raises(UnknownObservation):
            await session.memory.history("plugh")
        await session.transcript_append("user", "The locker has the number 4711")
        await runtime.memory.search_sessions("locker")
        await runtime.memory.fork_session(session.id)
        await runtime.memory.maintain()
        await runtime.memory.delete_session(session.id)
    failed = watched.one("memory history")
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "UnknownObservation"
    assert (failed.status.description, failed.events) == (None, ())
    names = [span.name.removeprefix("memory ") for span in watched.spans]
    assert {"search_sessions", "fork_session", "maintain", "delete_session"} <= {*names}
    assert names.count("maintain") == 1


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


async def test_a_sessionless_reply_has_its_purpose_if_left_in_another_task(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel(["one two three"])) as (runtime, _):
        stream = runtime.calls(reply_tokens=9).stream("answer", [Message("user", "hello")])
        assert await anext(stream) == TextDelta("one ")
        await asyncio.gather(stream.aclose())
    attributes = watched.one("chat scripted").attributes or {}
    assert (attributes["error.type"], attributes["chatbot.purpose"]) == ("GeneratorExit", "answer")


async def test_a_tool_that_fails_and_one_that_there_is_not(watched: Watched, talking: Talking) -> None:
    calls: list[ScriptedReply] = [[ToolCall("a", "memory_get", "{}"), ToolCall("b", "plugh_of_sam", "{}")], "Done."]
    async with talking(ScriptedModel(calls)) as (runtime, session):
        await runtime.chat(session).turn("hello")
    names = ["execute_tool memory_get", "execute_tool unknown"]
    assert [span.name for span in watched.spans if span.name.startswith("execute_tool")] == names
    assert watched.value("chatbot_tool_duration_seconds_count", error_type="ToolError") == 2


HOOKS = """
from chatbot.hooks import Hook

class Raises(Hook):
    topics = ("turn:end", "memory.*.update")
    async def handle(self, event):
        raise RuntimeError("plugh")
"""


async def test_a_hook_that_fails_is_seen_with_its_topic_and_no_session(watched: Watched, talking: Talking) -> None:
    Path("failing_hooks.py").write_text(HOOKS, encoding="utf-8")
    async with talking(ScriptedModel(["hello"]), '[hooks."failing_hooks:Raises"]') as (runtime, session):
        await runtime.chat(session).turn(MOVED)
        await runtime.hooks.wait_idle()
    told = [span.attributes or {} for span in watched.named("hook failing_hooks:Raises")]
    failures = {("turn:end", "RuntimeError"), ("memory.update", "RuntimeError")}
    assert {(each["chatbot.topic"], each["error.type"]) for each in told} == failures


async def test_no_word_of_anybody_stands_in_a_span_or_a_metric(watched: Watched, talking: Talking) -> None:
    replies: list[ScriptedReply] = [
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
        turns = [receipt["turn"] for receipt in await session.receipts()]
    spans = "".join(span.to_json() for span in watched.spans)
    assert len(watched.spans) > 50
    assert "plugh" not in spans.lower()
    assert "plugh" not in text.lower()
    assert session.id in spans
    assert not [each for each in (session.id, *turns) if each in text], "metrics with ids would grow with use"


async def test_other_runtimes_of_the_process_are_not_watched(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel()), Runtime(Options(), model=ScriptedModel()) as other:
        watched.exporter.clear()
        session, chat = await begun(other)
        await chat.turn(MOVED)
        await session.memory.search("locker")
        assert watched.spans == []


DEPRECATED = {"GEN_AI_SYSTEM", "GEN_AI_PROMPT", "GEN_AI_COMPLETION"}
NAMES = {
    str(name)
    for module in (published, server_attributes, error_attributes)
    for key, name in vars(module).items()
    if key.isupper() and isinstance(name, str) and key not in DEPRECATED
}
METRICS = {value for key, value in vars(gen_ai_metrics).items() if key.startswith("GEN_AI_CLIENT")}
OF_A_TOOL = {"gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type"}
"""Attributes that the conventions require of a tool's span; those of turns and calls are compared whole above."""


def _own(attributes: Any) -> set[str]:
    return {name for name in attributes or {} if not name.startswith("chatbot.")}


async def test_spans_and_metrics_keep_to_the_conventions(watched: Watched, talking: Talking, openai_url: str) -> None:
    model = LiteLLMModel(ModelSettings(name="openai/says"), providers_at(openai_url))
    async with talking(model) as (runtime, session):
        await runtime.chat(session).turn("hello")
    asks = ScriptedModel([ToolCall("1", "session_search", "{}"), "Done."])
    async with talking(asks, identity="bob") as (runtime, session):
        await runtime.chat(session).turn("hello again")
    for span in watched.spans:
        assert _own(span.attributes) <= NAMES, span.name
    assert _own(watched.one("execute_tool session_search").attributes) >= OF_A_TOOL
    told = {line.split()[2].removesuffix("_seconds") for line in watched.text().splitlines() if "# TYPE gen_ai" in line}
    assert told
    assert told <= {name.replace(".", "_") for name in METRICS}


@pytest.mark.parametrize(
    ("name", "provider", "bare"),
    [
        ("openai/gpt-5", "openai", "gpt-5"),
        ("gpt-4o", "openai", "gpt-4o"),
        ("bedrock/anthropic.claude", "aws.bedrock", "anthropic.claude"),
        ("gemini/gemini-2.5-pro", "gcp.gemini", "gemini-2.5-pro"),
        ("mistral/large", "mistral_ai", "large"),
        ("xai/grok", "x_ai", "grok"),
    ],
)
def test_providers_have_the_names_of_the_conventions(watched: Watched, name: str, provider: str, bare: str) -> None:
    assert provider in {each.value for each in published.GenAiProviderNameValues}
    observer = watched.telemetry.observer
    observer.begin("call", {"request": "chat", "model": name, "purpose": "chat"}).end()
    [span] = watched.spans
    assert span.attributes
    assert (span.attributes["gen_ai.provider.name"], span.attributes["gen_ai.request.model"]) == (provider, bare)
