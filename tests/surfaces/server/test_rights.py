"""Every route, asked with every set of rights that lacks one, about what is one's own and what is another's."""

import html
import json
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chatbot.server.callers import Grant
from chatbot.stores.access import RIGHTS
from tests.servers.http_server import Served
from tests.surfaces.server.test_access_checks import ASKED, NEEDS, OWNERS_ALONE, Route, named, routes_in, served_in
from tests.surfaces.server.test_access_checks import World as Doors

Json = dict[str, Any]

_BESIDE = {
    "read": """
        POST /v1/sessions/{session_id}/messages, PUT /v1/memories/by-key/{key}, POST /v1/memories/import, GET /v1/users,
        GET /v1/sessions/{session_id}/deletion, POST /v1/memories/purge, DELETE /v1/profile/proposals/{memory_id},
        PUT /v1/sessions/{session_id}/sensitivity, POST /i/{identity}/c/{session_id}/mark,
        POST /i/{identity}/profile/proposals/{memory_id}/reject, POST /v1/sessions/{session_id}/fork,
        POST /i/{identity}/memory/{memory_id}/correct, POST /i/{identity}/say, POST /i/{identity}/c/{session_id}/say,
        POST /i/{identity}/c/{session_id}/fork,
        POST /i/{identity}/c/{session_id}/stop, POST /i/{identity}/c/{session_id}/retry,
        POST /i/{identity}/c/{session_id}/edit, POST /i/{identity}/c/{session_id}/choose,
    """,
    "chat": "POST /v1/chat/completions, POST /v1/responses",
    "read chat": """
        PUT /v1/profile/{key}, PUT /v1/profile/{key}/pin, DELETE /v1/profile/{key}, POST /i/{identity}/profile,
        POST /i/{identity}/profile/{key}/forget, POST /i/{identity}/profile/{key}/pin,
    """,
    "read write": """
        POST /v1/profile/proposals/{memory_id}/accept, POST /i/{identity}/profile/proposals/{memory_id}/accept,
    """,
    " ".join(RIGHTS): "GET /v1/backup, POST /v1/sync",
}
BESIDE = {route: set(rights.split()) for rights, text in _BESIDE.items() for route in routes_in(text)}
"""Rights that some routes need beside that, to look at what they change."""

PAGE_QUERIES = {"earlier": {"before": "1"}, "later": {"after": "0"}, "noted": {"at": "{at}"}}
"""Parameters that a part of the page needs."""

BODIES: dict[Route, Json] = {
    ("POST", "/i/{identity}/memory"): {"title": "by hand"},
    ("POST", "/i/{identity}/profile"): {"key": "drink", "value": "tea"},
    ("POST", "/i/{identity}/c/{session_id}/mark"): {"sensitivity": "private"},
    ("POST", "/i/{identity}/memory/{memory_id}/mark"): {"sensitivity": "private"},
    ("POST", "/i/{identity}/say"): {"text": "hello"},
    ("POST", "/i/{identity}/c/{session_id}/say"): {"text": "hello"},
    ("POST", "/i/{identity}/c/{session_id}/edit"): {"text": "hello"},
    ("POST", "/i/{identity}/c/{session_id}/rename"): {"title": "other"},
    ("POST", "/i/{identity}/memory/{memory_id}/correct"): {"how": "wrong", "title": "changed"},
    ("POST", "/i/{identity}/tasks"): {"title": "to do"},
    ("POST", "/i/{identity}/tasks/{task_id}"): {"status": "completed"},
}
"""Forms that routes of the page need."""
UNUSABLE = {("POST", "/login"): 401, ("POST", "/v1/embeddings"): 409}
UNUSABLE |= {("GET", "/v1/users/export"): 404, ("DELETE", "/v1/users"): 404}
"""Routes that refuse here for other reasons: a form without a token, a memory without an encoder or without users."""
IN_A_SESSION = {"/v1/chat/completions", "/v1/responses"}
"""Routes that may be about a session which their body names."""


class World(Doors):
    """A server, the owner's token with every right, and a token whose rights change from request to request."""

    def __init__(self, served: Served, client: httpx.Client) -> None:
        super().__init__(served, client)
        self.owner = served.token("ada")
        self.actor, token = served.identities.tokens.add("actor", Grant(("ada",), "full", rate_per_minute=1_000_000))
        self._actor_id = token.id
        self._file = Path("identities/.server/tokens.json").resolve()

    def allow(self, rights: Collection[str]) -> None:
        """Give the actor these rights, as a hand that edits the file would."""
        written = json.loads(self._file.read_text(encoding="utf-8"))
        for token in written["tokens"]:
            if token["id"] == self._actor_id:
                token["rights"] = [right for right in RIGHTS if right in rights]
        self._file.write_text(json.dumps(written), encoding="utf-8")

    def made(self, route: Route, token: str) -> dict[str, str]:
        """Something new of that token's holder for a route to be about."""
        path = named(route) + "{session_id}" * (route[1] in IN_A_SESSION)
        ids = self.ids(path, token, is_read=route[0] == "GET") | {"identity": "ada"}
        with self.served.client(token) as client:
            if "{session_id}" in path:
                ids["at"] = client.get(f"/v1/sessions/{ids['session_id']}/messages").json()["data"][0]["at"]
            if route[1].endswith(("/memory/hide", "/memory/restore")):
                ids["id"] = self.ids("{memory_id}", token)["memory_id"]
            if route[1].endswith("/memory/restore"):
                client.delete(f"/v1/memories/{ids['id']}")
        return ids

    def ask_as_actor(self, route: Route, ids: dict[str, str]) -> httpx.Response:
        method, path = route
        if route in ASKED:
            body = {"session_id": ids["session_id"]} if path in IN_A_SESSION else None
            return self.ask(route, ids, self.actor, body=body)
        chosen: Json = {f"id:{ids['id']}": "on"} if "id" in ids else {}
        edited: Json = {"at": ids["at"], "reply": "1"} if path.endswith(("/edit", "/choose")) else {}
        form = BODIES.get(route, {}) | chosen | edited if method == "POST" else None
        query = {key: each.format(**ids) for key, each in PAGE_QUERIES.get(path.rpartition("/")[2], {}).items()}
        return self.ask(route, ids, self.actor, query=query, form=form)


