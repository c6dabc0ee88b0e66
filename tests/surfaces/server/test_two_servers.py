"""Two servers in front of one storage, files or a database: each takes any request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chatbot.errors import ProviderFailed
from chatbot.messages import Delta, TextDelta
from chatbot.models.scripted import ScriptedModel, ScriptedReply
from chatbot.runtime import Options, Runtime
from chatbot.server.app import create_app
from chatbot.server.callers import OWNER
from chatbot.server.errors import TurnLost, TurnStopped
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.turns import RemoteTurn, RunningTurn
from tests.command import project
from tests.patience import PATIENCE_S
from tests.postgres import fresh_database
from tests.servers.http_server import events, server_process
from tests.servers.http_server import serving as serving_http

WORDS = "word " * 2000
SLOWLY = """
import sys
from chatbot.cli.main import main
from chatbot.models.scripted import ScriptedModel
from chatbot.stores.postgres import place
ScriptedModel.__init__.__kwdefaults__["delay_s"] = 0.02
place.LAPSES_AFTER_S = 1.0
sys.exit(main(["serve", "--port", "0"]))
"""


@pytest.fixture(params=["files", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The configuration of a storage in a project of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHATBOT_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("CHATBOT_IDENTITY", address_of(tmp_path))
    text = '[embedding]\nmodel = ""\n'
    if request.param == "postgres":
        text += f'[storage]\nurl = "{request.getfixturevalue("postgres")}"\n'
    project(text, address_of(tmp_path))
    return text


def address_of(folder: Path) -> str:
    return f"t{abs(hash(str(folder))):x}"


def opening(*replies: ScriptedReply, delay_s: float = 0.0) -> Identities:
    """The identities of a server."""

    def opened(options: Options) -> Runtime:
        return Runtime(options, model=ScriptedModel(replies, delay_s=delay_s))

    return Identities(Options(), open_runtime=opened)


@asynccontextmanager
async def serving(*replies: ScriptedReply, delay_s: float = 0.0) -> AsyncIterator[IdentityAccess]:
    """A server, entered by its owner."""
    async with opening(*replies, delay_s=delay_s) as identities:
        yield await identities.access(OWNER)


def client(identities: Identities) -> httpx.AsyncClient:
    """A client of a server in this process."""
    transport = httpx.ASGITransport(create_app(identities), client=("127.0.0.1", 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_a_turn_is_stopped_by_another_server(storage: str) -> None:
    async with serving(WORDS, delay_s=0.005) as one, serving() as other:
        session = await one.new_session()
        assert await other.stop(session.id) == 0
        turn = await one.begin_turn(session.id, "talk to me")
        await _speaking(turn)
        assert await other.stop(session.id) == 1
        with pytest.raises(TurnStopped):
            await turn.ended()
        entries = await (await other.session(session.id)).transcript_read_all()
        assert [each.role for each in entries] == ["user", "assistant", "error"]
        assert entries[1].content.startswith("word")
        turn = await one.begin_turn(session.id, "and again")  # the request was for the turn before
        await _speaking(turn)
        assert not turn.task.done()


async def test_a_reply_of_another_server_is_heard_once_it_is_complete(storage: str) -> None:
    may_end, may_fail = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[Delta]:
        yield TextDelta("first ")
        await may_end.wait()
        yield TextDelta("last")

    async def failing() -> AsyncIterator[Delta]:
        yield TextDelta("first")
        await may_fail.wait()
        raise ProviderFailed("down")

    async with serving("before", slowly, failing, WORDS, delay_s=0.005) as one, serving() as other:
        session = await one.new_session()
        await (await one.begin_turn(session.id, "hello")).ended()
        assert await other.listen(session.id) is None
        turn = await one.begin_turn(session.id, "talk to me")
        await _speaking(turn)
        listeners = [await other.listen(session.id) for _ in range(2)]
        may_end.set()
        for remote in listeners:
            assert isinstance(remote, RemoteTurn)
            assert [event async for event in remote.events()] == [TextDelta("first last")]
            assert await remote.ended() == await turn.ended()
        await _speaking(await one.begin_turn(session.id, "and now?"))
        remote = await other.listen(session.id)
        assert isinstance(remote, RemoteTurn)
        may_fail.set()
        assert [event async for event in remote.events()] == []
        with pytest.raises(TurnLost, match="failed"):
            await remote.ended()
        turn = await one.begin_turn(session.id, "go on")
        await _speaking(turn)
        remote = await other.listen(session.id)
        assert isinstance(remote, RemoteTurn)
        assert await other.stop(session.id) == 1
        assert WORDS.startswith("".join([each.text async for each in remote.events() if isinstance(each, TextDelta)]))
        with pytest.raises(TurnStopped):
            await remote.ended()


async def test_a_request_with_a_key_is_done_once_by_two_servers(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[Delta]:
        begun.set()
        await may_end.wait()
        yield TextDelta("once")

    if "postgres" in storage:  # tokens of other tests would be asked for
        monkeypatch.setenv("CHATBOT_STORAGE__URL", await asyncio.to_thread(fresh_database, "keys"))
    async with opening(slowly, "twice") as one, opening("twice") as other, client(one) as here, client(other) as there:
        session = (await here.post("/v1/sessions", json={})).json()["id"]
        request: dict[str, Any] = {"json": {"text": "Hi", "stream": False}, "headers": {"Idempotency-Key": "mine"}}
        first = asyncio.create_task(here.post(f"/v1/sessions/{session}/chat", **request))
        await begun.wait()
        meanwhile = await there.post(f"/v1/sessions/{session}/chat", **request)
        assert (meanwhile.status_code, meanwhile.json()["error"]["code"]) == (409, "idempotency_cut_off")
        may_end.set()
        assert (await first).json()["reply"] == "once"
        after = await there.post(f"/v1/sessions/{session}/chat", **request)
        assert (after.json()["reply"], "idempotency-replayed" in after.headers) == ("once", True)


@pytest.mark.parametrize("on", ["postgres", pytest.param("files", marks=pytest.mark.nightly)])
def test_a_user_of_a_killed_server_is_answered_whole_by_the_other(
    on: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if on == "postgres":
        request.getfixturevalue("postgres")
        monkeypatch.setenv("CHATBOT_STORAGE__URL", fresh_database("killed"))
    project(f'[model]\nname = "scripted"\nscript = ["{WORDS}"]\n[embedding]\nmodel = ""\n')
    once = {"Idempotency-Key": "once"}
    with (
        serving_http(config=Path("config.toml").read_text()) as there,
        server_process("-c", SLOWLY) as (killed, [url, *_]),
        there.client() as second,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as first,
    ):
        session = first.post("/v1/sessions", json={}).json()["id"]
        place, said = f"/v1/sessions/{session}", {"text": "tell me everything"}
        with first.stream("POST", f"{place}/chat", json=said, headers=once) as stream:
            assert next(events(stream))[0] == "text"
            with second.stream("GET", f"{place}/chat") as listening:
                killed.kill()
                assert [data["error"]["code"] for name, data in events(listening) if name == "error"] == ["turn_lost"]
        again = second.post(f"{place}/chat", json=said, headers=once)  # nobody knows what it led to
        assert (again.status_code, again.json()["error"]["code"]) == (409, "idempotency_cut_off")
        taken = second.delete(f"{place}/messages").json()["data"]
        assert [each["content"] for each in taken] == [said["text"]]
        reply = second.post(f"{place}/chat", json=said | {"stream": False}).json()["reply"]
        kept = [each["content"] for each in second.get(f"{place}/messages").json()["data"]]
        assert kept == [said["text"], reply]


async def _speaking(turn: RunningTurn) -> None:
    """Wait for the first word."""
    async for event in turn.events():
        if isinstance(event, TextDelta):
            return
