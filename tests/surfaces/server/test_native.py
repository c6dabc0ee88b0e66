"""Our own routes: sessions, conversations, and what is remembered."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from chatbot.hooks import Hook
from chatbot.messages import TextDelta, ToolCall
from chatbot.stores.access import Clearance
from tests.patience import PATIENCE_S
from tests.servers.http_server import Serve, Served, events, wait_until
from tests.surfaces.server.test_access_checks import served_in

NOBODY = "0196d5e4-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that is only asked what it refuses."""
    with served_in(tmp_path_factory, tokens=False) as served:
        yield served


@pytest.fixture(scope="module")
def said(refusing: Served) -> str:
    """A session there in which something was said."""
    with refusing.client() as client:
        session_id = _session(client)
        _say(client, session_id, "My sister Maria likes chess.")
        return session_id


def _session(client: httpx.Client, **given: str) -> str:
    response = client.post("/v1/sessions", json=given)
    assert response.status_code == 201
    session_id: str = response.json()["id"]
    return session_id


def _say(client: httpx.Client, session_id: str, text: str) -> dict[str, Any]:
    response = client.post(f"/v1/sessions/{session_id}/chat", json={"text": text, "stream": False})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def _pages(client: httpx.Client, path: str, key: str = "id", **params: Any) -> list[Any]:
    found, cursor = [], None
    while True:
        page = client.get(path, params={**params, **({"cursor": cursor} if cursor else {})}).json()
        assert len(page["data"]) <= params["limit"]
        found += [each[key] for each in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def test_messages_are_read_from_the_end_in_pages(client: httpx.Client) -> None:
    session_id = _session(client)
    for number in range(4):
        _say(client, session_id, f"number {number}")
    path = f"/v1/sessions/{session_id}/messages"
    last = client.get(path, params={"limit": 3}).json()
    assert [each["content"] for each in last["data"]] == ["You said: number 2", "number 3", "You said: number 3"]
    _say(client, session_id, "one more")
    before = client.get(path, params={"limit": 3, "cursor": last["next_cursor"]}).json()
    assert [each["content"] for each in before["data"]] == ["number 1", "You said: number 1", "number 2"]
    first = client.get(path, params={"limit": 3, "cursor": before["next_cursor"]}).json()
    assert [each["content"] for each in first["data"]] == ["number 0", "You said: number 0"]
    assert first["next_cursor"] is None


@pytest.mark.parametrize("path", ["sessions", "sessions/{}/messages", "sessions/{}/receipts", "memories", "people"])
def test_a_cursor_that_leads_nowhere_is_an_error(refusing: Served, said: str, path: str) -> None:
    with refusing.client() as client:
        for cursor in ("x", "99999999", NOBODY, f"1767225600000000~{NOBODY}", "~", "\x00"):
            response = client.get(f"/v1/{path.format(said)}", params={"cursor": cursor})
            assert response.status_code in {404, 422}, cursor
            assert response.json()["error"]["code"]


def test_what_a_search_finds_comes_in_pages(client: httpx.Client) -> None:
    for number in range(7):
        client.post("/v1/memories", json={"title": f"An orchard with {number} trees"})
        _say(client, _session(client), f"Let us plant an orchard with {number} trees")
    memories = _pages(client, "/v1/memories/search", "memory", q="orchard plant", limit=3)
    assert len({memory["id"] for memory in memories}) == len(memories) == 14
    sessions = _pages(client, "/v1/sessions/search", "session", q="orchard plant", limit=3)
    assert len({session["id"] for session in sessions}) == len(sessions) == 7
    assert len(client.get("/v1/memories/search", params={"q": "orchard", "limit": 0}).json()["data"]) == 10


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"nosuch": "1"}, "nosuch"), ({"limt": "5"}, "limt"), ({"limit": "5.0"}, "limit"), ({"limit": " 5"}, "limit"),
        ({"after": "0.5"}, "after"), ({"after": "1700000000"}, "after"), ({"count_use": "yes"}, "count_use"),
        ({"type": "nonsense"}, "type.0"),
    ],
)  # fmt: skip
def test_an_unknown_or_miswritten_parameter_is_refused(refusing: Served, query: dict[str, str], param: str) -> None:
    with refusing.client() as client:
        answer = client.get("/v1/memories/search", params=query)
        assert (answer.status_code, answer.json()["error"]["param"]) == (422, param)
        assert answer.json()["error"]["message"].startswith(param)


