"""Twenty end users at once, through each door: none is told, shown or refused anything that another one said."""

import asyncio
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from socket import create_connection
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from chatbot.memory import MemorySystem
from chatbot.memory.scope import LONGEST_LABEL, check_namespace, user_namespace, user_of
from chatbot.memory.users_and_projects import erase_user
from chatbot.messages import Message, ToolCall
from chatbot.models import ScriptedModel
from chatbot.runtime import Runtime
from chatbot.stores.access import GUEST_RIGHTS
from chatbot.stores.errors import AccessDenied, InvalidValue
from chatbot.stores.fields import LONGEST_LINE
from tests.command import fails, from_json, ok, project, run
from tests.effort import NIGHTLY
from tests.patience import PATIENCE_S
from tests.servers.http_server import Serve, http, wait_until
from tests.servers.memory_server import listening
from tests.surfaces.test_mcp import call

__all__ = ["http"]

_EVERYONE = [
    *("alice", "Alice", "ALICE", "a/lice", "../alice", "user:alice", "owner", "null", "alice%2Fbob", "alice bob"),
    *("alice  bob", "#alice", "caf\u00e9", "cafe\u0301", "\u540d\u524d", "\uff41lice", "al\u200bice"),
    *("x" * 900, "x" * 899 + "y", "alice\u2028bob"),
]
"""Twenty, each of which something could take for another, for a path, or for nobody."""
LABELS = _EVERYONE if NIGHTLY else [_EVERYONE[number] for number in (0, 1, 4, 9, 10, 12, 13)]
MEMORY = Path("identities/ada/memory")
CONFIG = '[model]\nname = "scripted"\n'


def secret(number: int) -> str:
    """A word that only one user says."""
    return f"plugh{number:02}xyzzy"


SECRETS = [secret(number) for number in range(len(LABELS))]
ASKED = "What is the secret word of the garden gate?"


def said(number: int) -> str:
    return f"The secret word of the garden gate is {secret(number)}, I decided that with Maria"


def others_in(text: str, number: int | None = None) -> list[str]:
    """The secrets of others in a text."""
    own = None if number is None else secret(number)
    return [each for each in SECRETS if each in text and each != own]


def check_prompts(prompts: Sequence[Sequence[Message]]) -> int:
    """No prompt holds secrets of two users; how many hold one that was recalled for a question."""
    recalled = 0
    for prompt in prompts:
        text = "\n".join(message.content for message in prompt)
        found = {each for each in SECRETS if each in text}
        assert len(found) <= 1, found
        recalled += bool(found) and prompt[-1].content.endswith(ASKED)
    return recalled


@pytest.fixture(autouse=True)
def _identity() -> None:
    project(CONFIG, identity='persona = "You are ada."')


async def test_users_of_completions_and_of_the_native_routes_are_apart(http: Serve) -> None:
    served = http()
    sessions: list[str] = [""] * len(LABELS)

    async def play(client: httpx.AsyncClient, number: int) -> None:
        async def tell(path: str, body: dict[str, object], headers: dict[bytes, bytes]) -> Any:
            answer = await client.post(path, json=body, headers=headers)
            assert answer.is_success, answer.text
            assert others_in(answer.text, number) == []
            return answer

        named: dict[str, object] = {"model": "ada", ("user", "safety_identifier")[number % 2]: LABELS[number]}
        user = {b"X-Chatbot-User": LABELS[number].encode()}
        for text in (said(number), ASKED):
            body = {**named, "session_id": "new", "messages": [{"role": "user", "content": text}]}
            answer = await tell("/v1/chat/completions", body, {b"Idempotency-Key": f"key {text}".encode()})
            sessions[number] = answer.json()["session_id"]
            session = (await tell("/v1/sessions", {}, user)).json()["id"]
            await tell(f"/v1/sessions/{session}/chat", {"text": text, "stream": number % 2 == 0}, user)
        kept: dict[str, dict[str, object]] = {
            "memories": {"title": said(number), "people": [f"Maria {secret(number)}"]},
            "tasks": {"title": f"Change {secret(number)}", "surface": "startup"},
            "facts": {"subject": "gate", "predicate": "opens with", "object": secret(number)},
            "people": {"name": "Maria", "alias": secret(number)},
        }
        for kind, given in kept.items():
            await tell(f"/v1/{kind}", given, user | ({b"Idempotency-Key": b"one for all"} if kind == "tasks" else {}))

    async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
        await asyncio.gather(*(play(client, number) for number in range(len(LABELS))))
        assert check_prompts(served.models["ada"].prompts) == 2 * len(LABELS)
        before = len(served.models["ada"].prompts)
        for number, label in enumerate(LABELS):
            asked = [{"role": "user", "content": "And?"}]
            theirs = sessions[(number + 1) % len(LABELS)]
            body = {"model": "ada", "user": label, "session_id": theirs, "messages": asked}
            refused = await client.post("/v1/chat/completions", json=body)
            assert (refused.status_code, others_in(refused.text)) == (404, [])
        assert len(served.models["ada"].prompts) == before
        await _look_around(client)


