"""Every route, asked with every set of rights that lacks one, about what is one's own and what is another's."""

import html
import json
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chatbot.stores.access import GUEST_RIGHTS, RIGHTS
from tests.servers.http_server import Serve, Served, encoders
from tests.surfaces.server.test_doors import ASKED, QUERIES, filled, named, routes_of, served_in
from tests.surfaces.server.test_doors import World as Doors

Route = tuple[str, str]
Json = dict[str, Any]

NEEDS: dict[Route, tuple[str, str]] = {
    ("GET", "/health"): ("", ""),
    ("GET", "/ready"): ("", ""),
    ("GET", "/openapi.json"): ("", ""),
    ("GET", "/v1/models"): ("", ""),
    ("GET", "/v1/models/{name}"): ("", ""),
    ("POST", "/v1/chat/completions"): ("chat", "curate"),
    ("POST", "/v1/responses"): ("chat", "curate"),
    ("GET", "/v1/responses/{response}"): ("read", "read"),
    ("POST", "/v1/embeddings"): ("chat", "chat"),
    ("GET", "/v1/profile"): ("read", "read"),
    ("GET", "/v1/profile/{key}/history"): ("read", "read"),
    ("PUT", "/v1/profile/{key}"): ("write", "write"),
    ("PUT", "/v1/profile/{key}/pin"): ("write", "curate"),
    ("DELETE", "/v1/profile/{key}"): ("write", "curate"),
    ("GET", "/v1/profile/proposals"): ("read", "read"),
    ("POST", "/v1/profile/proposals/{memory_id}/accept"): ("chat", "chat"),
    ("DELETE", "/v1/profile/proposals/{memory_id}"): ("write", "curate"),
    ("GET", "/i/{identity}/profile"): ("read", "read"),
    ("GET", "/i/{identity}/profile/{key}"): ("read", "read"),
    ("POST", "/i/{identity}/profile"): ("write", "write"),
    ("POST", "/i/{identity}/profile/{key}"): ("write", "curate"),
    ("GET", "/v1/sessions"): ("read", "read"),
    ("POST", "/v1/sessions"): ("chat", "chat"),
    ("GET", "/v1/sessions/search"): ("read", "read"),
    ("GET", "/v1/sessions/{session_id}"): ("read", "read"),
    ("PATCH", "/v1/sessions/{session_id}"): ("write", "curate"),
    ("DELETE", "/v1/sessions/{session_id}"): ("erase", "erase"),
    ("GET", "/v1/sessions/{session_id}/comparison"): ("read", "read"),
    ("GET", "/v1/sessions/{session_id}/deletion"): ("erase", "erase"),
    ("POST", "/v1/sessions/{session_id}/fork"): ("write", "curate"),
    ("PUT", "/v1/sessions/{session_id}/pin"): ("write", "curate"),
    ("PUT", "/v1/sessions/{session_id}/sensitivity"): ("write", "curate"),
    ("PUT", "/v1/sessions/{session_id}/project"): ("write", "curate"),
    ("GET", "/v1/projects"): ("read", "read"),
    ("GET", "/v1/projects/{project}"): ("read", "read"),
    ("PATCH", "/v1/projects/{project}"): ("write", "curate"),
    ("DELETE", "/v1/projects/{project}"): ("erase", "erase"),
    ("GET", "/v1/sessions/{session_id}/messages"): ("read", "read"),
    ("POST", "/v1/sessions/{session_id}/messages"): ("write", "curate"),
    ("DELETE", "/v1/sessions/{session_id}/messages"): ("chat", "curate"),
    ("POST", "/v1/context"): ("read", "read"),
    ("POST", "/v1/sessions/{session_id}/chat"): ("chat", "curate"),
    ("GET", "/v1/sessions/{session_id}/chat"): ("read", "read"),
    ("DELETE", "/v1/sessions/{session_id}/chat"): ("chat", "curate"),
    ("GET", "/v1/sessions/{session_id}/receipts"): ("read", "read"),
    ("GET", "/v1/sessions/{session_id}/usage"): ("read", "read"),
    ("GET", "/v1/sessions/{session_id}/files"): ("read", "read"),
    ("GET", "/v1/sessions/{session_id}/files/{name}"): ("read", "read"),
    ("GET", "/v1/sessions/{session_id}/attachments"): ("read", "read"),
    ("GET", "/v1/sessions/{session_id}/attachments/{name}"): ("read", "read"),
    ("GET", "/v1/memories"): ("read", "read"),
    ("POST", "/v1/memories"): ("write", "write"),
    ("POST", "/v1/memories/batch"): ("write", "write"),
    ("GET", "/v1/memories/export"): ("read", "read"),
    ("POST", "/v1/memories/import"): ("write", "write"),
    ("GET", "/v1/memories/by-key/{key}"): ("read", "read"),
    ("PUT", "/v1/memories/by-key/{key}"): ("write", "write"),
    ("GET", "/v1/memories/search"): ("read", "read"),
    ("GET", "/v1/memories/recall"): ("read", "read"),
    ("POST", "/v1/memories/purge"): ("erase", "erase"),
    ("GET", "/v1/memories/{memory_id}"): ("read", "read"),
    ("PATCH", "/v1/memories/{memory_id}"): ("write", "curate"),
    ("DELETE", "/v1/memories/{memory_id}"): ("write", "curate"),
    ("GET", "/v1/memories/{memory_id}/history"): ("read", "read"),
    ("GET", "/v1/memories/{memory_id}/timeline"): ("read", "read"),
    ("POST", "/v1/memories/{memory_id}/supersede"): ("write", "curate"),
    ("POST", "/v1/memories/{memory_id}/restore"): ("write", "curate"),
    ("POST", "/v1/memories/{memory_id}/confirm"): ("write", "curate"),
    ("GET", "/v1/backup"): ("erase", "erase"),
    ("POST", "/v1/sync"): ("erase", "erase"),
    ("GET", "/v1/people"): ("read", "read"),
    ("POST", "/v1/people"): ("write", "write"),
    ("GET", "/v1/tasks"): ("read", "read"),
    ("POST", "/v1/tasks"): ("write", "write"),
    ("PATCH", "/v1/tasks/{task_id}"): ("write", "curate"),
    ("GET", "/v1/facts"): ("read", "read"),
    ("POST", "/v1/facts"): ("write", "write"),
    ("DELETE", "/v1/facts/{fact_id}"): ("write", "curate"),
    ("GET", "/v1/users"): ("curate", "curate"),
    ("GET", "/v1/users/export"): ("read", "read"),
    ("DELETE", "/v1/users"): ("erase", "erase"),
    ("GET", "/v1/users/quota"): ("curate", "curate"),
    ("PUT", "/v1/users/quota"): ("curate", "curate"),
    ("DELETE", "/v1/users/quota"): ("curate", "curate"),
    ("GET", "/v1/usage"): ("", ""),
    ("GET", "/"): ("", ""),
    ("GET", "/login"): ("", ""),
    ("POST", "/login"): ("", ""),
    ("POST", "/logout"): ("", ""),
    ("GET", "/i/{identity}"): ("read", "read"),
    ("GET", "/i/{identity}/c/{session_id}"): ("read", "read"),
    ("GET", "/i/{identity}/c/{session_id}/stream"): ("read", "read"),
    ("POST", "/i/{identity}/say"): ("chat", "chat"),
    ("POST", "/i/{identity}/c/{session_id}/say"): ("chat", "curate"),
    ("POST", "/i/{identity}/c/{session_id}/stop"): ("chat", "curate"),
    ("POST", "/i/{identity}/c/{session_id}/retry"): ("chat", "curate"),
    ("POST", "/i/{identity}/c/{session_id}/edit"): ("chat", "curate"),
    ("POST", "/i/{identity}/c/{session_id}/choose"): ("chat", "curate"),
    ("GET", "/i/{identity}/c/{session_id}/export"): ("read", "read"),
    ("POST", "/i/{identity}/c/{session_id}/fork"): ("write", "curate"),
    ("GET", "/i/{identity}/c/{session_id}/earlier"): ("read", "read"),
    ("GET", "/i/{identity}/c/{session_id}/later"): ("read", "read"),
    ("GET", "/i/{identity}/c/{session_id}/since"): ("read", "read"),
    ("GET", "/i/{identity}/c/{session_id}/noted"): ("read", "read"),
    ("GET", "/i/{identity}/c/{session_id}/file/{name}"): ("read", "read"),
    ("POST", "/i/{identity}/c/{session_id}/pin"): ("write", "curate"),
    ("POST", "/i/{identity}/c/{session_id}/mark"): ("write", "curate"),
    ("POST", "/i/{identity}/memory/{memory_id}/mark"): ("write", "curate"),
    ("POST", "/i/{identity}/c/{session_id}/archive"): ("write", "curate"),
    ("POST", "/i/{identity}/memory"): ("write", "write"),
    ("POST", "/i/{identity}/memory/hide"): ("write", "curate"),
    ("POST", "/i/{identity}/memory/restore"): ("write", "curate"),
    ("POST", "/i/{identity}/c/{session_id}/rename"): ("write", "curate"),
    ("POST", "/i/{identity}/c/{session_id}/delete"): ("erase", "erase"),
    ("GET", "/i/{identity}/projects"): ("read", "read"),
    ("GET", "/i/{identity}/sessions"): ("read", "read"),
    ("GET", "/i/{identity}/memory"): ("read", "read"),
    ("GET", "/i/{identity}/memory/{memory_id}"): ("read", "read"),
    ("POST", "/i/{identity}/memory/{memory_id}/correct"): ("write", "curate"),
    ("POST", "/i/{identity}/memory/{memory_id}/forget"): ("write", "curate"),
    ("POST", "/i/{identity}/memory/{memory_id}/purge"): ("erase", "erase"),
    ("POST", "/i/{identity}/memory/{memory_id}/restore"): ("write", "curate"),
    ("POST", "/i/{identity}/memory/{memory_id}/confirm"): ("write", "curate"),
    ("GET", "/i/{identity}/tasks"): ("read", "read"),
    ("POST", "/i/{identity}/tasks"): ("write", "write"),
    ("POST", "/i/{identity}/tasks/{task_id}"): ("write", "curate"),
    ("GET", "/i/{identity}/people"): ("read", "read"),
    ("GET", "/i/{identity}/c/{session_id}/why"): ("read", "read"),
    ("GET", "/i/{identity}/cost"): ("read", "read"),
    ("GET", "/i/{identity}/c/{session_id}/cost"): ("read", "read"),
}
"""The right that each route needs: for what is one's own, and for what is another's. A new route must say its own."""