def _is_of_ones_own(route: Route) -> bool:
    """Return whether it is about one's own profile, whoever asks."""
    return "/profile/{key}" in route[1] or "proposals/" in route[1]


def _is_of_something(route: Route) -> bool:
    """Return whether it is about something that somebody made, and not about all that there is."""
    return "{" in route[1].replace("{identity}", "") or len(set(NEEDS[route])) > 1


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served_in(tmp_path_factory) as served, served.client() as client:
        yield World(served, client)


def test_no_token_sees_or_changes_settings_whatever_its_rights(world: World) -> None:
    world.allow(RIGHTS)
    for route in OWNERS_ALONE:
        assert world.ask_as_actor(route, {"identity": "ada"}).status_code == 403


def _whose(route: Route) -> Iterator[Any]:
    """Routes and owners of what they are about; by day that of another only where it needs another right."""
    yield route, "actor"
    if not _is_of_ones_own(route) and _is_of_something(route):
        yield pytest.param(route, "owner", marks=[pytest.mark.nightly] * (len(set(NEEDS[route])) == 1))


@pytest.mark.parametrize(("route", "owner"), [each for route in NEEDS for each in _whose(route)], ids=str)
def test_a_route_needs_its_right_and_no_other(world: World, route: Route, owner: str) -> None:
    own, foreign = NEEDS[route]
    needed = own if owner == "actor" else foreign
    everything = set(RIGHTS)
    world.allow(everything)
    ids = world.made(route, world.actor if owner == "actor" else world.owner)
    for rights in (everything - {needed}, {needed} | BESIDE.get(route, set())) if needed else (set(),):
        world.allow(rights)
        answer = world.ask_as_actor(route, ids)
        if needed and needed not in rights:
            assert answer.status_code == 403, (rights, answer.text)
            assert f"the right '{needed}'" in html.unescape(answer.text).lower()
            if not route[1].startswith("/i/"):
                assert answer.json()["error"]["code"] == "missing_right"
        else:
            assert answer.status_code < 400 or answer.status_code == UNUSABLE.get(route), (rights, answer.text)


LOOSER = [
    ({"sensitivity": "private"}, {"sensitivity": "public"}),
    ({"visibility": "shared"}, {"visibility": "social"}),
    ({"min_clearance": "inner"}, {"min_clearance": "public"}),
]


@pytest.mark.parametrize(("strict", "loose"), LOOSER, ids=str)
@pytest.mark.parametrize("owner", ["actor", "owner"])
def test_only_who_may_declassify_makes_a_row_less_strict(world: World, strict: Json, loose: Json, owner: str) -> None:
    world.allow(set(RIGHTS))
    title = f"The well is at {uuid.uuid4()}"
    with world.served.client(world.actor if owner == "actor" else world.owner) as client:
        kept = client.post("/v1/memories", json={"title": title, **strict}).json()["id"]
    with world.served.client(world.actor) as client:
        world.allow(set(RIGHTS) - {"declassify"})
        refused = client.patch(f"/v1/memories/{kept}", json=loose | {"title": f"{title} now"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_right")
        assert client.patch(f"/v1/memories/{kept}", json=strict).is_success
        world.allow({"read", "write", "curate", "declassify"})
        assert client.patch(f"/v1/memories/{kept}", json=loose).is_success


@pytest.mark.parametrize("route", [route for route in NEEDS if _is_of_ones_own(route)], ids=str)
def test_the_profile_of_another_is_absent_with_its_proposals_whatever_the_rights(world: World, route: Route) -> None:
    ids = world.made(route, world.owner)
    world.allow(RIGHTS)
    answer = world.ask_as_actor(route, ids)
    assert answer.status_code == (200 if route == ("PUT", "/v1/profile/{key}") else 404), answer.text
    with world.served.client(world.owner) as client:
        if "proposals" in route[1]:
            assert ids["memory_id"] in [each["id"] for each in client.get("/v1/profile").json()["proposals"]]
        else:
            [line] = [each for each in client.get("/v1/profile").json()["data"] if each["key"] == ids["key"]]
            assert (line["value"], line["pinned"]) == ("plugh", False)
