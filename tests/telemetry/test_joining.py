"""Traces that begin elsewhere: what is asked over HTTP joins them, and nobody gets more sent by it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from chatbot.telemetry.telemetry import sampler
from tests.patience import PATIENCE_S
from tests.servers.http_server import Served, serving
from tests.servers.memory_server import listening
from tests.telemetry.collector import Collector

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
MALFORMED = [[], [""], [f"{SAMPLED}-more"], [SAMPLED.replace(TRACE, "0" * 32)], [SAMPLED, SAMPLED], [SAMPLED * 100]]
TURN = "invoke_agent chat"
CHOSEN = NonRecordingSpan(SpanContext(1, 1, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)))


def config(collector: Collector, more: str = "") -> str:
    return (
        '[agents.chat]\nmemory = ["basic_session", "observations"]\n'
        f'[telemetry]\nendpoint = "{collector.url}"\ninterval_s = 3600\n{more}\n'
    )


@contextmanager
def served(collector: Collector, more: str = "", *, tokens: bool = False) -> Iterator[Served]:
    """A server that tells this collector, at the latest when it ends."""
    with serving(["Fine."], config=config(collector, more), tokens=tokens) as running:
        yield running


def say(client: httpx.Client, *named: str) -> httpx.Response:
    """One turn of a new session, asked for with these headers `traceparent`."""
    session = client.post("/v1/sessions", json={}).json()["id"]
    headers = [("traceparent", each) for each in named] + [("tracestate", "a=plugh"), ("baggage", "b=plugh")]
    said = {"text": "I moved to Porto", "stream": False}
    return client.post(f"/v1/sessions/{session}/chat", json=said, headers=headers).raise_for_status()


def turns(collector: Collector) -> list[Span]:
    return [span for span in collector.spans() if span.name == TURN]


def test_a_turn_and_all_that_it_does_join_the_trace_of_who_asked_and_no_later_turn_does(collector: Collector) -> None:
    with served(collector) as running, running.client() as client:
        answer = say(client, SAMPLED)
        for malformed in MALFORMED:
            assert say(client, *malformed).json()["reply"] == "Fine."
    joined, *others = turns(collector)
    assert (joined.trace_id.hex(), joined.parent_span_id.hex()) == (TRACE, SPAN)
    within = {span.name for span in collector.spans() if span.trace_id == joined.trace_id}
    assert {TURN, "hook inject", "memory recall", "chat scripted", "commit observations"} <= within
    assert {span.trace_state for span in collector.spans()} == {""}
    assert b"plugh" not in b"".join(body for *_, body in collector.bodies)
    assert TRACE not in str(answer.headers) + answer.text
    assert len(others) == len(MALFORMED)
    assert not [turn for turn in others if turn.trace_id.hex() == TRACE or turn.parent_span_id]


@pytest.mark.parametrize(("more", "named"), [("sample = 0", SAMPLED), ("sample = 1", UNSAMPLED)])
def test_nobody_gets_more_than_the_settings_say_but_may_get_less(more: str, named: str, collector: Collector) -> None:
    with served(collector, more) as running, running.client() as client:
        say(client, named)
    assert turns(collector) == []
    assert "chatbot.turn.duration" in collector.metrics(), "which counts them all"


def test_an_id_that_was_chosen_is_taken_no_more_often_than_others() -> None:
    tracer = TracerProvider(sampler(0.1), shutdown_on_exit=False).get_tracer("test")
    within = set_span_in_context(CHOSEN)
    taken = sum(tracer.start_span("turn", within).is_recording() for _ in range(2_000))
    assert 120 < taken < 290, "200 of 2,000, within six standard deviations"


def test_who_is_not_let_in_joins_nothing(collector: Collector) -> None:
    with served(collector, tokens=True) as running:
        with running.client() as stranger:
            for path in ("/v1/sessions", "/v1/memories/search?q=x", "/health", "/login"):
                stranger.get(path, headers={"traceparent": SAMPLED})
        with running.client(running.token("ada")) as client:
            client.get("/v1/sessions").raise_for_status()
    assert TRACE not in {span.trace_id.hex() for span in collector.spans()}


@pytest.mark.parametrize(("more", "joined"), [("", 2), ("sample = 0", 0)])
async def test_over_mcp_too(more: str, joined: int, collector: Collector) -> None:
    await asyncio.to_thread(Path("config.toml").write_text, config(collector, more), encoding="utf-8")
    async with (
        listening() as url,
        httpx2.AsyncClient(headers={"traceparent": SAMPLED}) as own,
        Client(streamable_http_client(url, http_client=own), read_timeout_seconds=PATIENCE_S) as client,
    ):
        await client.call_tool("memory_search", {"query": "locker"})
        meta: Any = {"traceparent": SAMPLED}
        await client.call_tool("memory_search", {"query": "locker"}, meta=meta)
    await asyncio.to_thread(collector.wait_for, "/v1/metrics")
    found = [span for span in collector.spans() if span.name == "memory search"]
    assert [(span.trace_id.hex(), span.parent_span_id.hex()) for span in found] == [(TRACE, SPAN)] * joined
