"""A write that is sent again is done once."""

import threading
from typing import Any

import httpx
import pytest

from chatbot.errors import ProviderFailed
from chatbot.server.idempotency import MOST_FOR_EACH
from tests.servers.http_server import Serve, Served, events, wait_until


@pytest.fixture
def served(http: Serve) -> Served:
    return http()


def _post(client: httpx.Client, path: str, key: str, **body: Any) -> httpx.Response:
    return client.post(path, json=body, headers={"Idempotency-Key": key})


def test_the_same_request_is_done_once_and_answered_twice(served: Served) -> None:
    with served.client() as client:
        first, second = (_post(client, "/v1/sessions", "a", title="one") for _ in range(2))
        assert first.json() == second.json()
        assert (first.status_code, second.status_code) == (201, 201)
        assert "idempotency-replayed" not in first.headers
        assert second.headers["idempotency-replayed"] == "true"
        assert len(client.get("/v1/sessions").json()["data"]) == 1
        assert _post(client, "/v1/sessions", "b", title="one").json()["id"] != first.json()["id"]


def test_a_key_belongs_to_one_request(served: Served) -> None:
    with served.client() as client:
        _post(client, "/v1/sessions", "a", title="one")
        for path, body in (("/v1/sessions", {"title": "two"}), ("/v1/tasks", {"title": "one"})):
            answer = _post(client, path, "a", **body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_key_reused")
        assert client.post("/v1/sessions", json={}, headers={"Idempotency-Key": "x" * 300}).status_code == 422


def test_a_key_belongs_to_one_caller(http: Serve) -> None:
    served = http(tokens=True)
    ids = set()
    for _ in range(2):
        with served.client(served.token("ada")) as client:
            ids.add(_post(client, "/v1/sessions", "a").json()["id"])
    assert len(ids) == 2


def test_many_at_once_with_one_key_run_once(http: Serve) -> None:
    served = http(delay_s=0.01)
    answers: list[str] = []
    with served.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        path = f"/v1/sessions/{session}/chat"

        def say() -> None:
            answers.append(_post(client, path, "same", text="hello there", stream=False).text)

        threads = [threading.Thread(target=say) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 8
        assert len(set(answers)) == 1
        assert len(client.get(f"/v1/sessions/{session}/messages").json()["data"]) == 2


def test_a_stream_that_was_lost_is_had_again_from_its_beginning(http: Serve) -> None:
    served = http(["word " * 100], delay_s=0.005)
    with served.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        path, headers, body = f"/v1/sessions/{session}/chat", {"Idempotency-Key": "a"}, {"text": "hello"}
        with client.stream("POST", path, json=body, headers=headers) as lost:
            next(events(lost))
        with client.stream("POST", path, json=body, headers=headers) as again:
            told = list(events(again))
        assert "".join(data["text"] for name, data in told if name == "text") == "word " * 100
        assert told[-1][0] == "done"
        assert len(client.get(f"/v1/sessions/{session}/messages").json()["data"]) == 2


def test_what_failed_can_be_tried_again_with_the_same_key(http: Serve) -> None:
    served = http([ProviderFailed("down"), "up again"])
    with served.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        path = f"/v1/sessions/{session}/chat"
        assert _post(client, path, "a", text="hello", stream=False).status_code == 502
        assert _post(client, path, "a", text="hello", stream=False).json()["reply"] == "up again"


def test_only_so_many_keys_are_kept_for_a_caller(served: Served) -> None:
    with served.client() as client:
        made = [_post(client, "/v1/sessions", str(n)).json()["id"] for n in range(MOST_FOR_EACH + 1)]
        assert _post(client, "/v1/sessions", str(MOST_FOR_EACH)).json()["id"] == made[-1]
        assert _post(client, "/v1/sessions", "0").json()["id"] != made[0]


def test_work_that_goes_on_without_its_client_ends_with_the_server(http: Serve) -> None:
    served = http(["word " * 100_000], delay_s=0.01)
    with served.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        path, headers = f"/v1/sessions/{session}/chat", {"Idempotency-Key": "a"}
        with client.stream("POST", path, json={"text": "hello"}, headers=headers) as lost:
            next(events(lost))
    wait_until(lambda: served.house.at_work)