PLACES = (
    *("/v1/memories", "/v1/memories/search?q=secret", "/v1/people", "/v1/tasks", "/v1/facts", "/v1/sessions"),
    *("/v1/sessions/search?q=secret", "/v1/users/export", "/i/ada", "/i/ada/memory?q=secret", "/i/ada/sessions"),
    *("/i/ada/people", "/i/ada/tasks", "/i/ada/cost"),
)


async def _look_around(client: httpx.AsyncClient) -> None:
    """Each user finds what they said, and nobody else's; whoever names no user finds nothing of them."""
    for number, label in enumerate(LABELS):
        headers = {b"X-Chatbot-User": label.encode()}
        params = {"/v1/users/export": {"user": label}}
        found = [(await client.get(place, headers=headers, params=params.get(place))).text for place in PLACES]
        for place, text in zip(PLACES, found, strict=True):
            assert others_in(text, number) == [], (label, place)
        assert secret(number) in found[PLACES.index("/v1/memories/search?q=secret")]
        assert secret(number) in found[PLACES.index("/v1/users/export")]
    for place in PLACES:
        assert others_in((await client.get(place)).text) == [], place
    listed = (await client.get("/v1/users")).json()["data"]
    assert sorted(each["user"] for each in listed if not each["user"].startswith("#")) == sorted(
        label for label in LABELS if len(label) < 100 and not label.startswith("#")
    )
    assert len(listed) == len(LABELS)
    alices = await client.get("/v1/users", headers={"X-Chatbot-User": "alice"})
    assert (alices.status_code, "Alice" in alices.text) == (403, False)


async def test_users_of_the_mcp_server_are_apart() -> None:
    async def play(url: str, number: int) -> None:
        async with (
            httpx2.AsyncClient(headers={b"X-Chatbot-User": LABELS[number].encode()}, timeout=PATIENCE_S) as own,
            Client(streamable_http_client(url, http_client=own), read_timeout_seconds=PATIENCE_S) as client,
        ):
            await call(client, "memory_write", title=said(number), related_people=[f"Maria {secret(number)}"])
            await call(client, "task_add", title=f"Change {secret(number)}")
            kept.append(number)
            if len(kept) == len(LABELS):
                everybody.set()
            await everybody.wait()
            for tool, asked in (
                ("memory_search", {"query": "secret word"}), ("memory_list", {}), ("memory_people", {}),
                ("memory_facts", {}), ("task_list", {}), ("session_search", {"query": "secret word"}),
            ):  # fmt: skip
                answer = json.dumps(await call(client, tool, **asked))
                assert others_in(answer, number) == [], tool
                assert tool not in {"memory_search", "task_list"} or secret(number) in answer
            resources = [resource.model_dump_json() for resource in (await client.list_resources()).resources]
            assert others_in("".join(resources), number) == []

    limits = f"[server]\nrequest_timeout_s = {PATIENCE_S}\nrate_per_minute = 0\n"
    Path("config.toml").write_text(CONFIG + limits, encoding="utf-8")
    kept: list[int] = []
    everybody = asyncio.Event()
    async with listening() as url:
        await asyncio.gather(*(play(url, number) for number in range(len(LABELS))))
        async with Client(url, read_timeout_seconds=60) as client:
            assert others_in(json.dumps(await call(client, "memory_list"))) == []


