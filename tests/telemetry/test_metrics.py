"""Metrics: that the numbers are right, also after failures and from many sessions at once."""

import asyncio
import re
from pathlib import Path

import pytest

from chatbot.chat.ledger import Call, sum_of
from chatbot.errors import ProviderFailed
from chatbot.memory.scope import utc_now
from chatbot.messages import ToolCall, Usage
from chatbot.models import Price, ScriptedModel
from chatbot.models.scripted import ScriptedReply
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.span import count, observed
from tests.telemetry.conftest import Talking, Watched, value_in

TURNS = "chatbot_turn_duration_seconds_count"
MOVED = "I moved to Porto in the spring, and the locker there has the number 4711"


async def test_turns_of_many_sessions_and_their_failures_are_counted(watched: Watched, talking: Talking) -> None:
    replies: list[ScriptedReply] = ["Fine.", ProviderFailed("it broke off"), "Well then."]
    async with talking(ScriptedModel(replies)) as (runtime, first):
        sessions = [first, *[await runtime.new_session() for _ in range(9)]]
        turns = [runtime.chat(session).turn(MOVED) for session in sessions for _ in range(3)]
        done = await asyncio.gather(*turns, return_exceptions=True)
        failed = sum(isinstance(each, ProviderFailed) for each in done)
        assert failed == 10
        assert watched.value(TURNS, chatbot_turn_finish="stop") == 20
        assert watched.value(TURNS, chatbot_turn_finish="error", error_type="ProviderFailed") == 10
        assert watched.value("gen_ai_client_operation_duration_seconds_count", error_type="ProviderFailed") == 10
        assert watched.value("chatbot_turn_first_text_seconds_count") == 20


async def test_tokens_and_cost_are_those_of_the_bill(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel(["Fine."], price=Price(1e-5, 1e-4))) as (runtime, session):
        chat = runtime.chat(session)
        for _ in range(4):
            await chat.turn(MOVED)
        bill = sum_of((await runtime.ledger.by_session()).values())
        with observed(watched.telemetry.observer):
            await runtime.ledger.settle(None, Call(utc_now(), "", "extract", "own/model", Usage(7, 3), 0.1))
    labels = {"gen_ai_request_model": "scripted", "chatbot_purpose": "chat"}
    told = {**labels, "gen_ai_operation_name": "chat"}
    assert watched.value("gen_ai_client_token_usage_sum", gen_ai_token_type="input", **told) == bill.input_tokens
    assert watched.value("gen_ai_client_token_usage_sum", gen_ai_token_type="output", **told) == bill.output_tokens
    assert watched.value("chatbot_cost_usd_total", **labels) == pytest.approx(bill.cost_usd)
    assert bill.cost_usd > 0
    assert watched.value("chatbot_calls_unpriced_total", chatbot_purpose="extract") == 1
    assert watched.value("chatbot_calls_unpriced_total", chatbot_purpose="chat") == 0


async def test_cost_is_counted_even_where_the_bill_cannot_be_written(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel(["Fine."], price=Price(1e-5, 1e-4))) as (runtime, session):
        assert runtime.memory.home is not None
        (runtime.memory.home / "usage.jsonl").mkdir()
        receipt = await runtime.chat(session).turn(MOVED)
    assert any("bill" in notice for notice in receipt.notices)
    assert watched.value("chatbot_cost_usd_total") > 0


async def test_hits_and_misses(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel()) as (_, session):
        await session.memory.remember("The locker has the number 4711")
        for question in ("locker", "number of the locker", "elephants"):
            await session.memory.search(question)
        await session.memory.recall("locker")
    hits = "chatbot_memory_retrievals_total"
    assert watched.value(hits, chatbot_operation="search", chatbot_outcome="hit") == 2
    assert watched.value(hits, chatbot_operation="search", chatbot_outcome="miss") == 1
    assert watched.value(hits, chatbot_operation="recall", chatbot_outcome="hit") == 1
    assert watched.value("chatbot_memory_rows_retrieved_total", chatbot_operation="search") == 2
    assert watched.value("chatbot_memory_rows_changed_total", chatbot_operation="remember") == 1
    assert watched.value("chatbot_memory_operation_duration_seconds_count", chatbot_operation="search") == 3


