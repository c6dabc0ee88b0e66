"""A write that is sent again is done once."""

import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from chatbot.errors import ProviderFailed
from chatbot.memory.scope import utc_now
from chatbot.messages import Delta, TextDelta, ToolCall
from chatbot.server import earlier_requests
from chatbot.server.earlier_requests import EarlierRequests
from chatbot.stores.errors import StoreAway
from tests.servers.http_server import Serve, Served, events, serving, wait_until
from tests.surfaces.server.test_access_checks import ASKED, World, named, routes_in


def _post(client: httpx.Client, path: str, key: str, **body: Any) -> httpx.Response:
    return client.post(path, json=body, headers={"Idempotency-Key": key})


def test_a_key_belongs_to_one_request(client: httpx.Client) -> None:
    _post(client, "/v1/sessions", "a", title="one")
    for path, body in (("/v1/sessions", {"title": "two"}), ("/v1/tasks", {"title": "one"})):
        answer = _post(client, path, "a", **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_key_reused")
    for name in ("X-Chatbot-Project", "X-Chatbot-Session", "X-Chatbot-Memory", "If-Match"):
        headers = {"Idempotency-Key": "a", name: "on"}
        assert client.post("/v1/sessions", json={"title": "one"}, headers=headers).status_code == 409, name
    assert client.post("/v1/sessions", json={}, headers={"Idempotency-Key": "x" * 300}).status_code == 422


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


MESSAGE = {"role": "user", "content": "The ferry leaves at nine"}
WRITES = routes_in("""
    POST /v1/sessions, PATCH /v1/sessions/{session_id}, POST /v1/sessions/{session_id}/fork,
    POST /v1/sessions/{session_id}/chat, DELETE /v1/sessions/{session_id}/chat,
    POST /v1/chat/completions, POST /v1/responses, POST /v1/memories, PATCH /v1/memories/{memory_id},
    POST /v1/memories/{memory_id}/confirm, DELETE /v1/memories/{memory_id}, POST /v1/tasks, PATCH /v1/tasks/{task_id},
    POST /v1/facts, POST /v1/people, PUT /v1/profile/{key}, PUT /v1/profile/{key}/pin, DELETE /v1/profile/{key},
    POST /v1/profile/proposals/{memory_id}/accept, DELETE /v1/profile/proposals/{memory_id},
""")


def test_every_write_is_answered_again_by_a_server_that_was_started_anew() -> None:
    with serving(tokens=True) as served, served.client() as client:
        world = World(served, client, {"ada": served.token("ada")})
        made = {route: world.ids(named(route)) for route in WRITES}
        first = [_write(world, route, ids) for route, ids in made.items()]
        assert all(answer.is_success for answer in first), [answer.text for answer in first]
        counts = _counts(world)
    with serving(tokens=True) as served, served.client() as client:
        world = World(served, client, world.tokens)
        again = [_write(world, route, ids) for route, ids in made.items()]
        assert _counts(world) == counts
    for one, other in zip(first, again, strict=True):
        assert (one.status_code, _lasting(one)) == (other.status_code, _lasting(other)), one.request.url
        assert other.headers["idempotency-replayed"] == "true"
    [kept] = (file.read_text(encoding="utf-8") for file in Path("identities/.server").glob("requests-*"))
    assert not re.search("plugh|hello|something|Maria|Mary|Oslo|completed", kept)


def _write(world: World, route: tuple[str, str], ids: dict[str, str]) -> httpx.Response:
    body = {"session_id": "new"} if "model" in (ASKED[route] or {}) else None
    return world.ask(route, ids, world.tokens["ada"], headers={"Idempotency-Key": " ".join(route)}, body=body)


def _lasting(answer: httpx.Response) -> Any:
    """Return the answer without the time when the session was last used."""
    return {name: value for name, value in answer.json().items() if name != "used_at"} if answer.content else None


def _counts(world: World) -> dict[str, int]:
    asked = {"memories": {"status": ["active", "deleted"]}, "tasks": {"status": ["pending", "completed"]}}
    with world.served.client(world.tokens["ada"]) as client:
        return {
            kind: len(client.get(f"/v1/{kind}", params={"limit": 100, **asked.get(kind, {})}).json()["data"])
            for kind in ("sessions", "memories", "tasks", "facts")
        }


def test_a_turn_of_a_stream_is_told_again_with_its_tools_answer_and_usage(http: Serve) -> None:
    served = http([ToolCall("c", "memory_search", '{"query": "x"}'), "nothing found"])
    with served.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        path, headers = f"/v1/sessions/{session}/chat", {"Idempotency-Key": "a"}
        told = []
        for _ in range(2):
            with client.stream("POST", path, json={"text": "look"}, headers=headers) as stream:
                told.append(list(events(stream)))
            wait_until(lambda: not served.identities.at_work)  # who comes before is told of the first as it happened
        assert told[0][-1] == told[1][-1]
        assert told[1] == [("text", {"text": "nothing found"}), told[0][-1]]
        body = {"model": "ada", "session_id": session, "messages": [MESSAGE], "stream": True}
        body["stream_options"] = {"include_usage": True}
        whole = []
        for _ in range(2):
            with client.stream("POST", "/v1/chat/completions", json=body, headers={"Idempotency-Key": "b"}) as stream:
                whole.append([data for _, data in events(stream)])
        assert whole[0][-2:] == whole[1][-2:]
        assert whole[0][-2]["usage"] == whole[1][-2]["usage"]


@pytest.mark.parametrize("how", ["delete", "take back"])
def test_what_was_erased_meanwhile_is_not_told_again(client: httpx.Client, how: str) -> None:
    session = _post(client, "/v1/sessions", "s", title="about plugh").json()["id"]
    path = f"/v1/sessions/{session}/chat"
    assert "plugh" in _post(client, path, "a", text="plugh", stream=False).text
    assert client.delete(f"/v1/sessions/{session}{'' if how == 'delete' else '/messages'}").is_success
    answers = [_post(client, path, "a", text="plugh", stream=False)]
    if how == "delete":
        answers.append(_post(client, "/v1/sessions", "s", title="about plugh"))
    else:
        client.post(path, json={"text": "plugh", "stream": False})
        answers.append(_post(client, path, "a", text="plugh", stream=False))
    for answer in answers:
        assert answer.status_code in {404, 409}
        assert "plugh" not in answer.text
        assert "idempotency-replayed" not in answer.headers
    task = _post(client, "/v1/tasks", "t", title="xyzzy").json()["id"]
    client.delete(f"/v1/memories/{task}", params={"purge": True})
    gone = _post(client, "/v1/tasks", "t", title="xyzzy")
    assert (gone.status_code, "xyzzy" in gone.text) == (404, False)


@pytest.mark.parametrize("path", ["/v1/sessions/{}/chat", "/v1/chat/completions"])
def test_a_reply_that_could_not_be_stored_is_an_error_the_next_time(http: Serve, path: str) -> None:
    async def unkept() -> AsyncIterator[Delta]:
        kept.rename(kept.with_suffix(".aside"))
        kept.mkdir()  # in the place of the transcript, which then takes no reply
        yield TextDelta("the plugh is behind the barometer")

    served = http([unkept])
    with served.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        [kept] = Path().glob(f"**/{session}")
        kept /= "transcript.md"
        body: dict[str, Any] = {"model": "ada", "session_id": session, "messages": [MESSAGE]}
        body = {"text": "Where is it?"} if "{}" in path else body
        first = _post(client, path.format(session), "a", stream=False, **body)
        assert first.is_success
        assert "behind the barometer" in first.text
        assert "could not be saved" in first.text
        kept.rmdir()
        kept.with_suffix(".aside").rename(kept)
        again = _post(client, path.format(session), "a", stream=False, **body)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "idempotency_answer_gone")
        assert "check the session's messages" in again.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/sessions/{}/chat", "/v1/chat/completions"])