def test_each_label_has_a_namespace_of_its_own_that_can_be_kept() -> None:
    labels = [
        *_EVERYONE,
        *(" ", "  ", "a", "a ", "\ud800", "\n", "user%3Aalice", "~", ".", ".."),
        *("x" * length for length in (196, 200, LONGEST_LABEL)),
    ]
    spaces = [user_namespace(label) for label in labels]
    assert len({space.casefold() for space in spaces} - {"user:alice"}) == len(labels) - 3  # the three alices
    assert len(set(spaces)) == len(labels)
    for label, space in zip(labels, spaces, strict=True):
        assert check_namespace(space, LONGEST_LINE) == space
        assert MemorySystem(None).cleared_for(namespace=f"{'n' * 200}/{space}").caller.namespace.endswith(space)
        assert space.isascii()
        assert "/" not in space
        assert user_of(space) == label or len(label) > 200
        assert user_of(user_namespace(label, "shop")) == user_of(space)
    for wrong in ("", "x" * (LONGEST_LABEL + 1)):
        with pytest.raises(InvalidValue):
            user_namespace(wrong)
    for wrong in (" shop", "a\nb", "x" * 300):
        with pytest.raises(InvalidValue):
            check_namespace(wrong)


WRONG: list[tuple[dict[str, Any], dict[bytes, bytes]]] = [
    ({"user": ""}, {}), ({"user": "x" * 1001}, {}), ({"user": 5}, {}),
    ({"user": "alice", "safety_identifier": "bob"}, {}), ({"user": "alice"}, {b"X-Chatbot-User": b"bob"}),
    ({}, {b"X-Chatbot-User": b""}), ({}, {b"X-Chatbot-User": b"caf\xe9"}),
]  # fmt: skip


def test_a_request_names_one_user_or_is_refused(http: Serve) -> None:
    with http().client() as client:
        for body, headers in WRONG:
            asked = {"model": "ada", "session_id": "new", "messages": [{"role": "user", "content": "hi"}]}
            answer = client.post("/v1/chat/completions", json=asked | body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), answer.text
        assert client.get("/v1/sessions").json()["data"] == []


def test_a_token_may_require_a_user_so_that_no_memory_is_that_of_all(http: Serve) -> None:
    served = http(tokens=True)
    with served.client(served.token("ada", users="required", memory="on")) as client:
        body = {"model": "ada", "messages": [{"role": "user", "content": said(0)}]}
        refused = client.post("/v1/chat/completions", json=body)
        assert (refused.status_code, "name the user" in refused.text) == (400, True)
        for place in (*PLACES, "/v1/users", "/v1/backup"):
            answer = client.get(f"{place}?user=alice" if "export" in place else place)
            assert ("no data of the user 'alice'" in answer.text) is ("export" in place), place
            assert not answer.is_success
        assert client.get("/v1/models").is_success
        assert client.post("/v1/chat/completions", json=body | {"user": "alice"}).is_success
        assert said(0) in _memories(client, **{"X-Chatbot-User": "alice"})
        bob = {"X-Chatbot-User": "bob"}  # who uses the page, behind a proxy that sets both headers
        assert client.post("/i/ada/say", data={"text": said(1)}, headers=bob).status_code == 303
        wait_until(lambda: said(1) in client.get("/i/ada/memory", headers=bob).text)
        assert said(0) not in client.get("/i/ada/memory", headers=bob).text


def _say(client: httpx.Client, text: str, **named: str) -> httpx.Response:
    body = {"model": "ada", "session_id": "new", "messages": [{"role": "user", "content": text}], **named}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.is_success, answer.text
    return answer


def _memories(client: httpx.Client, **headers: str) -> str:
    return client.get("/v1/memories", headers=headers).text


def test_spaces_around_the_header_name_no_other_user(http: Serve) -> None:
    served = http()
    with served.client() as client:
        client.post("/v1/memories", json={"title": "tea"}, headers={"X-Chatbot-User": "alice"}).raise_for_status()
    head = b"GET /v1/memories HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Chatbot-User:"
    for value in (b"alice", b" alice", b"alice ", b"\t alice \t"):
        with create_connection(served.address) as raw:
            raw.sendall(head + value + b"\r\n\r\n")
            assert b'"tea"' in b"".join(iter(lambda: raw.recv(65_536), b""))