def test_a_body_that_cannot_be_used_is_refused_in_plain_words(refusing: Served) -> None:
    with refusing.client(**{"content-type": "application/json"}) as client:
        for body, words in (
            ("{bad", "the body is not valid JSON: expecting property name"),
            ("[]", "a JSON object is required"),
            ('{"titel": "x"}', "titel: unknown field: /openapi.json lists those of each route"),
            ('{"title": "x", "expires_at": 5}', "expires_at: a time must be text, such as 2026-01-31"),
        ):
            answer = client.post("/v1/memories", content=body)
            assert (answer.status_code, words in answer.json()["error"]["message"]) == (422, True)


def test_a_turn_is_streamed_as_it_happens_with_its_tools(http: Serve) -> None:
    call = ToolCall("call_a", "memory_write", '{"title": "The cat is called Luna"}')
    served = http([[TextDelta("One moment. "), call], "Done."])
    with served.client() as client:
        session_id = _session(client)
        path = f"/v1/sessions/{session_id}/chat"
        with client.stream("POST", path, json={"text": "Remember the cat."}) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            told = list(events(response, phases=True))
        assert {data["text"] for name, data in told if name == "phase"} == {"recalling", "waiting for scripted"}
        told = [each for each in told if each[0] != "phase"]
        assert [name for name, _ in told] == ["text", "tool", "tool_result", "text", "done"]
        assert told[1][1]["name"] == "memory_write"
        assert told[2][1]["is_error"] is False
        assert told[-1][1]["reply"] == "Done."
        assert told[-1][1]["receipt"]["finish"] == "stop"
        hits = client.get("/v1/memories/search", params={"q": "cat"}).json()["data"]
        assert any("Luna" in hit["memory"]["title"] for hit in hits)


DELICATE = """
from chatbot.messages import ToolSpec
from chatbot.tools import Tool

class Wipe(Tool):
    spec = ToolSpec("wipe", "Wipe the board.")
    asks_first = True
    async def run(self, arguments):
        return "wiped"

wipe = Wipe()
"""


@pytest.mark.usefixtures("config_is_asked_for")
@pytest.mark.parametrize(
    ("listed", "told"),
    [("", "needs the user's consent, which HTTP"), ('"wiped"', "which has 'wiped'"), ('"wipe"', "wiped")],
)
def test_a_tool_that_needs_consent_runs_only_where_the_owner_listed_it(http: Serve, listed: str, told: str) -> None:
    Path("delicate_tools.py").write_text(DELICATE, encoding="utf-8")
    config = '[agents.chat]\nmemory = ["basic_session"]\ntools = ["delicate_tools:wipe"]\n[server]\n'
    served = http([ToolCall("c", "wipe", "{}"), "done"], config=f"{config}unasked_tools = [{listed}]\n")
    with served.client() as client:
        path = f"/v1/sessions/{_session(client)}/chat"
        with client.stream("POST", path, json={"text": "Wipe it"}) as stream:
            found = list(events(stream))
        [result] = [data for name, data in found if name == "tool_result"]
        notices = [data["text"] for name, data in found if name == "notice"]
        is_refused = listed != '"wipe"'
        assert any("list it in [server] unasked_tools" in each for each in notices) is is_refused
        assert told in result["content"]
        assert result["is_error"] is is_refused


def test_a_client_that_leaves_mid_stream_stops_no_turn_and_another_can_listen(http: Serve) -> None:
    served = http(["word " * 200], delay_s=0.005)
    with served.client() as client:
        session_id = _session(client)
        path = f"/v1/sessions/{session_id}/chat"
        with client.stream("POST", path, json={"text": "talk to me"}) as response:
            next(events(response))
        with client.stream("GET", path) as response:
            assert response.status_code == 200
            told = list(events(response))
        assert "".join(data["text"] for name, data in told if name == "text") == "word " * 200
        assert told[-1][0] == "done"
        entries = client.get(f"/v1/sessions/{session_id}/messages").json()["data"]
        assert [each["role"] for each in entries] == ["user", "assistant"]
        assert entries[1]["content"].strip() == ("word " * 200).strip()
        assert len(client.get(f"/v1/sessions/{session_id}/receipts").json()["data"]) == 1
        assert client.get(path).status_code == 204


def test_a_turn_can_be_stopped_and_what_was_said_is_kept(http: Serve) -> None:
    served = http(["word " * 2000], delay_s=0.005)
    with served.client() as client:
        session_id = _session(client)
        path = f"/v1/sessions/{session_id}/chat"
        with client.stream("POST", path, json={"text": "talk"}) as response:
            told = events(response)
            assert next(told)[0] == "text"
            with served.client() as other:
                assert other.delete(path).json() == {"stopped": 1}
            name, data = list(told)[-1]
        assert (name, data["error"]["code"]) == ("error", "turn_stopped")
        said = client.get(f"/v1/sessions/{session_id}/messages").json()["data"][1]
        assert said["role"] == "assistant"
        assert said["content"].startswith("word")
        assert client.delete(path).json() == {"stopped": 0}