def test_what_a_failed_stream_told_of_a_session_is_not_told_again_once_that_is_erased(http: Serve, path: str) -> None:
    served = http([[TextDelta("the plugh is behind the barometer"), ProviderFailed("down")]])
    with served.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        body: dict[str, Any] = {"model": "ada", "session_id": session, "messages": [MESSAGE]}
        body = {"text": "Where is it?"} if "{}" in path else body
        first = _post(client, path.format(session), "a", stream=True, **body)
        assert "plugh" in first.text
        assert "error" in first.text
        assert client.delete(f"/v1/sessions/{session}").is_success
        assert "plugh" not in _post(client, path.format(session), "a", stream=True, **body).text


@pytest.mark.parametrize(
    ("path", "said"),
    [("chat/completions", {"messages": [MESSAGE]}), ("responses", {"input": "The ferry leaves at nine"})],
)
def test_a_reply_that_is_kept_nowhere_is_told_again_by_the_same_server_alone(path: str, said: dict[str, Any]) -> None:
    path, body = f"/v1/{path}", {"model": "ada", **said}
    with serving() as served, served.client() as client:
        first, second = (_post(client, path, "a", **body) for _ in range(2))
        assert first.content == second.content
        assert second.headers["idempotency-replayed"] == "true"
    with serving() as served, served.client() as client:
        gone = _post(client, path, "a", **body)
        assert (gone.status_code, gone.json()["error"]["code"]) == (409, "idempotency_answer_gone")


