"""Requests too large, too slow, broken, or beyond a daily quota are refused, and harm nobody else."""

import base64
import json
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from msgspec.structs import replace

from chatbot.chat.calls import Calls
from chatbot.chat.ledger import NO_QUOTA, Ledger, Quota
from chatbot.config import BudgetSettings
from chatbot.errors import BudgetExceeded
from chatbot.messages import Message
from chatbot.models import ScriptedModel
from chatbot.server.callers import Accounts, Grant, ServerCaller
from chatbot.stores.access import GUEST_RIGHTS, Right
from tests.patience import PATIENCE_S
from tests.servers.http_server import Serve, Served, serving, wait_until


def _raw(served: Served, *sent: bytes) -> list[bytes]:
    """Send bytes, each of these over a connection of its own, and read what comes until the server hangs up."""
    with ExitStack() as stack:
        connections = []
        for data in sent:
            connections.append(stack.enter_context(socket.create_connection(served.address, timeout=PATIENCE_S)))
            with suppress(ConnectionError):  # it may hang up before all is sent
                connections[-1].sendall(data)
        return [_rest(each) for each in connections]


def _rest(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received


@pytest.fixture
def small(http: Serve) -> Served:
    return http(config="[server]\nbody_kb = 4\nrequest_timeout_s = 0.5\n")


def test_a_body_that_is_too_large_is_refused_whether_its_length_is_told_or_not(small: Served) -> None:
    with small.client() as client:
        told = client.post("/v1/memories", json={"title": "x" * 5000})
        untold = client.post("/v1/memories", content=iter([b'{"title": "', b"x" * 5000, b'"}']),
                             headers={"Content-Type": "application/json"})  # fmt: skip
        for answer in (told, untold):
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert client.post("/v1/memories", json={"title": "x" * 500}).status_code == 201


def test_connections_above_the_limit_are_refused_and_those_below_it_are_served(http: Serve) -> None:
    served = http(config="[server]\nconnections = 2\n")
    with served.client() as first, ExitStack() as others:
        assert first.get("/v1/models").status_code == 200
        others.enter_context(socket.create_connection(served.address))
        with served.client() as surplus:
            refused = surplus.get("/v1/models")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
            assert {"retry-after", "x-request-id"} <= refused.headers.keys()
            assert surplus.get("/health").status_code == 200
            others.close()
            assert surplus.get("/v1/models").status_code == 200  # over the connection that was one too many
        assert first.get("/v1/models").status_code == 200


def _photo(kilobytes: int) -> dict[str, object]:
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(kilobytes * 1024)).decode()
    return {"text": "what is this?", "attachments": [{"name": "a.png", "data": f"data:image/png;base64,{data}"}]}


def test_files_have_a_bound_of_their_own_that_the_error_names(http: Serve) -> None:
    served = http(config="[server]\nbody_kb = 4\nattachments_kb = 40\n")
    with served.client() as client:
        chat = f"/v1/sessions/{client.post('/v1/sessions', json={}).json()['id']}/chat"
        assert client.post(chat, json=_photo(20)).status_code == 200
        large = client.post(chat, json=_photo(40))
        text = client.post(chat, json={"text": "data:;base64 " + "word " * 4_000})
        elsewhere = client.post("/v1/memories", json={"title": "x", "narrative": "data:;base64," + "a" * 20_000})
        assert [each.status_code for each in (large, text, elsewhere)] == [413] * 3
        assert "40,960 bytes of files" in large.json()["error"]["message"]
        assert "attachments_kb" not in text.json()["error"]["message"]


def test_few_bodies_with_files_are_held_at_once_and_no_wait_for_them_counts_as_slowness(http: Serve) -> None:
    served = http(config="[server]\nbody_kb = 4\nattachments_kb = 2000\nrequest_timeout_s = 1\n")
    with served.client() as client, ExitStack() as stack:
        chat = f"/v1/sessions/{client.post('/v1/sessions', json={}).json()['id']}/chat"
        head = f"POST {chat} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        started = time.monotonic()
        for _ in range(8):
            slow = stack.enter_context(socket.create_connection(served.address, timeout=PATIENCE_S))
            slow.sendall(f"{head}Content-Length: {1 << 20}\r\n\r\n".encode())
        assert client.delete(chat).is_success
        assert time.monotonic() - started < 2  # what brings no files waits for none
        chunks = iter([json.dumps(_photo(20)).encode()])
        assert client.post(chat, content=chunks, headers={"Content-Type": "application/json"}).status_code == 200
        assert time.monotonic() - started >= 2