def test_receipts_and_usage_of_a_session(client: httpx.Client) -> None:
    session_id = _session(client)
    for number in range(3):
        _say(client, session_id, f"number {number}")
    turns = _pages(client, f"/v1/sessions/{session_id}/receipts", "turn", limit=2)
    assert turns == sorted(turns, reverse=True)
    assert len(turns) == 3
    assert client.get(f"/v1/sessions/{session_id}/usage").json()["by_purpose"]["chat"]["calls"] == 3


def test_the_files_of_a_session_can_be_had_and_no_others(client: httpx.Client) -> None:
    session_id = _session(client)
    _say(client, session_id, "hello there")
    path = f"/v1/sessions/{session_id}/files"
    assert {"session.json", "transcript.md"} <= {each["name"] for each in client.get(path).json()["data"]}
    got = client.get(f"{path}/transcript.md")
    assert b"hello there" in got.content
    assert got.headers["content-disposition"] == "attachment"
    for name in (".lock", "..%2fsession.json", "%2e%2e%2f%2e%2e%2fusage.jsonl", "nothing", "a%00b"):
        assert client.get(f"{path}/{name}").status_code == 404, name


def test_an_attachment_is_kept_and_downloaded_and_never_opened(client: httpx.Client) -> None:
    page = base64.b64encode(b"<script>alert(1)</script>").decode()
    files = [{"name": "../page.html", "data": f"data:text/html;base64,{page}"}]
    session_id = _session(client)
    said = client.post(f"/v1/sessions/{session_id}/chat", json={"text": "read", "stream": False, "attachments": files})
    [told] = said.json()["receipt"]["attachments"]
    assert told["name"] == "page.html"
    path = f"/v1/sessions/{session_id}/attachments"
    assert [each["name"] for each in client.get(path).json()["data"]] == [told["blob"]]
    got = client.get(f"{path}/{told['blob']}")
    assert got.content == b"<script>alert(1)</script>"
    assert got.headers["content-type"].startswith("text/plain")
    assert got.headers["content-disposition"] == "attachment"
    assert got.headers["x-content-type-options"] == "nosniff"
    for name in ("..%2fsession.json", "session.json", "0" * 32, "0" * 32 + ".html"):
        assert client.get(f"{path}/{name}").status_code == 404, name
    for data, why in (("data:image/png;base64,!!", "a: "), ("https://example.org", "it must match ^data:")):
        bad = {"text": "x", "stream": False, "attachments": [{"name": "a", "data": data}]}
        answer = client.post(f"/v1/sessions/{session_id}/chat", json=bad)
        assert (answer.status_code, why in answer.text) == (422, True), answer.text


def test_memories_come_in_pages_and_can_be_narrowed_down(client: httpx.Client) -> None:
    made = [
        client.post("/v1/memories", json={"title": f"Thing {number}", "tags": ["odd" if number % 2 else "even"]})
        for number in range(7)
    ]
    ids = [each.json()["id"] for each in made][::-1]
    assert _pages(client, "/v1/memories", limit=3, order="created") == ids
    assert _pages(client, "/v1/memories", limit=2, tag="odd", order="created") == ids[1::2]


def test_delicate_memories_are_shown_to_who_asks_and_secrets_are_taken_out(client: httpx.Client) -> None:
    told = client.post("/v1/memories", json={"title": "The password: hunter2!x opens the shed"}).json()
    assert (bool(told["redacted"]), "hunter2" in client.get(f"/v1/memories/{told['id']}").text) == (True, False)
    added = client.post("/v1/memories", json={"title": "The diagnosis is secret", "sensitivity": "secret"}).json()
    path = f"/v1/memories/{added['id']}"
    assert client.get(path).status_code == 404
    assert client.get(path, params={"sensitivity": "secret"}).status_code == 200
    assert len(client.get("/v1/memories").json()["data"]) == 1
    assert len(client.get("/v1/memories", params={"sensitivity": ["secret", "private"]}).json()["data"]) == 2


