"""Every route, asked with every set of rights that lacks one, about what is one's own and what is another's."""

import html
import json
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chatbot.stores.access import GUEST_RIGHTS, RIGHTS
from tests.servers.http_server import Serve, Served, encoders, serving
from tests.surfaces.server.test_doors import QUERIES, _routes, proposal

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
    ("PUT", "/v1/users/quota"): {"day_usd": 1},
    ("POST", "/i/{identity}/memory"): {"title": "by hand"},
    ("PUT", "/v1/profile/{key}"): {"value": "Lisbon"},
    ("PUT", "/v1/profile/{key}/pin"): {"pinned": True},
    ("POST", "/i/{identity}/profile"): {"key": "drink", "value": "tea"},
    ("POST", "/i/{identity}/profile/{key}"): {"deed": "pin"},
    ("POST", "/v1/embeddings"): {"model": "ada", "input": "hi"},
    ("POST", "/v1/sessions"): {"title": "new"},
    ("PATCH", "/v1/sessions/{session_id}"): {"title": "other"},
    ("POST", "/v1/sessions/{session_id}/fork"): {},
    ("PUT", "/v1/sessions/{session_id}/pin"): {},
    ("PUT", "/v1/sessions/{session_id}/sensitivity"): {"sensitivity": "private"},
    ("POST", "/i/{identity}/c/{session_id}/mark"): {"sensitivity": "private"},
    ("POST", "/i/{identity}/memory/{memory_id}/mark"): {"sensitivity": "private"},
    ("PUT", "/v1/sessions/{session_id}/project"): {"project": "house"},
    ("PATCH", "/v1/projects/{project}"): {"name": "home"},
    ("POST", "/v1/sessions/{session_id}/chat"): {"text": "hello", "stream": False},
    ("POST", "/v1/sync"): {"machine": "0123456789ab", "is_trial": True},
    ("POST", "/v1/memories"): {"title": "something else"},
    ("POST", "/v1/memories/purge"): {"person": "nobody"},
    ("POST", "/v1/memories/import"): {"text": '{"kind": "memories", "format": 1}'},
    ("POST", "/v1/memories/batch"): {"memories": [{"title": "yet another"}]},
    ("PUT", "/v1/memories/by-key/{key}"): {"title": "under a key"},
    ("POST", "/v1/sessions/{session_id}/messages"): {"messages": [{"role": "user", "content": "hello"}]},
    ("POST", "/v1/context"): {"messages": [{"role": "user", "content": "hello"}]},
    ("PATCH", "/v1/memories/{memory_id}"): {"title": "changed"},
    ("POST", "/v1/people"): {"name": "Maria", "alias": "Mary"},
    ("POST", "/v1/tasks"): {"title": "to do"},
    ("PATCH", "/v1/tasks/{task_id}"): {"status": "completed"},
    ("POST", "/v1/facts"): {"subject": "a", "predicate": "b", "object": "c"},
    ("POST", "/i/{identity}/say"): {"text": "hello"},
    ("POST", "/i/{identity}/c/{session_id}/say"): {"text": "hello"},
    ("POST", "/i/{identity}/c/{session_id}/edit"): {"text": "hello"},
    ("POST", "/i/{identity}/c/{session_id}/rename"): {"title": "other"},
    ("POST", "/i/{identity}/memory/{memory_id}/correct"): {"how": "wrong", "title": "changed"},
    ("POST", "/i/{identity}/tasks"): {"title": "to do"},
    ("POST", "/i/{identity}/tasks/{task_id}"): {"status": "completed"},
}
KINDS = {
    "task_id": ("tasks", {"title": "to do"}),
    "fact_id": ("facts", {"subject": "plugh", "predicate": "is", "object": "secret"}),
}