def test_an_address_that_is_not_utf_8_is_refused_as_two_of_them_would_be_one_name(http: Serve) -> None:
    with http().client() as client:
        for address in (b"memories/by-key/caf%E9", b"profile/%ed%a0%80", b"users?user=%ff", b"by-key/%e2?q=%82%ac"):
            refused = client.get(httpx.URL(str(client.base_url)).copy_with(raw_path=b"/v1/" + address))
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_request")
        assert client.put("/v1/memories/by-key/caf%C3%A9", json={"narrative": "It is open."}).is_success


def test_a_head_of_more_than_32_kib_is_refused_however_it_is_made_up(small: Served) -> None:
    for size in (31 * 1024, 33 * 1024, 63 * 1024, 200 * 1024):
        head = "GET /{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n"
        requests = [head.format(f"health?x={'x' * size}", "")]
        for headers in (1, 50):
            filling = "".join(f"X-{number}: {'x' * (size // headers - 8)}\r\n" for number in range(headers))
            requests.append(head.format("v1/models", filling))
        for answer in _raw(small, *(request.encode() for request in requests)):
            assert answer.split(b" ")[1] == (b"400" if size > 32 * 1024 else b"200")
    with small.client() as client:
        assert client.get("/health").is_success


def test_a_client_that_sends_its_body_too_slowly_is_told_so(small: Served) -> None:
    head = b"POST /v1/memories HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: 99\r\n\r\n{"
    started = time.monotonic()
    assert b"408 " in _raw(small, head)[0].split(b"\r\n")[0]
    assert time.monotonic() - started < PATIENCE_S / 2


def test_half_a_message_of_a_client_that_left_is_not_answered() -> None:
    form = b"POST /i/ada/say HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    form += b"Content-Length: 999999\r\n\r\ntext=" + b"half+a+message+" * 10_000  # more than is read at once
    with serving() as served, socket.create_connection(served.address, timeout=PATIENCE_S) as connection:
        connection.sendall(form)
        connection.shutdown(socket.SHUT_WR)
        assert _rest(connection) == b""
    with serving() as served, served.client() as client:
        assert client.get("/v1/sessions").json()["data"] == []


def test_a_client_that_never_says_what_it_wants_is_left_also_after_an_answer(small: Served) -> None:
    begun = (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    assert _raw(small, *begun) == [b""] * 3
    with socket.create_connection(small.address, timeout=PATIENCE_S) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        connection.sendall(b"GET /hea")
        assert _rest(connection) == b""


def test_a_client_that_takes_nothing_of_a_stream_is_left_and_the_turn_goes_on(http: Serve) -> None:
    served = http([("w" * 65_536 + " ") * 75], config="[server]\nrequest_timeout_s = 0.5\n")
    with served.client() as client, socket.socket() as connection:
        session = client.post("/v1/sessions", json={}).json()["id"]
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE_S)
        connection.connect(served.address)
        body = b'{"text": "talk to me"}'
        head = f"POST /v1/sessions/{session}/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        path = f"/v1/sessions/{session}/receipts"
        wait_until(lambda: client.get(path).json()["data"])  # the turn has ended
        entries = client.get(f"/v1/sessions/{session}/messages").json()["data"]
        assert [each["role"] for each in entries] == ["user", "assistant"]
        time.sleep(1.0)  # twice the server's patience
        assert b"event: done" not in _rest(connection)


NO_REQUESTS = [
    b"\x00" * 100,
    b"GET\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%b"
    % b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",  # a second request, for those who use the other length
    b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\nConnection: close\r\n\r\n",
]


def test_what_is_no_request_harms_nobody(http: Serve) -> None:
    served = http(config="[server]\nrequest_timeout_s = 0.5\n", tokens=True)
    for answer in _raw(served, *NO_REQUESTS):
        assert answer == b"" or answer.split()[1] in {b"400", b"401", b"421"}
        assert answer.count(b"HTTP/1.1 ") < 2
    with served.client() as client:
        assert client.get("/health").is_success


