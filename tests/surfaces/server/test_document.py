"""The OpenAPI document: what it promises holds for whatever is sent."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chatbot.server.access_checks import OPEN_PATHS
from tests.effort import rounds
from tests.patience import PATIENCE_S
from tests.servers.http_server import Served
from tests.surfaces.server.test_access_checks import routes_in, served_in

EXAMPLES = rounds(32)
SECONDS = 10 * PATIENCE_S
"""It sends thousands of requests, and ends by itself."""
SEEDED = 300
NAMED = {
    "path.memory_id": "memories", "path.task_id": "tasks", "path.fact_id": "facts", "path.session_id": "sessions",
    "path.response": "responses", "path.key": "keys", "query.other": "sessions", "body.by": "memories",
    "body.session_id": "sessions", "body.model": "models", "body.identity": "models",
    "body.previous_response_id": "responses",
}  # fmt: skip
UNSAID = {
    "422": """
        GET /v1/facts, GET /v1/memories, GET /v1/memories/recall, GET /v1/memories/search, GET /v1/profile,
        POST /v1/memories, POST /v1/memories/batch, POST /v1/memories/import, POST /v1/memories/purge,
        PUT /v1/profile/{key}, POST /v1/sessions/{session_id}/chat, POST /v1/sessions/{session_id}/messages,
        POST /v1/context, POST /v1/sync
    """,
    "412, 422": """
        PATCH /v1/memories/{memory_id}, DELETE /v1/memories/{memory_id}, PUT /v1/memories/by-key/{key},
        POST /v1/memories/{memory_id}/confirm, POST /v1/memories/{memory_id}/restore,
        POST /v1/memories/{memory_id}/supersede
    """,
}
"""What an operation may answer to what its schema allows."""
UNMADE = """
    POST /v1/chat/completions, POST /v1/profile/proposals/{memory_id}/accept,
    DELETE /v1/profile/proposals/{memory_id}, GET /v1/sessions/{session_id}/attachments/{name},
    PATCH /v1/projects/{project}, DELETE /v1/projects/{project}, POST /v1/embeddings, POST /v1/context,
    PUT /v1/memories/by-key/{key}
