"""Erased means erased: a word in every field of everything, by every route, is in no byte once its user is gone."""

import base64
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from chatbot.stores.postgres.schema import TABLES
from tests.effort import by_day
from tests.postgres import fresh_database, owner_url
from tests.servers.http_server import serving
from tests.surfaces.server.test_access_checks import ASKED, Json

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

WORD = "qzxkvw"
USER = f"alice {WORD}"
CONFIG = """
[server]
rate_per_minute = 0
[hooks."hooks_of_the_erased:Raises"]
"""
OWN = f"""
from chatbot.hooks import Hook

class Raises(Hook):
    topics = ("turn:end", "memory.*")

    async def handle(self, event):
        raise ValueError("they said {WORD}")
"""
FILE = f"data:text/plain;base64,{base64.b64encode(f'{WORD} in a file'.encode()).decode()}"
ROW = {"id": str(uuid.uuid4()), "title": f"{WORD} brought", "created_at": "2026-01-01T00:00:00Z"}
BODIES: dict[str, Json] = {
    "/v1/chat/completions": {
        "model": "ada",
        "user": USER,
        "messages": [{"role": "user", "content": f"{WORD} asked", "name": WORD}],
        "metadata": {WORD: WORD},
    },
    "/v1/responses": {"model": "ada", "user": USER, "input": f"{WORD} put in", "instructions": WORD, "store": True},
    "/v1/sessions/{session_id}/chat": {
        "text": f"My favourite drink is {WORD}, and I decided that with Maria {WORD}",
        "stream": False,
        "attachments": [{"name": f"{WORD}.txt", "data": FILE}],
    },
    "/v1/memories/import": {
        "text": "\n".join(map(json.dumps, ({"kind": "memories", "format": 1}, ROW, {"kind": "end"})))
    },
}
"""Bodies of which not every field may be filled."""
FIXED = {
    "type": "note", "due": "tomorrow", "supersedes": None, "status": "completed", "session_id": None,
    "expires_at": "2099-01-01", "since": "2026-01-01", "at": "2026-01-01T00:00:00Z", "sensitivity": "public",
    "by": "{other_id}", "source": None, "project": f"{WORD} project", "role": "user",
}  # fmt: skip
"""Values of fields that take no free text."""
PLAIN: Json = {"object": [{WORD: {"deep": [WORD]}}], "number": [1], "boolean": [True]}
BY_ID = {
    "session_id": "sessions", "memory_id": "memories", "other_id": "memories", "task_id": "tasks", "fact_id": "facts",
    "response": "responses",
}  # fmt: skip
ERASING = {("DELETE", "/v1/users"), ("DELETE", "/v1/users/quota"), ("POST", "/v1/memories/purge")}
UNTOLD = ("proposals", "embeddings", "/sync")
"""In paths of routes that keep nothing new of a user: a proposal is a memory, a sync is the owner's."""
WRITING = [
    route
    for route in ASKED
    if route[0] != "GET" and route not in ERASING and not any(each in route[1] for each in UNTOLD)
]
"""Every route that takes something in."""
LOOKING = ("/v1/sessions/search", "/v1/memories/search", "/v1/memories/recall")


class Client:
    """A user who fills every field of every route."""

    def __init__(self, client: httpx.Client, document: Json) -> None:
        self._client = client
        self._document = document

    def ask(self, method: str, path: str) -> Any:
        """Ask a route, about something new of each kind that it names."""
        asked = self._document["paths"][path][method.lower()].get("requestBody")
        body = asked and (BODIES.get(path) or self._planted(asked["content"]["application/json"]["schema"]))
        text = f"{path} {json.dumps(body)}"
        ids = {name: self.ask("POST", f"/v1/{kind}")["id"] for name, kind in BY_ID.items() if f"{{{name}}}" in text}
        if "/profile/{key}" in path and (method, path) != ("PUT", "/v1/profile/{key}"):
            self.ask("PUT", "/v1/profile/{key}")
        if "{project}" in path:
            self.ask("POST", "/v1/memories")
        answer = self._client.request(
            method,
            path.format(**ids, key=f"{WORD} key", project=FIXED["project"]),
            json=body and {key: ids.get(str(value)[1:-1], value) for key, value in body.items()},
            params={"user": USER} if path.startswith("/v1/users") else {},
            headers={"Idempotency-Key": str(uuid.uuid4())},
        )
        assert answer.is_success, (method, path, answer.text)
        return answer.json() if answer.content else None

    def _planted(self, schema: Json, name: str = "") -> Any:
        """Return what a schema asks for, with the word in every text."""
        if "$ref" in schema:
            return self._planted(self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], name)
        if name in FIXED:
            return FIXED[name]
        if "anyOf" in schema:
            return self._planted(next(each for each in schema["anyOf"] if each.get("type") != "null"), name)
        if "properties" in schema:
            fields = {key: self._planted(each, key) for key, each in schema["properties"].items()}
            return {key: value for key, value in fields.items() if value is not None}
        if schema.get("type") == "array":
            return [self._planted(schema["items"], name)]
        text = f"{WORD} {name} {uuid.uuid4()}"
        return (schema.get("enum") or {"string": [text], **PLAIN}.get(schema.get("type", ""), [None]))[0]


def _in_files() -> list[str]:
    roots = (Path.cwd() / "identities", Path(os.environ["XDG_CACHE_HOME"]))
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    return [str(path) for path in files if WORD.encode() in path.read_bytes() or WORD in path.name]


def _in_columns(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [
            f"{table}: {row!r:.500}"
            for table in TABLES
            for row in connection.execute(f"SELECT * FROM chatbot.{table}".encode())
            if any(WORD.encode() in (each if isinstance(each, bytes) else str(each).encode()) for each in row)
        ]


@pytest.fixture(params=by_day(["files", "postgres"], "files"))
def storage(request: pytest.FixtureRequest) -> tuple[str, Callable[[], list[str]]]:
    """Lines of a configuration, and how to find the word in everything that is kept."""
    if request.param == "files":
        return "", _in_files
    request.getfixturevalue("postgres")
    url = fresh_database("chatbot_erased")
    owner = owner_url().replace("/postgres?", "/chatbot_erased?")
    return f'[storage]\nurl = "{url}"\n', lambda: _in_columns(owner) + _in_files()


def test_no_byte_of_a_user_is_left_whatever_they_wrote_by_any_way(storage: tuple[str, Callable[[], list[str]]]) -> None:
    lines, kept = storage
    Path("hooks_of_the_erased.py").write_text(OWN, encoding="utf-8")
    with serving(config=CONFIG + lines) as served, served.client(**{"X-Chatbot-User": USER}) as client:
        user = Client(client, served.app.openapi())
        for route in WRITING:
            user.ask(*route)
        for path in LOOKING:
            client.get(path, params={"q": WORD}).raise_for_status()
        assert len(kept()) > 20
        with served.client() as owner:
            [told] = owner.get("/v1/users").json()["data"]
            erased = owner.delete("/v1/users", params={"user": USER}).json()
        assert (erased["memories"], len(erased["sessions"])) == (told["memories"], told["sessions"])
        assert kept() == []
    assert kept() == []  # nor in what is written at the end