class World:
    """A server, the owner's token with every right, and a token whose rights change from request to request."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.owner = served.token("ada")
        self.actor, token = served.identities.tokens.add("actor", ["ada"], "full", rate_per_minute=1_000_000)
        self._actor_id = token.id
        self.client = served.client()
        self._file = Path("identities/.server/tokens.json").resolve()

    def allow(self, rights: Collection[str]) -> None:
        """Give the actor these rights, as a hand that edits the file would."""
        written = json.loads(self._file.read_text(encoding="utf-8"))
        for token in written["tokens"]:
            if token["id"] == self._actor_id:
                token["rights"] = [right for right in RIGHTS if right in rights]
        self._file.write_text(json.dumps(written), encoding="utf-8")

    def made(self, path: str, token: str) -> Json:
        """Something new of that token's holder for a route to be about."""
        ids: Json = {"name": "transcript.md" if "files" in path else "ada", "identity": "ada"}
        with self.served.client(token) as client:
            if "{response}" in path:
                asked = {"model": "ada", "input": "hi", "store": True}
                ids["response"] = client.post("/v1/responses", json=asked).json()["id"]
            if "{session_id}" in path or path in {"/v1/chat/completions", "/v1/responses"}:
                ids["session_id"] = client.post("/v1/sessions", json={}).json()["id"]
                files = (
                    [{"name": "note.txt", "data": f"data:,{uuid.uuid4()}"}]
                    if "{name}" in path and "files" not in path
                    else []
                )
                said = {"text": f"my secret word is {uuid.uuid4()}", "stream": False, "attachments": files}
                receipt = client.post(f"/v1/sessions/{ids['session_id']}/chat", json=said).json()["receipt"]
                ids["name"] = receipt["attachments"][0]["blob"] if files else ids["name"]
                said_at = client.get(f"/v1/sessions/{ids['session_id']}/messages").json()["data"][0]["at"]
                ids["at"] = said_at
            if path.endswith(("/memory/hide", "/memory/restore")):
                ids["id"] = client.post("/v1/memories", json={"title": f"The word is {uuid.uuid4()}"}).json()["id"]
            if path.endswith("/memory/restore"):
                client.delete(f"/v1/memories/{ids['id']}")
            if "{project}" in path:
                ids["project"] = f"project {uuid.uuid4()}"
                client.post("/v1/memories", json={"title": ids["project"], "project": ids["project"]})
            if "{key}" in path:
                ids["key"] = f"key {uuid.uuid4()}"
                client.put(f"/v1/profile/{ids['key']}", json={"value": "Berlin"}).raise_for_status()
                draft = {"title": f"under {ids['key']}"}
                client.put(f"/v1/memories/by-key/{ids['key']}", json=draft).raise_for_status()
            name = next((each for each in ("memory_id", "task_id", "fact_id") if f"{{{each}}}" in path), "")
            if name:
                kind, body = KINDS.get(name, ("memories", {"title": f"The word is {uuid.uuid4()}"}))
                body = proposal(str(uuid.uuid4())) if "proposals" in path else body
                ids[name] = client.post(f"/v1/{kind}", json=body | _unlike(kind)).json()["id"]
        with self.served.client(self.owner) as client:
            ids["other"] = client.post("/v1/memories", json={"title": f"It is {uuid.uuid4()} now"}).json()["id"]
        return ids

    def ask(self, route: Route, ids: Json) -> httpx.Response:
        """Ask as the actor."""
        method, path = route
        headers = {"Authorization": f"Bearer {self.actor}"}
        address = path.format(**ids)
        body = BODIES.get(route)
        if path.startswith("/i/") or path in {"/login", "/logout"}:
            chosen: Json = {f"id:{ids['id']}": "on"} if "id" in ids else {}
            edited: Json = {"at": ids["at"], "reply": "1"} if path.endswith(("/edit", "/choose")) else {}
            data = (body or {}) | chosen | edited if method == "POST" else None
            query = {key: each.format(**ids) for key, each in PAGE_QUERIES.get(path.rpartition("/")[2], {}).items()}
            return self.client.request(method, address, data=data, params=query, headers=headers)
        if "completions" in path:
            body = {"model": "ada", "session_id": ids["session_id"], "messages": [{"role": "user", "content": "hi"}]}
        if path == "/v1/responses":
            body = {"model": "ada", "session_id": ids["session_id"], "input": "hi"}
        if "supersede" in path:
            body = {"by": ids["other"]}
        query = {key: each.format(**ids) for key, each in QUERIES.get(route, {}).items()}
        return self.client.request(method, address, json=body, params=query, headers=headers)