OWNERS_ALONE: set[Route] = {
    ("GET", "/i/{identity}/settings"),
    ("POST", "/i/{identity}/settings"),
    ("POST", "/i/{identity}/settings/key"),
    ("GET", "/i/{identity}/settings/backup"),
    ("POST", "/i/{identity}/settings/restore"),
}

BESIDE: dict[Route, set[str]] = {
    ("GET", "/v1/backup"): set(RIGHTS),
    ("POST", "/v1/sync"): set(RIGHTS),
    ("POST", "/v1/sessions/{session_id}/messages"): {"read"},
    ("PUT", "/v1/memories/by-key/{key}"): {"read"},
    ("POST", "/v1/memories/import"): {"read"},
    ("GET", "/v1/users"): {"read"},
    ("GET", "/v1/sessions/{session_id}/deletion"): {"read"},
    ("POST", "/v1/memories/purge"): {"read"},
    ("POST", "/v1/chat/completions"): {"chat"},
    ("POST", "/v1/responses"): {"chat"},
    ("PUT", "/v1/profile/{key}"): {"read", "chat"},
    ("POST", "/v1/profile/proposals/{memory_id}/accept"): {"read", "write"},
    ("DELETE", "/v1/profile/proposals/{memory_id}"): {"read"},
    ("PUT", "/v1/profile/{key}/pin"): {"read", "chat"},
    ("DELETE", "/v1/profile/{key}"): {"read", "chat"},
    ("POST", "/i/{identity}/profile"): {"read", "chat"},
    ("POST", "/i/{identity}/profile/{key}"): {"read", "chat"},
    **{
        ("POST", f"/i/{{identity}}/{path}"): {"read"}
        for path in ("say", *(f"c/{{session_id}}/{deed}" for deed in ("say", "stop", "retry", "edit", "choose")))
    },
    ("POST", "/i/{identity}/memory/{memory_id}/correct"): {"read"},
    ("PUT", "/v1/sessions/{session_id}/sensitivity"): {"read"},
    ("POST", "/i/{identity}/c/{session_id}/mark"): {"read"},
}
"""Rights that some routes need beside that, to look at what they change."""