"""
"""Operations on what is not made here, or on two things that have to fit each other, so most ids are not found."""
MADE: dict[str, dict[str, Any]] = {
    "memories": {"title": "Something to remember"},
    "tasks": {"title": "Something to do"},
    "facts": {"subject": "Sam", "predicate": "lives in", "object": "Oslo"},
    "sessions": {"title": "Something to talk about"},
    "responses": {"model": "ada", "input": "Something to answer", "store": True},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = "[server]\nrate_per_minute = 0\n[telemetry]\nprometheus = true\n"
    with served_in(tmp_path_factory, tokens=False, config=config) as served:
        yield served


@pytest.fixture(scope="module")
def document(served: Served) -> dict[str, Any]:
    return served.app.openapi()


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + PATIENCE_S)
def test_schemathesis_finds_nothing(served: Served, tmp_path: Path) -> None:
    """All of its checks in all of its phases, with ids of what is there."""
    settings = tmp_path / "schemathesis.toml"
    with served.client() as client:
        made = {kind: [_make(client, kind, number) for number in range(SEEDED)] for kind in MADE}
        settings.write_text(_settings({"models": ["ada"], "keys": _keys(client)} | made), encoding="utf-8")
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run", "--no-color"]
    done = subprocess.run(
        [
            *(*command, "--phases", "examples,coverage,fuzzing,stateful", "--checks", "all"),
            *("--exclude-checks", "unsupported_method"),  # it takes one Idempotency-Key for all; tried below
            # a backup of all that it made takes long on a busy machine
            *("--request-timeout", str(PATIENCE_S), "--max-response-time", str(PATIENCE_S)),
            *("--max-examples", str(EXAMPLES), "--seed", "1", f"{served.url}/openapi.json"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=SECONDS,
    )
    told = "\n".join(line[:500] for line in (done.stdout + done.stderr).splitlines())
    assert done.returncode == 0, told
    assert f"Tested: {len(list(_operations(served.app.openapi())))}" in done.stdout


def test_everything_is_described_and_each_operation_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in _operations(document)]
    assert len(names) == len(set(names))
    known = {each["name"] for each in document["tags"]}
    for path, method, operation in _operations(document):
        place = (path, method)
        assert operation["summary"], place
        assert operation["description"], place
        assert set(operation["tags"]) <= known, place
        for parameter in operation.get("parameters", ()):
            assert _at(document, parameter)["description"], (place, parameter)
        assert all(answer["description"] for answer in operation["responses"].values()), place
    for name, schema in document["components"]["schemas"].items():
        assert "enum" in schema or schema["description"], name
        for field, described in schema.get("properties", {}).items():
            assert described["description"], (name, field)


def test_every_error_of_an_operation_has_one_shape(document: dict[str, Any]) -> None:
    for path, method, operation in _operations(document):
        errors = {int(status): answer for status, answer in operation["responses"].items() if int(status) >= 400}
        assert errors.keys() >= {401, 422, 429} or not path.startswith("/v1/"), (method, path)
        for answer in errors.values() if path.startswith("/v1/") else ():
            assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_it_tells_of_tokens_and_keys(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["security"] == [{"token": []}, {}]
    for path in OPEN_PATHS:
        assert document["paths"][path]["get"]["security"] == []
    for path, method, operation in _operations(document):
        names = [_at(document, each)["name"] for each in operation.get("parameters", ())]
        assert ("idempotency-key" in names) == (path.startswith("/v1/") and method != "get"), (method, path)


def test_allow_names_every_method_of_an_address(served: Served, document: dict[str, Any]) -> None:
    with served.client() as client:
        for path, documented in document["paths"].items():
            answer = client.options(re.sub("{[^}]*}", "x", path), headers={"idempotency-key": path})
            assert answer.status_code == 405, path
            assert {*map(str.upper, documented)} <= {*answer.headers["allow"].split(", ")}, path


def _at(document: dict[str, Any], parameter: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (
        document["components"]["parameters"][parameter["$ref"].rpartition("/")[2]]
        if ("$ref" in parameter)
        else parameter
    )
    return found


def _settings(ids: dict[str, list[str]]) -> str:
    """Most ids that are sent are of what is there, which is enough for some to be erased.

    Off is what no schema can say: sizes of bodies, roles, times to come, JSON in a text, fitting `If-Match`.
    """
    lines = ['[warnings]\ndisplay = ["missing_test_data"]\nfail-on = true', '[generation]\ndatabase = "none"']
    lines += [f"[dictionaries.{kind}]\nvalues = {json.dumps(each)}" for kind, each in ids.items()]
    lines += ["[parameters]"]
    lines += [f'"{name}" = {{ dictionary = "{kind}", probability = 0.7 }}' for name, kind in NAMED.items()]
    lines += ["[checks.negative_data_rejection]", "expected-statuses = [400, 404, 409, 413, 415, 422, 405]"]
    lines += ['[[operations]]\ninclude-path-regex = "^/v1/(chat/completions|responses|embeddings)"']
    lines += ["[operations.checks.positive_data_acceptance]", "expected-statuses = [200, 400, 404, 409]"]
    for statuses, names in UNSAID.items():
        lines += [f"[[operations]]\ninclude-name = {_names_in(names)}"]
        lines += [
            "[operations.checks.positive_data_acceptance]",
            f'expected-statuses = ["2xx", 404, 405, 409, {statuses}]',
        ]
    lines += ['[[operations]]\ninclude-name = "GET /v1/models/{name}"', "[operations.parameters]"]
    lines += ['"path.name" = { dictionary = "models", probability = 0.7 }']
    lines += [f"[[operations]]\ninclude-name = {_names_in(UNMADE)}", "warnings = false"]
    lines += ['[[operations]]\ninclude-path-regex = "^/v1/(memories|tasks)/"']
    lines += ["[operations.checks.use_after_free]", "enabled = false"]
    return "\n".join(lines)


def _names_in(text: str) -> str:
    """The routes that a text names, as a list of TOML."""
    return json.dumps([" ".join(each) for each in routes_in(text)])


def _keys(client: httpx.Client) -> list[str]:
    keys = [f"key-{number}" for number in range(SEEDED)]
    for key in keys:
        client.put(f"/v1/memories/by-key/{key}", json={"title": f"Something under {key}"}).raise_for_status()
    return keys


def _make(client: httpx.Client, kind: str, number: int) -> str:
    name = {"facts": "subject", "responses": "input"}.get(kind, "title")
    response = client.post(f"/v1/{kind}", json=MADE[kind] | {name: f"{MADE[kind][name]} {number}"})
    return str(response.raise_for_status().json()["id"])


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation
