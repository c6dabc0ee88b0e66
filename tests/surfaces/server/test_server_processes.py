"""Two processes of `chatbot serve` in front of one storage, over HTTP, as a team runs them; one of them is killed.

On files they share a folder. On PostgreSQL they share nothing else: each has a folder and a cache of its own.
"""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.command import project, run
from tests.patience import PATIENCE_S
from tests.postgres import address
from tests.servers.server_process import ServerProcess

pytestmark = pytest.mark.nightly
LONG = "word " * 3_000
CONFIG = """
[model]
name = "scripted"
script = {script}
[embedding]
model = ""
{more}
"""


Team = Callable[..., list[ServerProcess]]


@pytest.fixture(params=["files", "postgres"])
def team(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    """Starts two servers with these replies and settings."""
    monkeypatch.chdir(tmp_path)
    name, storage = "ada", ""
    if request.param == "postgres":
        storage = f'[storage]\nurl = "{request.getfixturevalue("postgres")}"\n'
        name = address(tmp_path).identity
    monkeypatch.setenv("CHATBOT_IDENTITY", name)
    servers: list[ServerProcess] = []

    def started(*script: str, more: str = "") -> list[ServerProcess]:
        text = CONFIG.format(script=json.dumps(script), more=storage + more)
        for number in range(2):
            folder = tmp_path / f"server-{number if storage else 0}"
            if not folder.exists():
                folder.mkdir()
                monkeypatch.chdir(folder)
                monkeypatch.setenv("CHATBOT_CONFIG", str(folder / "config.toml"))
                project(text, name)
            servers.append(ServerProcess(folder, tmp_path / f"cache-{number}"))
        return servers

    yield started
    for each in servers:
        with suppress(OSError):
            each.kill()


def test_any_server_takes_any_request_and_one_is_killed(team: Team) -> None:
    one, other = team("Noted.", LONG)
    token = run("token", "add", uuid4().hex, "--clearance", "full", "--rate", "100000").stdout.strip()
    with one.client(token) as first, other.client(token) as second:
        session = first.post("/v1/sessions", json={}).json()["id"]
        chat = f"/v1/sessions/{session}/chat"
        key = {"idempotency-key": "only once"}
        said = {"text": "I keep bees in the garden", "stream": False}
        told = [each.post(chat, json=said, headers=key) for each in (first, second)]
        assert [each.json()["reply"] for each in told] == ["Noted."] * 2
        assert told[1].headers["idempotency-replayed"] == "true"
        assert [each["id"] for each in second.get("/v1/sessions").json()["data"]] == [session]
        assert second.post(chat, json={"text": "and in winter?", "stream": False}).json()["reply"] == "Noted."
        assert _texts(first, session) == ["I keep bees in the garden", "Noted.", "and in winter?", "Noted."]
        found = second.get("/v1/memories/search", params={"q": "bees"}).json()
        assert "bees" in json.dumps(found)

        with ThreadPoolExecutor() as pool:
            _, speaking = _stream(pool, first, "POST", chat, {"text": "tell me everything"})
            assert speaking.wait(PATIENCE_S)
            ends, listening = _stream(pool, second, "GET", chat)
            assert listening.wait(PATIENCE_S)
            assert second.delete(chat).json() == {"stopped": 1}
            assert ends.result(PATIENCE_S) == ("error", "turn_stopped")

            _, speaking = _stream(pool, second, "POST", chat, {"text": "once more"})
            assert speaking.wait(PATIENCE_S)
            ends, listening = _stream(pool, first, "GET", chat)
            assert listening.wait(PATIENCE_S)
            other.kill()
            assert ends.result(PATIENCE_S) == ("error", "turn_lost")
        assert first.get(chat).status_code == 204
        assert "once more" in _texts(first, session)
        said = {"text": "are you there?", "stream": False}
        assert first.post(chat, json=said).json()["reply"] == "Noted."  # the lease of the dead one has lapsed
        texts = _texts(first, session)
        asked = ["I keep bees in the garden", "and in winter?", "tell me everything", "once more", "are you there?"]
        assert [each for each in texts if each in asked] == asked


def _texts(client: httpx.Client, session: str) -> list[str]:
    entries = client.get(f"/v1/sessions/{session}/messages", params={"limit": 100}).json()["data"]
    return [each["content"] for each in entries]


def _stream(pool: ThreadPoolExecutor, client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    """Read a stream in a thread: its last event with the code of its error, and an event that is set by its text.

    That of a listener is set once it listens.
    """
    heard = threading.Event()

    def read() -> tuple[str, str]:
        event, code = "", ""
        with suppress(httpx.TransportError), client.stream(method, path, json=body) as response:
            if method == "GET":
                heard.set()
            for line in response.iter_lines():
                kind, _, rest = line.partition(": ")
                if kind == "event":
                    event = rest
                    if rest == "text":
                        heard.set()
                elif kind == "data" and event == "error":
                    code = json.loads(rest)["error"]["code"]
        return event, code

    return pool.submit(read), heard
