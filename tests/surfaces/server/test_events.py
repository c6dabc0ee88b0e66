"""`GET /v1/events`: the feed of changes over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import httpx
import pytest
from starlette.types import Message

from chatbot.server.callers import ServerCaller
from chatbot.server.errors import ProblemError
from chatbot.server.sse import MOST, MOST_OF_ONE, EventStream, Followers, event
from tests.servers.http_server import Serve, Served, events


@pytest.fixture
def served(http: Serve) -> Served:
    return http()


def _remember(client: httpx.Client, title: str, **fields: Any) -> str:
    response = client.post("/v1/memories", json={"title": title, **fields})
    assert response.is_success, response.text
    return str(response.json()["id"])


def _since(client: httpx.Client, after: str) -> Any:
    answer = client.get("/v1/events", params={"after": after, "follow": "false"})
    assert answer.is_success, answer.text
    return answer.json()


def _next(stream: Iterator[tuple[str, Any]]) -> Any:
    name, data = next(stream)
    assert name == "change", (name, data)
    return data


def test_changes_come_as_they_are_made_and_a_client_that_returns_misses_none(served: Served) -> None:
    with served.client() as client:
        with client.stream("GET", "/v1/events") as response:
            stream = events(response)
            name, ready = next(stream)
            assert name == "ready"
            kept = _remember(client, "Anna lives in Lisbon")
            change = _next(stream)
            assert (change["type"], change["change"], change["memory"]["id"]) == ("memory.added", "add", kept)
            assert change["memory"]["title"] == "Anna lives in Lisbon"
        client.patch(f"/v1/memories/{kept}", json={"title": "Anna lives in Porto"})
        session = client.post("/v1/sessions", json={"title": "Moving"}).json()["id"]
        with client.stream("GET", "/v1/events", headers={"Last-Event-ID": change["position"]}) as response:
            stream = events(response)
            assert next(stream) == ("ready", {"position": change["position"]})
            assert [_next(stream)["change"], _next(stream)["ids"]] == ["update", [session]]
        assert _since(client, ready["position"])["data"][1]["memory"]["title"] == "Anna lives in Porto"


def test_asking_now_and_then_pages_through_everything(served: Served) -> None:
    with served.client() as client:
        ids = [_remember(client, f"Fact number {number}") for number in range(5)]
        client.delete(f"/v1/memories/{ids[0]}?purge=true")
        seen, after = list[str](), "0"
        while found := client.get("/v1/events", params={"after": after, "follow": "false", "limit": 2}).json()["data"]:
            seen += [each["memory"]["id"] if each["memory"] else f"purged {each['ids'][0]}" for each in found]
            after = found[-1]["position"]
        assert sorted(seen) == sorted([*ids[1:], f"purged {ids[0]}"])
        assert _since(client, after) == {"data": [], "position": after}


def test_guests_and_users_are_told_of_what_they_may_read_and_of_nothing_else(served: Served) -> None:
    guest = served.token("ada", clearance="familiar")
    owner = served.token("ada")
    with served.client(owner) as client, served.client(guest) as visitor:
        alice = served.client(owner, **{"X-Chatbot-User": "alice"})
        before = [_since(each, "0") for each in (visitor, alice)]
        secret = _remember(client, "For the owner alone")
        client.patch(f"/v1/memories/{secret}", json={"title": "Still for the owner"})
        session = client.post("/v1/sessions", json={"title": "Mine"}).json()["id"]
        client.delete(f"/v1/sessions/{session}")
        client.delete(f"/v1/memories/{secret}?purge=true")
        assert [_since(each, "0") for each in (visitor, alice)] == before
        assert len(_since(client, "0")["data"]) == 3
        alices = _remember(alice, "Alice's own")
        assert [each["memory"]["id"] for each in _since(alice, "0")["data"]] == [alices]
        assert _since(visitor, "0") == before[0]
        hidden, missing = (
            client.get(f"/v1/events?follow=false&after=1~{each}", headers={"X-Chatbot-User": "alice"}).json()
            for each in (secret, "01900000-0000-7000-8000-000000000000")
        )
        assert hidden == missing
        alice.close()


def test_a_token_that_is_revoked_is_told_nothing_more(served: Served) -> None:
    text = served.token("ada")
    served.token("ada")
    with served.client(text) as client, client.stream("GET", "/v1/events") as response:
        stream = events(response)
        assert next(stream)[0] == "ready"
        served.identities.tokens.revoke(served.identities.tokens.find(text).id)  # type: ignore[union-attr]
        assert list(stream) == []


def test_what_is_no_position_is_refused_and_head_ends(served: Served) -> None:
    with served.client() as client:
        for wrong in ("x", "now", "1~2", "-1"):
            assert client.get("/v1/events", params={"after": wrong, "follow": "false"}).status_code == 422
            assert client.get("/v1/events", headers={"Last-Event-ID": wrong}).status_code == 422
        assert client.head("/v1/events").status_code == 200


def test_connections_that_follow_are_few_and_end_with_the_server() -> None:
    followers = Followers()
    mine = [followers.admit(ServerCaller("me")) for _ in range(MOST_OF_ONE)]
    with pytest.raises(ProblemError, match="of yours"):
        followers.admit(ServerCaller("me"))
    mine.pop()
    mine.append(followers.admit(ServerCaller("me")))
    others = [followers.admit(ServerCaller(f"caller {number}")) for number in range(MOST - MOST_OF_ONE)]
    with pytest.raises(ProblemError, match="in all"):
        followers.admit(ServerCaller("another"))
    assert len(others) + len(mine) == MOST


async def test_of_a_client_that_does_not_read_little_is_kept_in_memory() -> None:
    made, stuck = 0, asyncio.Event()

    async def changes() -> AsyncGenerator[bytes, None]:
        nonlocal made
        for made in range(1, 10_000):  # noqa: B007 - counts what was read
            yield event({"title": "t" * 1_000}, "change", "1")

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            stuck.set()
            await asyncio.Event().wait()

    async def receive() -> Message:
        await stuck.wait()
        before = -1
        while before != made:  # until nothing more is read
            before = made
            for _ in range(100):
                await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    await EventStream(changes())({"type": "http"}, receive, send)
    assert 0 < made < 200