async def test_sizes_are_those_of_the_files_and_of_the_gate(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel()) as (runtime, session):
        ids = [(await session.memory.remember(f"tea number {number}", sensitivity="secret")).id for number in range(5)]
        await session.memory.forget(ids[0])
        await session.memory.scope.change("archive", ids[1])
        await session.transcript_append("user", "hello")
        assert "chatbot_memory_rows{" not in watched.text(), "which would have to wait for this very loop"
        text = await asyncio.to_thread(watched.text)
        stats = await runtime.memory.memory().stats(sensitivities=SENSITIVITIES)
        home = runtime.memory.home
        assert home is not None
        kept = sum(file.stat().st_size for file in Path(home, "sessions").rglob("*") if file.is_file())
    assert "chatbot_memory_rows{" in watched.text(), "the last numbers stand"
    assert stats.by_status == {"active": 3, "deleted": 1, "archived": 1}
    for status, rows in stats.by_status.items():
        assert value_in(text, "chatbot_memory_rows", chatbot_status=status) == rows
    assert value_in(text, "chatbot_memory_storage_bytes", chatbot_part="observations") == stats.journal_bytes
    assert value_in(text, "chatbot_memory_storage_bytes", chatbot_part="sessions") == kept


async def test_a_memory_that_cannot_be_measured_hides_no_other(watched: Watched, talking: Talking) -> None:
    async with talking(ScriptedModel()) as (broken, _), talking(ScriptedModel(), identity="eve") as (_, session):
        await session.memory.remember("tea")
        assert broken.memory.home is not None
        (broken.memory.home / "sessions" / "endless").symlink_to("x" * 300)
        text = await asyncio.to_thread(watched.text)
    assert value_in(text, "chatbot_memory_rows", chatbot_status="active") == 1


async def test_what_maintenance_does_is_counted_unless_it_is_dry(watched: Watched, talking: Talking) -> None:
    settings = '[maintenance]\ncompression_min_age_days = 0\nrules = [{types = ["note"], max_rows = 2}]\n'
    async with talking(ScriptedModel(), settings) as (runtime, session):
        for number in range(6):
            await session.memory.remember(f"apple {number} banana {number * 7}", type="note")
        archived = {"chatbot_change": "archive"}
        dry = await runtime.memory.maintain(runtime.config.maintenance, whole=True, dry_run=True)
        assert watched.value("chatbot_memory_rows_maintained_total", **archived) == 0
        report = await runtime.memory.maintain(runtime.config.maintenance, whole=True)
    assert report.counts() == dry.counts()
    assert report.counts()["archive"] > 0
    assert watched.value("chatbot_memory_rows_maintained_total", **archived) == report.counts()["archive"]


async def test_the_docs_show_every_metric_that_there_is(watched: Watched, talking: Talking) -> None:
    replies: list[ScriptedReply] = [ToolCall("a", "memory_get", "{}"), "Fine."]
    async with talking(ScriptedModel(replies)) as (runtime, session):
        await runtime.chat(session).turn(MOVED)
        with observed(watched.telemetry.observer):
            await runtime.ledger.settle(None, Call(utc_now(), "", "extract", "own/model", Usage(7, 3), 0.1))
            count("storage_retries", cause="DeadlockDetected")
        await runtime.memory.maintain(runtime.config.maintenance)
        text = await asyncio.to_thread(watched.text)
    told = {line.split()[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE")}
    docs = Path(__file__).parents[2].joinpath("docs", "observability.md").read_text(encoding="utf-8")
    table = [line for line in docs.splitlines() if line.startswith("| `")]
    written = {name.removesuffix("_total") for line in table for name in re.findall("`([^`]+)`", line.split("|")[1])}
    written = {name.replace("…", "chatbot_memory_rows") for name in written}
    assert told == written