def _is_of_ones_own(route: Route) -> bool:
    """Return whether it is about one's own profile, whoever asks."""
    return "/profile/{key}" in route[1] or "proposals/" in route[1]


def _unlike(kind: str) -> Json:
    """Return fields that make a body say something new each time."""
    return {"facts": {"object": str(uuid.uuid4())}, "tasks": {"title": f"do {uuid.uuid4()}"}}.get(kind, {})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with _world(tmp_path_factory) as world:
        yield world


@pytest.fixture(scope="module")
def world_with_encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """For what asks for vectors; each row that is written there costs a second."""
    with encoders(), _world(tmp_path_factory) as world:
        yield world


@contextmanager
def _world(folders: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folders.mktemp("rights"))
        patch.setenv("XDG_CACHE_HOME", str(folders.mktemp("cache")))
        with serving(tokens=True) as served:
            world = World(served)
            yield world
            world.client.close()


def test_every_route_says_which_right_it_needs(world: World) -> None:
    there = {(method, path) for method, path in _routes(world.served.app.routes) if method != "HEAD"}
    assert there == {*NEEDS, *OWNERS_ALONE}


def test_no_token_sees_or_changes_settings_whatever_its_rights(world: World) -> None:
    world.allow(RIGHTS)
    for route in OWNERS_ALONE:
        assert world.ask(route, {"identity": "ada"}).status_code == 403


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
    ids = world.made(route[1], world.actor if owner == "actor" else world.owner)
    for rights in (everything - {needed}, {needed} | BESIDE.get(route, set())) if needed else (set(),):
        world.allow(rights)
        answer = world.ask(route, ids)
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
    for path, body in (("memories", {"title": "The cat is grey"}), ("facts", BODIES["POST", "/v1/facts"])):
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
        for name in ("rights", "namespace", "users"):
            del token[name]
    path.write_text(json.dumps(written), encoding="utf-8")
    with served.client(text) as client:
        kept = client.post("/v1/memories", json={"title": "Tea"}).json()["id"]
        assert client.get(f"/v1/memories/{kept}").is_success
        assert client.delete(f"/v1/memories/{kept}", params={"purge": True}).status_code == 403


@pytest.mark.parametrize("route", [route for route in NEEDS if "proposals/" in route[1]], ids=str)
def test_what_is_proposed_to_another_is_not_there_whatever_the_rights(world: World, route: Route) -> None:
    ids = world.made(route[1], world.owner)
    world.allow(RIGHTS)
    assert world.ask(route, ids).status_code == 404
    with world.served.client(world.owner) as client:
        assert ids["memory_id"] in [each["id"] for each in client.get("/v1/profile/proposals").json()["data"]]


@pytest.mark.parametrize("route", [route for route in NEEDS if "/profile/{key}" in route[1]], ids=str)
def test_the_profile_of_another_is_not_there_whatever_the_rights(world: World, route: Route) -> None:
    ids = world.made(route[1], world.owner)
    world.allow(RIGHTS)
    answer = world.ask(route, ids)
    assert answer.status_code == (200 if route == ("PUT", "/v1/profile/{key}") else 404), answer.text
    with world.served.client(world.owner) as client:
        [line] = [each for each in client.get("/v1/profile").json()["data"] if each["key"] == ids["key"]]
    assert (line["value"], line["pinned"]) == ("Berlin", False)
