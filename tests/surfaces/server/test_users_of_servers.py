"""Two users of one token never meet, whatever one of them sends, and whichever of two servers answers."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.command import from_json, project
from tests.patience import PATIENCE_S
from tests.servers.http_server import events
from tests.servers.server_process import ServerProcess
from tests.surfaces.server.test_doors import ASKED, NAMING, QUERIES, address, filled, nowhere

pytest_plugins = ["tests.servers.openai_server"]
pytestmark = pytest.mark.nightly

SECRET = "plugh07xyzzy"
SAID = f"The word of the garden gate is {SECRET}, I decided that with Maria"
QUESTION = "What is the word of the garden gate?"
KEY = {"Idempotency-Key": "one for all"}
OTHER_KEY = {"Idempotency-Key": "another for all"}
CONFIG = """
[model]
name = "openai/echoes"
[embedding]
model = ""
[providers.openai]
api_key = "x"
api_base = "{}"
"""


class Door:
    """One user's way in: requests go to the servers in turn."""

    def __init__(self, servers: list[httpx.Client], token: str, user: str) -> None:
        self._servers = cycle(servers)
        self._headers = {"Authorization": f"Bearer {token}", "X-Chatbot-User": user}

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> httpx.Response:
        return next(self._servers).request(method, path, json=body, headers={**self._headers, **(headers or {})})

    def make(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        answer = self.ask("PUT" if "by-key" in path else "POST", path, body, headers)
        assert answer.is_success, answer.text
        return answer.json()

    @property
    def headers(self) -> dict[str, str]:
        return self._headers


def test_users_of_one_token_never_meet_through_either_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openai_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    project(CONFIG.format(openai_url), "ada", "grace")
    with Path("identities/grace/identity.toml").open("a", encoding="utf-8") as file:
        file.write('\n[model]\nname = "openai/stalls-later"\n')
    opened = "--for ada --for grace --clearance full --rights all --memory on --rate 100000"
    token = from_json("token", "add", "shop", *opened.split(), "--config", "config.toml")["token"]
    with ExitStack() as stack:
        processes = [ServerProcess(tmp_path, tmp_path / f"cache-{number}") for number in range(2)]
        for each in processes:
            stack.callback(each.kill)
        servers = [stack.enter_context(httpx.Client(base_url=each.url, timeout=PATIENCE_S)) for each in processes]
        alice = Door(servers, token, "alice")
        hers = _fill(alice)
        turn = alice.make("/v1/sessions?identity=grace", {})["id"]
        running = f"/v1/sessions/{turn}/chat?identity=grace"
        with servers[0].stream("POST", running, json={"text": SAID}, headers=alice.headers) as response:
            next(events(response))
            for server in servers:
                bob = Door([server], token, "bob")
                for method in ("GET", "POST", "DELETE"):
                    answer = bob.ask(method, running, {"text": "hi"} if method == "POST" else None)
                    assert (answer.status_code, SECRET in answer.text) == (404, False)
                _try_all(bob, hers)
            assert alice.ask("DELETE", running).json()["stopped"] == 1
        assert SAID in alice.ask("GET", f"/v1/sessions/{hers['session']}/messages").text
        assert alice.ask("GET", "/v1/memories/by-key/gate").json()["title"] == SAID
        assert len(alice.ask("GET", f"/v1/sessions/{hers['session']}/messages").json()["data"]) == hers["messages"]
    with httpx.Client() as client:
        prompts = client.get(f"{openai_url}/requests").json()
    told = [json.dumps(each["body"]) for each in prompts]
    assert sum(QUESTION in each for each in told) > 0
    assert [each for each in told if "I am Bob" in each and SECRET in each] == []


def _fill(alice: Door) -> dict[str, Any]:
    """Say and keep something in each way there is; return the ids of it."""
    first = alice.make("/v1/chat/completions", {"model": "ada", "messages": [_user(SAID)]}, KEY)
    response = alice.make("/v1/responses", {"model": "ada", "input": SAID})
    kept = alice.make("/v1/memories", {"title": SAID, "people": [f"Maria {SECRET}"]}, OTHER_KEY)
    alice.make("/v1/memories/by-key/gate", {"title": SAID})
    alice.make("/v1/facts", {"subject": "gate", "predicate": "opens with", "object": SECRET})
    alice.make("/v1/tasks", {"title": f"Change {SECRET}", "surface": "startup"})
    messages = alice.ask("GET", f"/v1/sessions/{first['session_id']}/messages").json()["data"]
    history = [_user(SAID), {"role": "assistant", "content": first["choices"][0]["message"]["content"]}]
    return {
        "session": first["session_id"],
        "response": response["id"],
        "memory": kept["id"],
        "messages": len(messages),
        "history": history,
    }


def _try_all(bob: Door, hers: dict[str, Any]) -> None:
    for method, path, body, headers in _named(hers):
        answer = bob.ask(method, path, body, headers)
        assert answer.status_code in {400, 404, 409, 422}, (method, path, body, headers, answer.text)
        assert SECRET not in answer.text, (method, path, body, headers)
    for method, path, body, headers in _unnamed(hers):
        answer = bob.ask(method, path, body, headers)
        assert answer.is_success or answer.status_code in {404, 409}, (method, path, answer.text)
        assert SECRET not in answer.text, (method, path, answer.text)
        assert hers["memory"] not in answer.text, (method, path, answer.text)
    body = {"model": "ada", "messages": [*hers["history"], _user("And now?")]}
    answer = bob.ask("POST", "/v1/chat/completions", body)
    assert answer.json()["session_id"] != hers["session"]


def _named(hers: dict[str, Any]) -> Iterator[tuple[str, str, Any, dict[str, str]]]:
    """Requests that name something of the other user."""
    session, memory = hers["session"], hers["memory"]
    said = {"model": "ada", "messages": [_user(f"I am Bob. {QUESTION}")]}
    told = {"model": "ada", "input": f"I am Bob. {QUESTION}"}
    for ways in ({}, {"store": False}, {"stream": True}):
        yield "POST", "/v1/chat/completions", {**said, **ways, "session_id": session}, {}
        yield "POST", "/v1/chat/completions", {**said, **ways, "conversation": session}, {}
        yield "POST", "/v1/chat/completions", {**said, **ways}, {"X-Chatbot-Session": session}
        yield "POST", "/v1/chat/completions", {**said, **ways, "previous_response_id": hers["response"]}, {}
        yield "POST", "/v1/responses", {**told, **ways, "conversation": {"id": session}}, {}
        yield "POST", "/v1/responses", {**told, **ways, "previous_response_id": hers["response"]}, {}
        yield "POST", "/v1/chat/completions", {**said, **ways, "user": "alice"}, {}
    yield "POST", f"/v1/sessions/{session}/chat", {"text": "I am Bob."}, KEY
    yield "DELETE", f"/v1/memories/{memory}?purge=true", None, {}
    ids = {"session_id": session, "memory_id": memory, "other_id": memory, "response": hers["response"]}
    ids = nowhere("session.json") | ids
    for method, path in NAMING:
        asked = "&".join(f"{name}={value}" for name, value in QUERIES.get((method, path), {}).items())
        yield method, address(f"{path}?{asked}", ids), filled(ASKED[method, path], ids), {}


def _unnamed(hers: dict[str, Any]) -> Iterator[tuple[str, str, Any, dict[str, str]]]:
    """Requests that could meet something of the other user by chance."""
    asked = {"model": "ada", "messages": [_user(f"I am Bob. {QUESTION}")]}
    yield "POST", "/v1/chat/completions", asked, KEY
    yield "POST", "/v1/chat/completions", asked, {"X-Chatbot-Session": "new"}
    yield "POST", "/v1/responses", {"model": "ada", "input": f"I am Bob. {QUESTION}"}, {}
    yield "POST", "/v1/memories", {"title": "Bob likes tea"}, OTHER_KEY
    yield "GET", "/v1/memories/by-key/gate", None, {}
    lists = ("sessions", "memories", "people", "facts", "tasks", "profile", "memories/export", "usage")
    for name in lists:
        yield "GET", f"/v1/{name}", None, {}
    yield "GET", "/v1/sessions/search?q=garden", None, {}
    yield "GET", "/v1/memories/search?q=garden", None, {}
    yield "GET", f"/v1/memories/recall?q={QUESTION}", None, {}
    yield "POST", "/v1/context", {"messages": asked["messages"]}, {}
    yield "POST", "/v1/memories/purge", {"session_id": hers["session"]}, {}
    yield "POST", f"/v1/sessions/{hers['session']}/messages", {"messages": [_user("I am Bob.")]}, {}


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