def test_a_body_that_is_no_json_or_not_said_to_be_is_refused(small: Served) -> None:
    with small.client() as client:
        zipped = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        for headers in (
            zipped,
            {"Content-Type": "text/plain"},
            {"Content-Type": "multipart/form-data; boundary=x"},
            {},
        ):
            answer = client.post("/v1/sessions", content=b'{"title": "x"}', headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
        for body in (b"{", b"[]", b'"x"', b"\xff", b"[" * 3_000, b'{"title": "\\ud800"}', b'{"title": NaN}'):
            answer = client.post("/v1/sessions", content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_value"), body
            answer = client.post("/v1/responses", content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value"), body
        body = b'{"model": "ada", "messages": [{"role": "user", "content": "\\ud800"}]}'
        answer = client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages.0.content")
        assert client.get("/v1/sessions").json()["data"] == []


ASKED = [Message("user", "Which star is that?")]


@pytest.fixture
def served(http: Serve) -> Served:
    return http(["Castor."] * 20)


def _token(served: Served, quota: Quota = NO_QUOTA, user_quota: Quota = NO_QUOTA) -> str:
    rights: frozenset[Right] = GUEST_RIGHTS | {"curate"}
    grant = Grant(("ada",), "full", rights=rights, quota=quota, user_quota=user_quota)
    text, _ = served.identities.tokens.add("shop", grant)
    return text


def _ask(client: httpx.Client, user: str | None = None) -> httpx.Response:
    headers = {} if user is None else {"X-Chatbot-User": user}
    body = {"model": "ada", "messages": [{"role": "user", "content": "Which star is that?"}], "max_tokens": 20}
    return client.post("/v1/chat/completions", json=body, headers=headers)


def test_a_token_beyond_its_quota_is_told_when_it_is_free_again(served: Served) -> None:
    text = _token(served, quota=Quota(day_tokens=200))
    with served.client(text) as client:
        answers = [_ask(client) for _ in range(12)]
        assert [answers[0].status_code, answers[-1].status_code] == [200, 429]
        error = answers[-1].json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "quota_exceeded")
        assert "daily limit of this token = 200 tokens" in error["message"]
        assert "it resets at" in error["message"]
        assert 0 < int(answers[-1].headers["retry-after"]) <= 24 * 3600
        usage = client.get("/v1/usage").json()
        assert usage["user"] is None
        assert usage["token"]["day_tokens"] == 200
        assert 0 < usage["token"]["spent_tokens"] <= 200
        assert usage["token"]["calls_of_unknown_cost"] == 0
    asked: Any = [{"role": "user", "content": "Which star is that? " * 50}]
    official = openai.OpenAI(base_url=f"{served.url}/v1", api_key=text)
    with official, pytest.raises(openai.APIStatusError, match="exceeds the whole limit") as refused:
        official.chat.completions.create(model="ada", messages=asked)
    assert refused.value.status_code == 402
    served.identities.tokens.update("shop", lambda token: replace(token, quota=Quota()))
    with served.client(text) as client:
        assert _ask(client).status_code == 200


def test_each_user_has_a_quota_and_one_of_their_own_beats_it(served: Served) -> None:
    with served.client(_token(served, user_quota=Quota(day_tokens=150))) as client:
        while _ask(client, "alice").status_code == 200:
            pass
        assert "daily limit of this user = 150 tokens" in _ask(client, "alice").json()["error"]["message"]
        assert _ask(client, "bob").status_code == 200
        assert _ask(client).status_code == 200
        given = client.put("/v1/users/quota?user=alice", json={"day_tokens": 5000}).json()
        assert (given["day_tokens"], given["spent_usd"], given["calls_of_unknown_cost"]) == (5000, 0, 0)
        assert _ask(client, "alice").status_code == 200
        assert client.get("/v1/usage", headers={"X-Chatbot-User": "alice"}).json()["user"]["day_tokens"] == 5000
        assert client.delete("/v1/users/quota?user=alice").json()["day_tokens"] == 150
        assert _ask(client, "alice").status_code == 429
        (quotas := Path("identities/.server/quotas.json")).write_text(later := '{"version": 2, "users": {}}')
        refused = client.put("/v1/users/quota?user=alice", json={"day_tokens": 1})
        assert (refused.status_code, quotas.read_text()) == (500, later)
    guest = served.token("ada", rights=["read", "chat", "write"])
    with served.client(guest) as client:
        assert client.put("/v1/users/quota?user=alice", json={"day_tokens": 1}).status_code == 403
        assert client.get("/v1/users/quota?user=alice").status_code == 403
    server = Path("identities/.server")
    assert b"alice" not in b"".join(each.read_bytes() for each in server.glob("*") if each.is_file())


async def test_a_refusal_of_one_payer_leaves_nothing_reserved_at_the_other(tmp_path: Path) -> None:
    caller = ServerCaller(
        token="tk_1", quota=Quota(day_tokens=1000), user="a", namespace="user:a", user_quota=Quota(0, 1)
    )
    payers = Accounts(tmp_path).payers(caller)
    calls = Calls(ScriptedModel([]), Ledger(tmp_path / "ada"), BudgetSettings(), reply_tokens=50, payers=payers)
    with pytest.raises(BudgetExceeded, match="of this user"):
        await calls.ask("answer", ASKED)
    assert json.loads((tmp_path / "reservations.json").read_text())["reservations"] == []