@pytest.mark.parametrize("clearance", ["familiar", "full"])
def test_a_caller_hears_what_fails_and_full_clearance_which_file_not_where(http: Serve, clearance: Clearance) -> None:
    calls = [ToolCall("c", "memory_search", '{"query": "tea"}')] if clearance == "full" else []
    served = http([*calls, "Green tea it is, from Uji."], tokens=True)
    with served.client(served.token("ada", clearance=clearance)) as client:
        session_id = _session(client)
        Path("identities/ada/memory/observations.jsonl").mkdir()
        with client.stream("POST", f"/v1/sessions/{session_id}/chat", json={"text": "Which tea do I like?"}) as stream:
            told = list(events(stream))
        notices = [data["text"] for name, data in told if name == "notice"]
        assert any("memory cannot be searched" in each for each in notices)
        receipts = client.get(f"/v1/sessions/{session_id}/receipts").json()["data"]
        assert receipts[0]["notices"] == notices
        files = [
            client.get(f"/v1/sessions/{session_id}/files/{name}").text for name in ("receipts.jsonl", "transcript.md")
        ]
        for kind in ("file", "attachment"):
            assert f"the session has no {kind} 'nope'" in client.get(f"/v1/sessions/{session_id}/{kind}s/nope").text
    answers = str([data["content"] for name, data in told if name == "tool_result"])
    for text in (str(notices), answers, f"{told}{receipts}{files}"):
        assert ("observations.jsonl" in text) is (clearance == "full")
    assert str(Path.cwd()) not in f"{told}{receipts}{files}"


def test_an_identity_that_was_removed_is_not_served_any_more(client: httpx.Client) -> None:
    assert client.get("/v1/sessions", params={"identity": "grace"}).is_success
    Path("identities/grace/identity.toml").unlink()
    assert client.get("/v1/sessions", params={"identity": "grace"}).status_code == 404


def test_an_agent_without_observations_says_so(http: Serve) -> None:
    with http(config='[agents.chat]\nmemory = ["basic_session"]\n').client() as client:
        error = client.get("/v1/memories").json()["error"]
    assert (error["code"], "memory = [" in error["message"]) == ("unsupported_operation", True)


def test_a_deleted_session_stops_its_turn_first(http: Serve) -> None:
    served = http(["word " * 5000], delay_s=0.005)
    with served.client() as client, served.client() as other:
        session_id = _session(client)
        path = f"/v1/sessions/{session_id}/chat"
        with client.stream("POST", path, json={"text": "talk"}) as response:
            told = events(response)
            next(told)
            assert other.delete(f"/v1/sessions/{session_id}").status_code == 204
            assert list(told)[-1][0] == "error"
        wait_until(lambda: other.get(f"/v1/sessions/{session_id}").status_code == 404)


class Late(Hook):
    """Remembers something after the turn, once it may."""

    topics = ("turn:end",)
    background = True
    begun, may_end = threading.Event(), threading.Event()

    async def handle(self, event: Any) -> None:
        self.begun.set()
        await asyncio.to_thread(self.may_end.wait, PATIENCE_S)
        await event.session.memory.remember("The session is about a heron")


class Last(Late):
    """Remembers something after the session, once it may."""

    topics = ("session:end",)
    begun, may_end = threading.Event(), threading.Event()


@pytest.mark.parametrize("hook", [Late, Last])
@pytest.mark.usefixtures("config_is_asked_for")
def test_nothing_of_a_deleted_session_is_remembered_later(http: Serve, hook: type[Late]) -> None:
    served = http(config=f'[hooks."{__name__}:{hook.__name__}"]\n')
    with served.client() as client, served.client() as other, ThreadPoolExecutor() as pool:
        session_id = _session(client)
        _say(client, session_id, "hello there")
        if hook is Late:
            hook.begun.wait(PATIENCE_S)
        deleted = pool.submit(other.delete, f"/v1/sessions/{session_id}")
        hook.begun.wait(PATIENCE_S)
        looks = iter(range(200))
        wait_until(lambda: deleted.done() or (not served.identities._chats._chats and next(looks, None) is None))
        hook.may_end.set()
        assert deleted.result().status_code == 204
        wait_until(served.identities.runtimes._all["ada"].runtime.hooks.is_idle)
        assert client.get("/v1/memories").json()["data"] == []


def test_a_caller_who_may_not_chat_proposes_a_value_for_the_profile(served: Served) -> None:
    with served.client(served.token("ada", rights={"read", "write"}), **{"idempotency-key": "one"}) as client:
        answers = [client.put("/v1/profile/home", json={"value": "Rome"}).json() for _ in range(2)]
        known = client.get("/v1/profile").json()
        assert (known["data"], [each["id"] for each in known["proposals"]]) == ([], [answers[0]["id"]])
        assert (answers[0]["warning"][:13], answers[1]["id"]) == ("only proposed", answers[0]["id"])
