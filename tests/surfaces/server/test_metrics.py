"""`GET /metrics`: what Prometheus reads there, and who may."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from chatbot.server.callers import Grant
from tests.command import from_json, ok, run
from tests.servers.http_server import Serve, Served
from tests.surfaces.server.test_access_checks import ASKED, address, served_in
from tests.telemetry.conftest import value_in

CONFIG = "[telemetry]\nprometheus = true\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with tokens, where something was said to both identities."""
    with served_in(tmp_path_factory, replies=["I say plugh."], config=CONFIG) as running:
        with running.client(running.token("ada", "grace")) as client:
            for name in ("ada", "grace"):
                _converse(client, name)
        yield running


def _converse(client: httpx.Client, identity: str) -> str:
    at: dict[str, Any] = {"params": {"identity": identity}}
    session = str(client.post("/v1/sessions", json={"title": "plugh"}, **at).json()["id"])
    said = {"text": "The secret word of Sam is plugh", "stream": False}
    assert client.post(f"/v1/sessions/{session}/chat", json=said, **at).is_success
    assert client.post("/v1/memories", json={"title": "plugh", "people": ["Sam"]}, **at).is_success
    assert client.get("/v1/memories/search", params={"q": "plugh", "identity": identity}).is_success
    return session


def _for_metrics(served: Served) -> str:
    text, _ = served.identities.tokens.add(uuid4().hex, Grant(metrics=True))
    return text


def test_prometheus_reads_what_was_done_by_all_in_the_newer_format_as_well(served: Served) -> None:
    with served.client(_for_metrics(served)) as client:
        answer = client.get("/metrics")
        newer = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.is_success
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert answer.headers["cache-control"] == "no-store"
    assert value_in(answer.text, "chatbot_turn_duration_seconds_count", chatbot_turn_finish="stop") == 2
    assert value_in(answer.text, "chatbot_memory_retrievals_total", chatbot_operation="search") == 2
    assert value_in(answer.text, "chatbot_memory_rows", chatbot_status="active") >= 2
    assert value_in(answer.text, "gen_ai_client_token_usage_sum", gen_ai_token_type="input") > 0
    assert newer.headers["content-type"].startswith("application/openmetrics-text")
    assert "chatbot_turn_duration_seconds" in {family.name for family in openmetrics(newer.text)}  # type: ignore[no-untyped-call]


def test_who_may_see_all_of_everybody_may_read_it(served: Served) -> None:
    for token, status in {
        served.token("ada", "grace"): 200, served.token("ada", "grace", clearance="inner"): 403,
        served.token("ada", "grace", project="house"): 403, served.token("ada"): 403, served.token("grace"): 403,
        served.token("ada", clearance="public"): 403, _for_metrics(served): 200,
    }.items():  # fmt: skip
        with served.client(token) as client:
            answer = client.get("/metrics")
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["error"]["code"] == "metrics_not_allowed"
            assert "chatbot_" not in answer.text


def test_a_token_for_metrics_opens_nothing_else_and_no_page_of_anybody(served: Served) -> None:
    with served.client(_for_metrics(served)) as client:
        for method, path in set(ASKED) - {("GET", "/health"), ("GET", "/ready"), ("GET", "/openapi.json")}:
            ids = dict.fromkeys(re.findall(r"{(\w+)}", path), "x")
            answer = client.request(method, address(path, ids), json=ASKED[method, path])
            if path == "/v1/models":
                assert answer.json()["data"] == []
            else:
                assert answer.status_code == 404, (method, path)
            assert "grace" not in answer.text
    with served.client(Cookie=f"chatbot_token={_for_metrics(served)}", Accept="text/html") as client:
        for path in ("/", "/i/ada", "/i/grace/memories"):
            answer = client.get(path)
            assert not answer.is_success, path
            assert "plugh" not in answer.text


def test_the_command_line_makes_a_token_for_it() -> None:
    Path("config.toml").touch()
    made = from_json("token", "add", "prometheus", "--metrics")
    assert (made["metrics"], made["identities"], made["clearance"]) == (True, [], "public")
    assert "/metrics" in ok("token", "list")
    assert run("token", "add", "x", "--metrics", "--clearance", "full").returncode == 2
    refused = run("token", "add", "x", "--metrics", "--for", "ada")
    assert "--metrics cannot be combined" in refused.stderr
    assert "is shown only once; it opens /metrics" in run("token", "add", "y", "--metrics").stderr
    assert (
        "in one memory if they name no user" in run("token", "add", "z", "--clearance", "full", "--memory", "on").stderr
    )


def test_the_owner_reads_it_where_there_are_no_tokens_and_two_servers_keep_their_own_numbers(http: Serve) -> None:
    for count, served in enumerate((http(config=CONFIG), http(config=CONFIG))):
        with served.client() as client:
            if not count:
                _converse(client, "ada")
            told = client.get("/metrics").raise_for_status().text
            assert value_in(told, "chatbot_turn_duration_seconds_count") == 1 - count
            assert client.post("/metrics", json={}).status_code == 405
    with http().client() as client:  # where it was not asked for there is none
        assert client.get("/metrics").status_code == 404
