"""Sending: to a real collector, to one that fails, and to none; and that nothing is imported unasked."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from tests.patience import PATIENCE_S
from tests.talk import begun
from tests.telemetry.collector import HANGS, Collector

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

MOVED = "I moved to Porto in the spring, and the locker there has the number 4711"
LONGEST_FAREWELL_S = 2.0
SLACK_S = 20.0
"""For a busy machine: less than the collector may take."""


def configure(url: str, more: str = "") -> None:
    Path("config.toml").write_text(f'[telemetry]\nendpoint = "{url}"\n{more}\n', encoding="utf-8")


async def one_turn() -> tuple[float, float]:
    """A turn of a session, and how long it and the end took."""
    async with Runtime(Options(), model=ScriptedModel(["Fine."])) as runtime:
        session, chat = await begun(runtime)
        started = time.monotonic()
        receipt = await chat.turn(MOVED)
        turn = time.monotonic() - started
        assert receipt.reply == "Fine."
        assert [entry.role for entry in await session.transcript_read_last()] == ["user", "assistant"]
        started = time.monotonic()
    return turn, time.monotonic() - started


async def test_spans_and_metrics_arrive_whole_at_the_end(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLECTOR_KEY", "open sesame")
    configure(f"{collector.url}/", 'service = "our bot"\nheaders = {x-key = "env:COLLECTOR_KEY"}')
    await one_turn()
    names = [span.name for span in collector.spans()]
    assert names.count("invoke_agent chat") == 1
    assert {"memory recall", "chat scripted", "commit observations", "hook inject"} <= {*names}
    assert {"chatbot.turn.duration", "gen_ai.client.token.usage", "chatbot.store.operation.duration"} <= (
        collector.metrics()
    )
    [resource] = {request.resource_spans[0].resource.SerializeToString() for request in collector.traces()}
    assert b"our bot" in resource
    assert b"service.version" in resource
    assert {headers["x-key"] for _, headers, _ in collector.bodies} == {"open sesame"}
    assert b"Porto" not in b"".join(body for *_, body in collector.bodies)


async def test_metrics_are_sent_as_often_as_is_asked(collector: Collector) -> None:
    configure(collector.url, "interval_s = 0.05\nsample = 0")
    async with Runtime(Options(), model=ScriptedModel(["Fine."])) as runtime:
        _, chat = await begun(runtime)
        await chat.turn(MOVED)
        await asyncio.to_thread(collector.wait_for, "/v1/metrics")
    assert "chatbot.memory.storage" in collector.metrics()
    assert collector.spans() == [], "no turn was sampled"


@pytest.mark.parametrize("status", [500, 302, HANGS])
async def test_a_collector_that_fails_harms_neither_turn_nor_end(status: int, collector: Collector) -> None:
    collector.status = status
    configure(collector.url, "interval_s = 0.05\ntimeout_s = 30")
    turn, end = await one_turn()
    assert turn < SLACK_S
    assert end < LONGEST_FAREWELL_S + SLACK_S
    collector.leaving.set()


async def test_a_collector_that_is_not_there_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"  # which is closed
    configure(url, "interval_s = 0.05\ntimeout_s = 0.2")
    with caplog.at_level(logging.INFO):
        turn, end = await one_turn()
        await asyncio.sleep(0.5)
    assert turn < SLACK_S
    assert end < LONGEST_FAREWELL_S + SLACK_S
    told = [record.getMessage() for record in caplog.records if "telemetry" in record.getMessage()]
    assert 1 <= len(told) == len(set(told)) <= 3, "once for spans, once for metrics, once at the end"
    port = url.rpartition(":")[2]  # the sender of an earlier test may still be trying its own
    others = [record.getMessage() for record in caplog.records if record.name.startswith("opentelemetry")]
    assert not [message for message in others if port in message]


CHATS = '[model]\nname = "scripted"\nscript = ["Fine."]\n'
TURN = "from chatbot.cli.main import main\nmain(['ask', 'hello'])"


def python(source: str) -> subprocess.CompletedProcess[str]:
    wrapped = f"import sys, contextlib\nwith contextlib.suppress(SystemExit):\n    exec({source!r})\n"
    told = "print('loaded:', *sorted({n.partition('.')[0] for n in sys.modules}))"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", wrapped + told]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environ)


WITHOUT = "import sys\nsys.modules['opentelemetry.sdk'] = sys.modules['opentelemetry.exporter'] = None\n"


def test_without_the_extra_the_error_names_it() -> None:
    Path("config.toml").write_text(f'{CHATS}[telemetry]\nendpoint = "http://127.0.0.1:1"\n', encoding="utf-8")
    done = python(f"{WITHOUT}from chatbot.cli.main import main\nraise SystemExit(main(['ask', 'hello']))")
    assert "[telemetry] needs the extra `otel`: pip install 'chatbot-runtime[otel]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_ends_though_its_collector_hangs(collector: Collector) -> None:
    collector.status = HANGS
    Path("config.toml").write_text(
        f'{CHATS}[telemetry]\nendpoint = "{collector.url}"\ntimeout_s = {PATIENCE_S}\n', encoding="utf-8"
    )
    begun = time.monotonic()
    done = python(TURN)
    assert "Fine." in done.stdout, done.stderr
    assert time.monotonic() - begun < PATIENCE_S