@pytest.mark.usefixtures("config_is_asked_for")
@pytest.mark.parametrize("by", ["token", "server"])
def test_users_share_one_memory_where_that_is_asked_for(http: Serve, by: str) -> None:
    config = CONFIG + ('[server]\nusers = "shared"\n' if by == "server" else "")
    served = http(config=config, tokens=by == "token")
    with served.client(served.token("ada", users="shared") if by == "token" else None) as client:
        _say(client, said(1), user="alice")
        assert secret(1) in _memories(client)
        assert secret(1) in _memories(client, **{"X-Chatbot-User": "bob"})
        assert client.get("/v1/users/export", params={"user": "alice"}).status_code == 409


def test_a_token_with_a_namespace_stays_in_it_whatever_a_request_says(http: Serve) -> None:
    served = http(tokens=True)
    shop, owner = served.token("ada", namespace="shop"), served.token("ada")
    with served.client(shop) as client:
        _say(client, said(1))
        _say(client, said(2), user="alice")
        assert (secret(1) in _memories(client), secret(2) in _memories(client)) == (True, False)
        for label in ("../", "..", "/", "user:alice", "owner", "shop"):
            assert others_in(_memories(client, **{"X-Chatbot-User": label})) == []
        assert [each["namespace"] for each in client.get("/v1/users").json()["data"]] == ["shop/user:alice"]
    with served.client(owner) as client:
        _say(client, said(3), user="alice")
        assert others_in(_memories(client)) == []
        assert others_in(_memories(client, **{"X-Chatbot-User": "alice"}), 3) == []
        listed = client.get("/v1/users").json()["data"]
        assert [each["namespace"] for each in listed] == ["shop", "shop/user:alice", "user:alice"]
        assert [(each["sessions"], each["used_at"] is None) for each in listed] == [(1, False)] * 3
    with served.client(shop) as client:
        assert secret(3) not in client.get("/v1/users/export", params={"user": "alice"}).text


def test_a_user_may_keep_and_change_their_own_with_the_rights_of_the_token(http: Serve) -> None:
    served = http(tokens=True)
    with served.client(served.token("ada", rights=GUEST_RIGHTS), **{"X-Chatbot-User": "alice"}) as client:
        row = client.post("/v1/memories", json={"title": "Tea at four"}).json()["id"]
        assert client.patch(f"/v1/memories/{row}", json={"title": "Tea at five"}).is_success
        assert client.delete("/v1/users", params={"user": "alice"}).status_code == 403
        assert client.delete("/v1/users", params={"user": "bob"}).status_code == 422
        assert client.get("/v1/users").status_code == 403


def _kept_of(number: int) -> list[str]:
    """The files that hold a user's secret."""
    files = [path for path in Path("identities").rglob("*") if path.is_file()]
    return [str(path) for path in files if secret(number).encode() in path.read_bytes()]


