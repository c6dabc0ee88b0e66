"""Every error has one status and one code, whatever tree it stands in; and what it tells depends on who asks."""

import pytest

from chatbot.errors import ChatbotError, ModelError, ProviderFailed
from chatbot.errors import RateLimited as ProviderLimit
from chatbot.server.callers import OWNER, ServerCaller
from chatbot.server.errors import problem_of
from chatbot.stores.errors import StoreAway, StoreBusy, StoreError, StoreFailed, UnknownOutcome
from tests.servers.http_server import Serve
from tests.surfaces.test_exits import leaves

EXPECTED = {
    "ConfigError": (500, "configuration"),
    "IdentityError": (404, "identity_not_found"),
    "UnknownToken": (404, "token_not_found"),
    "SessionNotFound": (404, "session_not_found"),
    "SessionExpired": (404, "session_expired"),
    "AmbiguousSession": (409, "ambiguous_session"),
    "WrongAgent": (409, "wrong_agent"),
    "DamagedSession": (500, "damaged_session"),
    "UnknownModel": (502, "unknown_model"),
    "MissingModel": (503, "missing_model"),
    "KeyRefused": (502, "provider_denied_access"),
    "RateLimited": (429, "provider_rate_limited"),
    "ContextTooLong": (400, "context_length_exceeded"),
    "RequestRefused": (400, "refused_by_provider"),
    "ModelTimeout": (504, "model_timeout"),
    "ProviderFailed": (502, "provider_failed"),
    "BudgetExceeded": (402, "budget_exceeded"),
    "QuotaExceeded": (429, "quota_exceeded"),
    "ToolError": (500, "tool_failed"),
    "UnsupportedOperation": (409, "unsupported_operation"),
    "UnknownStore": (500, "configuration"),
    "BrokenStore": (500, "configuration"),
    "InvalidSettings": (500, "configuration"),
    "InvalidValue": (422, "invalid_value"),
    "UnsafePath": (404, "file_not_found"),
    "MissingFolder": (404, "gone"),
    "DamagedFile": (500, "damaged_file"),
    "LaterFormat": (500, "later_format"),
    "UnknownObservation": (404, "memory_not_found"),
    "UnknownProject": (404, "project_not_found"),
    "ChangedMeanwhile": (412, "changed_meanwhile"),
    "ConflictingChange": (409, "conflicting_change"),
    "OtherEmbedder": (500, "other_embedder"),
    "AccessDenied": (403, "clearance"),
    "MissingRight": (403, "missing_right"),
    "StoreBusy": (503, "busy"),
    "StoreAway": (503, "storage_away"),
    "UnknownOutcome": (503, "outcome_unknown"),
    "StoreFailed": (500, "storage_failed"),
    "ReadOnlyFolder": (500, "storage_failed"),
    "ClosedResource": (500, "storage_failed"),
}
TELLS_OF_FILES = {
    "ConfigError",
    "QuotaExceeded",
    "BudgetExceeded",  # where the bill cannot be read
    "DamagedSession",
    "UnknownStore",
    "BrokenStore",
    "InvalidSettings",
    "UnsafePath",
    "MissingFolder",
    "DamagedFile",
    "LaterFormat",
    "OtherEmbedder",
    "StoreAway",
    "StoreBusy",
    "StoreFailed",
    "UnknownOutcome",
    "ReadOnlyFolder",
    "ClosedResource",
}
GUEST = ServerCaller("tk_1", frozenset({"ada"}), "full")
LEAVES = [*leaves(ChatbotError), *leaves(StoreError)]


def test_every_leaf_of_both_trees_has_the_status_and_the_code_that_are_documented() -> None:
    for kind in LEAVES:
        expected = EXPECTED.get(f"{kind.__module__}.{kind.__name__}") or EXPECTED[kind.__name__]
        problem = problem_of(kind("/home/ada/x: what happened"), OWNER)
        assert (problem.status, problem.code) == expected, kind
        assert problem.message == "/home/ada/x: what happened"
        assert set(problem.as_json()["error"]) == {"message", "type", "code", "param"}
        hides = kind.__name__ in TELLS_OF_FILES or issubclass(kind, ModelError)  # of which the file alone is named
        assert ("/home/ada" not in problem_of(kind("/home/ada/x: what happened"), GUEST).message) is hides


def test_a_provider_that_asks_to_wait_is_quoted() -> None:
    error = ProviderLimit("slow down")
    error.retry_after_s = 2.5
    assert problem_of(error).headers == {"retry-after": "3"}
    assert problem_of(ProviderFailed("down")).headers == {}


@pytest.mark.parametrize("kind", [StoreBusy, StoreAway, UnknownOutcome])
def test_storage_that_is_away_for_a_while_is_told_without_its_place(kind: type[StoreError]) -> None:
    problem = problem_of(kind("postgresql://db/chat: no PostgreSQL answers there"), GUEST)
    assert problem.message == kind.in_public != ""
    assert (problem.status, problem.type) == (503, "server_error")
    assert int(problem.headers["retry-after"]) > 0
    assert (problem.headers.get("x-should-retry") == "false") is (kind is UnknownOutcome)  # it may be stored


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "error", [StoreFailed("/secret/path: disk full"), KeyError("/secret/path"), ProviderFailed("down")]
)
def test_what_a_model_raises_reaches_the_client_and_the_server_goes_on(
    http: Serve, error: Exception, *, stream: bool
) -> None:
    served = http([error, "fine again"], tokens=True)
    with served.client(served.token("ada")) as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        told = client.post(f"/v1/sessions/{session}/chat", json={"text": "hello", "stream": stream})
        assert told.status_code == (200 if stream else 502 if isinstance(error, ProviderFailed) else 500)
        assert '"error":{' in told.text
        assert "/secret" not in told.text
        again = client.post(f"/v1/sessions/{session}/chat", json={"text": "hello", "stream": False})
        assert again.json()["reply"] == "fine again"


def test_a_route_or_a_method_that_is_not_there_has_the_same_shape(http: Serve) -> None:
    with http().client() as client:
        for answer, status in ((client.get("/v1/nothing"), 404), (client.put("/v1/sessions"), 405)):
            assert answer.status_code == status
            assert set(answer.json()["error"]) == {"message", "type", "code", "param"}
        assert client.put("/v1/sessions").headers["allow"]


def test_a_value_that_is_wrong_is_named_and_not_repeated(http: Serve) -> None:
    with http().client() as client:
        answer = client.post("/v1/memories", json={"title": "x", "visibility": "<script>"})
        assert answer.json()["error"]["param"] == "visibility"
        assert "script" not in answer.text