def test_a_key_that_another_caller_used_tells_nothing(served: Served) -> None:
    with served.client(served.token("ada")) as ada, served.client(served.token("grace")) as grace:
        session = _post(ada, "/v1/sessions", "shared", title="plugh").json()["id"]
        path = f"/v1/sessions/{session}/chat"
        _post(ada, path, "turn", text="plugh", stream=False)
        other = _post(grace, path, "turn", text="plugh", stream=False)
        never = _post(grace, path, "never", text="plugh", stream=False)
        assert (other.status_code, other.content) == (never.status_code, never.content)
        assert _post(grace, "/v1/sessions", "shared", title="plugh").json()["id"] != session


def test_request_records_are_bounded_expire_and_survive_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_requests, "MOST_KEPT", 20)
    now = [utc_now()]
    requests = EarlierRequests(tmp_path / "s", clock=lambda: now[0])
    requests.begin("a/me", "running", "r")
    requests.begin("a/me", "done", "r")
    requests.end("a/me", "done", 200)
    requests.begin("me", "running", "r")
    for n in range(100):
        assert requests.begin("me", str(n), "r") is None
        requests.end("me", str(n), 200, {"id": str(n)})
    [file] = (tmp_path / "s").glob("requests-*")
    assert len(json.loads(file.read_bytes())) == 20 + 3
    assert requests.begin("a/me", "done", "r") is not None
    assert all(requests.begin(caller, "running", "r") is not None for caller in ("me", "a/me"))
    other = EarlierRequests(tmp_path / "s", clock=lambda: now[0])
    known = other.begin("me", "99", "r")
    assert (getattr(known, "status", 0), getattr(known, "made", 0)) == (200, {"id": "99"})
    assert other.begin("me", "0", "r") is None
    assert getattr(requests.begin("me", "0", "r"), "status", 0) is None  # begun by another process
    other.end("me", "0", 502)
    assert requests.begin("me", "0", "r") is None
    assert other.begin("you", "99", "r") is None
    now[0] += timedelta(days=1, seconds=1)
    assert other.begin("me", "99", "r") is None
    file.write_bytes(b"{not json")
    assert requests.begin("me", "99", "r") is None
    assert other.begin("me", "99", "r") is not None


BREAKS = """
from chatbot.stores.errors import UnknownOutcome
from chatbot.stores.observations.store import ObservationFileStore

class Breaks(ObservationFileStore):
    async def commit(self, view, events):
        await super().commit(view, events)
        raise UnknownOutcome("the connection broke in a commit")
"""


@pytest.mark.usefixtures("config_is_asked_for")
def test_what_nobody_knows_the_outcome_of_is_not_done_again(http: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("breaking_commits.py").write_text(BREAKS, encoding="utf-8")
    served = http(config='[agents.chat]\nmemory = ["basic_session", "breaking_commits:Breaks"]\n')
    with served.client() as client:
        answers = [_post(client, "/v1/memories", "a", title="The ferry leaves at nine") for _ in range(3)]
        codes = [(each.status_code, each.json()["error"]["code"]) for each in answers]
        assert codes == [(503, "outcome_unknown"), (409, "idempotency_cut_off"), (409, "idempotency_cut_off")]
        [row] = client.get("/v1/memories").json()["data"]
        assert row["mention_count"] == 0
        monkeypatch.setattr(EarlierRequests, "end", _away)
        assert [_post(client, "/v1/sessions", "b").status_code for _ in range(2)] == [201, 409]


def _away(*_: object) -> None:
    raise StoreAway("no PostgreSQL answers there")


def test_work_that_goes_on_without_a_client_ends_with_the_server(http: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATBOT_SERVER__SHUTDOWN_S", "1")
    served = http(["word " * 100_000], delay_s=0.01)
    with served.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        path, headers = f"/v1/sessions/{session}/chat", {"Idempotency-Key": "a"}
        with client.stream("POST", path, json={"text": "hello"}, headers=headers) as lost:
            next(events(lost))
    wait_until(lambda: served.identities.at_work)