def test_one_user_is_exported_and_erased_and_the_others_stay(http: Serve) -> None:
    served = http()
    for number, label in enumerate(("alice", "bob")):
        with served.client(**{"X-Chatbot-User": label}) as client:
            session = client.post("/v1/sessions", json={"title": f"About {secret(number)}"}).json()["id"]
            file = {"name": "a.txt", "data": f"data:text/plain;base64,{b64encode(secret(number).encode()).decode()}"}
            asked = {"text": said(number), "stream": False, "attachments": [file]}
            client.post(f"/v1/sessions/{session}/chat", json=asked, headers={"Idempotency-Key": "k"})
            row = client.post("/v1/memories", json={"title": f"Note {secret(number)}", "sensitivity": "secret"}).json()
            new = client.post("/v1/memories", json={"title": f"Now {secret(number)}", "supersedes": row["id"]})
            assert new.is_success
            fact = {"subject": "gate", "predicate": "opens with", "object": secret(number)}
            assert client.post("/v1/facts", json=fact | {"source": new.json()["id"]}).is_success
    with served.client() as client:
        exported = client.get("/v1/users/export", params={"user": "alice"}).json()
    with served.client(**{"X-Chatbot-User": "alice"}) as client:
        assert client.get("/v1/users/export").json() == exported
    assert len(exported["sessions"][0]["messages"]) == 2
    assert (len(exported["facts"]), len(exported["memories"]) >= 3) == (1, True)
    assert others_in(json.dumps(exported), 0) == []
    for name in ("bob", "carol"):
        ok("users", "limit", name, "--day-usd", "0.5")
    assert re.search(r"alice .* –  .*\nbob .* \$0\.5000 .*\n.* for 1 user without data", ok("users", "list"))
    assert [each["day_usd"] for each in from_json("users", "list")] == [0, 0.5]
    printed = json.loads(run("users", "export", "alice").stdout)
    assert [*map(b64decode, printed["sessions"][0]["attachments"].values())] == [secret(0).encode()]
    assert {row["id"] for row in printed["memories"]} == {row["id"] for row in exported["memories"]}
    fails(2, '{"error": {"type": "InvalidValue", "message": "this would delete', "users", "erase", "alice", "--json")
    assert _kept_of(0)
    ok("memory", "add", "Alice of the shop", "--namespace", "shop/user:alice")
    erased = run("users", "erase", "alice", "--yes")
    assert (erased.returncode, "and 1 other identity may have data" in erased.stderr) == (0, True)
    assert "alice has data in other namespaces, too: repeat this with --namespace shop" in erased.stderr
    assert "no data for 'alice': repeat this with --namespace shop" in run("users", "erase", "alice", "--yes").stderr
    assert _kept_of(0) == []
    assert _kept_of(1)
    assert run("users", "erase", "carol", "--yes").returncode == 0
    assert "without data" not in ok("users", "list")
    with served.client() as client:
        for method, place in (("GET", "/v1/users/export"), ("DELETE", "/v1/users")):
            answer = client.request(method, place, params={"user": "carol"})
            assert (answer.status_code, "no data of the user 'carol'" in answer.text) == (404, True)
        client.put("/v1/users/quota?user=carol", json={"day_usd": 1})
        found = [client.delete("/v1/users", params={"user": "carol"}).status_code for _ in range(2)]
    assert found == [200, 404]
    with served.client(**{"X-Chatbot-User": "bob"}) as client:
        assert secret(1) in client.get("/v1/memories/search", params={"q": "secret"}).text


async def test_a_user_is_erased_whatever_clearance_it_needs_and_nobody_else() -> None:
    async with MemorySystem(MEMORY) as system:
        alice = system.cleared_for(namespace=user_namespace("alice"))
        for visibility in ("private", "shared", "social"):
            await alice.memory().remember(f"Mine, and {visibility}", visibility=visibility)
        await system.memory().remember("The owner's")
        with pytest.raises(AccessDenied):
            await erase_user(alice.cleared_for("familiar", rights=GUEST_RIGHTS))
        assert (await erase_user(alice.cleared_for("familiar"))).memories == 3
        assert [row.title for row in await system.memory().every()] == ["The owner's"]


async def test_a_models_call_does_no_more_than_its_user_may_and_the_turn_is_kept_in_their_name() -> None:
    calls = [
        ToolCall("1", "memory_write", json.dumps({"title": "The tea is green"})),
        ToolCall("2", "memory_search", json.dumps({"query": "tea"})),
    ]
    async with Runtime(model=ScriptedModel([calls, "That is noted."])) as runtime:
        reader = runtime.memory.cleared_for(principal="token:1", rights={"read", "chat"})
        session = await reader.create_session(runtime.store_types, "chat")
        await runtime.chat(session).turn("Please remember that my tea is green, for I decided so with Maria")
        results = [json.loads(each.content) for each in await session.transcript_read_all() if each.role == "tool"]
        assert ["the right 'write' is needed" in each["content"] for each in results] == [True, False]
        rows = await runtime.memory.memory().every()
        assert {row.principal for row in rows} == {"token:1"}
        assert not [row for row in rows if row.title == "The tea is green"]