PAGE_QUERIES = {"earlier": {"before": "1"}, "later": {"after": "0"}, "noted": {"at": "{at}"}}
"""Parameters that a part of the page needs."""

BODIES: dict[Route, Json] = {
    ("POST", "/i/{identity}/memory"): {"title": "by hand"},
    ("POST", "/i/{identity}/profile"): {"key": "drink", "value": "tea"},
    ("POST", "/i/{identity}/profile/{key}"): {"deed": "pin"},
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
IN_A_SESSION = {"/v1/chat/completions", "/v1/responses"}
"""Routes that may be about a session which their body names."""


class World(Doors):
    """A server, the owner's token with every right, and a token whose rights change from request to request."""

    def __init__(self, served: Served, client: httpx.Client) -> None:
        super().__init__(served, client)
        self.owner = served.token("ada")
        self.actor, token = served.identities.tokens.add("actor", ["ada"], "full", rate_per_minute=1_000_000)
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
        ids = self.ids(path, token) | {"identity": "ada"}
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
        headers = {"Authorization": f"Bearer {self.actor}"}
        address = path.format(**ids)
        if path.startswith("/i/") or path in {"/login", "/logout"}:
            chosen: Json = {f"id:{ids['id']}": "on"} if "id" in ids else {}
            edited: Json = {"at": ids["at"], "reply": "1"} if path.endswith(("/edit", "/choose")) else {}
            data = BODIES.get(route, {}) | chosen | edited if method == "POST" else None
            query = {key: each.format(**ids) for key, each in PAGE_QUERIES.get(path.rpartition("/")[2], {}).items()}
            return self.client.request(method, address, data=data, params=query, headers=headers)
        body = filled(ASKED.get(route), ids)
        if path in IN_A_SESSION:
            body |= {"session_id": ids["session_id"]}
        query = {key: each.format(**ids) for key, each in QUERIES.get(route, {}).items()}
        return self.client.request(method, address, json=body, params=query, headers=headers)


def _is_of_ones_own(route: Route) -> bool:
    """Return whether it is about one's own profile, whoever asks."""
    return "/profile/{key}" in route[1] or "proposals/" in route[1]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served_in(tmp_path_factory) as served, served.client() as client:
        yield World(served, client)


@pytest.fixture(scope="module")
def world_with_encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """For what asks for vectors; each row that is written there costs a second."""
    with encoders(), served_in(tmp_path_factory) as served, served.client() as client:
        yield World(served, client)


def test_every_route_says_which_right_it_needs(world: World) -> None:
    there = {(method, path) for method, path in routes_of(world.served.app.routes) if method != "HEAD"}
    assert there == {*NEEDS, *OWNERS_ALONE}


def test_no_token_sees_or_changes_settings_whatever_its_rights(world: World) -> None:
    world.allow(RIGHTS)
    for route in OWNERS_ALONE:
        assert world.ask_as_actor(route, {"identity": "ada"}).status_code == 403


@pytest.mark.parametrize(
    ("route", "owner"),
    [
        (route, owner)
        for route in NEEDS
        for owner in ("actor", "owner")
        if owner == "actor" or not _is_of_ones_own(route)
    ],
    ids=str,
)
def test_a_route_needs_its_right_and_no_other(request: pytest.FixtureRequest, route: Route, owner: str) -> None:
    world: World = request.getfixturevalue("world_with_encoder" if "embeddings" in route[1] else "world")
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
            assert answer.status_code < 400 or route == ("POST", "/login"), (rights, answer.text)


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


def test_a_purge_takes_the_right_to_erase_even_of_ones_own(world: World) -> None:
    for path, body in (("memories", {"title": "The cat is grey"}), ("facts", ASKED["POST", "/v1/facts"] or {})):
        world.allow(set(RIGHTS) - {"erase"})
        with world.served.client(world.actor) as client:
            kept = client.post(f"/v1/{path}", json=body).json()["id"]
            assert client.delete(f"/v1/{path}/{kept}", params={"purge": True}).status_code == 403
            world.allow({"erase"})
            assert client.delete(f"/v1/{path}/{kept}", params={"purge": True}).is_success


def test_a_familiar_guest_changes_nothing_of_the_owners(http: Serve) -> None:
    served = http(tokens=True)
    with served.client(served.token("ada")) as ada:
        row = ada.post("/v1/memories", json={"title": "The shop opens at nine", "visibility": "social"}).json()["id"]
    with served.client(served.token("ada", clearance="familiar", rights=GUEST_RIGHTS)) as guest:
        assert guest.get(f"/v1/memories/{row}").is_success
        assert guest.patch(f"/v1/memories/{row}", json={"title": "It is closed"}).status_code == 403
        assert guest.delete(f"/v1/memories/{row}").status_code == 403
        assert guest.delete(f"/v1/memories/{row}", params={"purge": True}).status_code == 403
        again = guest.post(
            "/v1/memories", json={"title": "The shop opens at nine", "sensitivity": "private", "tags": ["x"]}
        ).json()
        assert (again["outcome"], again["id"] != row) == ("added", True)
        replaced = guest.post("/v1/memories", json={"title": "The shop is closed", "supersedes": row})
        assert replaced.status_code == 403
    with served.client(served.token("ada")) as ada:
        kept = ada.get(f"/v1/memories/{row}").json()
        assert (kept["title"], kept["tags"], kept["status"]) == ("The shop opens at nine", [], "active")


def test_tokens_of_before_there_were_rights_read_chat_and_write(http: Serve) -> None:
    served = http(tokens=True)
    text = served.token("ada")
    path = Path("identities/.server/tokens.json")
    written = json.loads(path.read_text(encoding="utf-8"))
    for token in written["tokens"]:
        for name in ("rights", "namespace", "users", "metrics"):
            del token[name]
    path.write_text(json.dumps(written), encoding="utf-8")
    with served.client(text) as client:
        kept = client.post("/v1/memories", json={"title": "Tea"}).json()["id"]
        assert client.get(f"/v1/memories/{kept}").is_success
        assert client.delete(f"/v1/memories/{kept}", params={"purge": True}).status_code == 403


@pytest.mark.parametrize("route", [route for route in NEEDS if "proposals/" in route[1]], ids=str)
def test_what_is_proposed_to_another_is_not_there_whatever_the_rights(world: World, route: Route) -> None:
    ids = world.made(route, world.owner)
    world.allow(RIGHTS)
    assert world.ask_as_actor(route, ids).status_code == 404
    with world.served.client(world.owner) as client:
        assert ids["memory_id"] in [each["id"] for each in client.get("/v1/profile/proposals").json()["data"]]


@pytest.mark.parametrize("route", [route for route in NEEDS if "/profile/{key}" in route[1]], ids=str)
def test_the_profile_of_another_is_not_there_whatever_the_rights(world: World, route: Route) -> None:
    ids = world.made(route, world.owner)
    world.allow(RIGHTS)
    answer = world.ask_as_actor(route, ids)
    assert answer.status_code == (200 if route == ("PUT", "/v1/profile/{key}") else 404), answer.text
    with world.served.client(world.owner) as client:
        [line] = [each for each in client.get("/v1/profile").json()["data"] if each["key"] == ids["key"]]
    assert (line["value"], line["pinned"]) == ("plugh", False)
