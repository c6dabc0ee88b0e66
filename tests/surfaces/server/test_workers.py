"""`chatbot serve --workers`: several processes on one socket answer like one."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from chatbot.errors import ConfigError, ProviderFailed
from chatbot.messages import TextDelta
from chatbot.models.scripted import Reply, ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.server.app import create_app
from chatbot.server.callers import OWNER
from chatbot.server.errors import TurnStopped
from chatbot.server.identities import Identities
from chatbot.server.siblings import Siblings
from chatbot.server.turns import LiveTurn
from chatbot.server.workers import serve_with_workers
from chatbot.stores.errors import ConflictingChange
from tests.command import project, run
from tests.patience import PATIENCE_S
from tests.postgres import fresh_database
from tests.servers.http_server import events, wait_until

pytest_plugins = ["tests.servers.openai_server"]

PLAIN = '[model]\nname = "scripted"\n[embedding]\nmodel = ""\n[agents.chat]\nmemory = ["basic_session"]\n'
WORDS = "word " * 2000


@asynccontextmanager
async def houses(*replies: Reply, delay_s: float = 0.0) -> AsyncIterator[list[Identities]]:
    """Two workers in this process, which have each other as siblings."""
    project(PLAIN)
    folder = Path("s")
    folder.mkdir()

    def opened(options: Options) -> Runtime:
        return Runtime(options, model=ScriptedModel(replies, delay_s=delay_s))

    async with AsyncExitStack() as stack:
        options = Options(config=Path("config.toml"))
        workers = [Identities(options, open_runtime=opened, siblings=Siblings(folder, n, 2)) for n in range(2)]
        yield [await stack.enter_async_context(identities) for identities in workers]


@pytest.fixture(autouse=True)
def _short_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the address of a socket has a hundred characters: it is relative here


async def test_a_turn_is_listed_listened_to_and_stopped_through_another_worker() -> None:
    async with houses(WORDS, delay_s=0.005) as (one, other):
        here, there = await one.access(OWNER), await other.access(OWNER)
        session = await here.new_session()
        assert not await there.is_answered(session.id)
        turn = await here.begin_turn(session.id, "talk to me")
        (heard,) = await there.turns_under_way(session.id)
        assert (heard.text, heard.begun_at) == ("talk to me", turn.begun_at)
        async for event in heard.events():
            if isinstance(event, TextDelta):
                break
        await heard.stop()
        for each in (turn, heard):
            with pytest.raises(TurnStopped):
                await each.ended()
        assert await there.turns_under_way(session.id) == []
        (late,) = await there.turns_lately(session.id)
        assert await _text(late) == await _text(turn) != ""


async def test_another_worker_hears_the_same_reply_and_receipt() -> None:
    async with houses("It is in aisle 4") as (one, other):
        here, there = await one.access(OWNER), await other.access(OWNER)
        session = await here.new_session()
        turn = await here.begin_turn(session.id, "Where is the milk?")
        heard = (await there.turns_lately(session.id))[0]
        assert await _text(heard) == await _text(turn) == "It is in aisle 4"
        assert await heard.ended() == await turn.ended()


async def test_another_worker_hears_of_the_same_error() -> None:
    async with houses(ProviderFailed("out of order")) as (one, other):
        here, there = await one.access(OWNER), await other.access(OWNER)
        session = await here.new_session()
        await here.begin_turn(session.id, "Hello?")
        with pytest.raises(ProviderFailed, match="out of order"):
            await (await there.turns_lately(session.id))[0].ended()


async def test_settings_that_one_worker_saves_are_those_of_the_other() -> None:
    async with houses(WORDS, delay_s=0.005) as (one, other):
        here, there = await one.access(OWNER), await other.access(OWNER)
        session = await here.new_session()
        turn = await there.begin_turn(session.id, "talk to me")
        with pytest.raises(ConflictingChange):
            await one.check_at_rest(here.identity)
        await turn.stop()
        former = there.runtime
        await asyncio.wait([turn.task])
        await one.reopen(here.identity)
        async with asyncio.timeout(PATIENCE_S):
            while (await other.access(OWNER)).runtime is former:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)


async def test_a_worker_that_is_alone_has_no_siblings() -> None:
    alone = Siblings()
    assert await alone.turns(("ada", "x")) == []
    assert not await alone.are_busy("ada")
    await Siblings(Path("nowhere"), 0, 3).reopen("ada")  # neither is there


def test_metrics_that_are_read_from_one_process_are_refused() -> None:
    project(PLAIN + "[telemetry]\nprometheus = true\n")
    with pytest.raises(ConfigError, match="collector"):
        serve_with_workers(2, Options(config=Path("config.toml")), ready=lambda _: None)


def test_two_workers_serve_are_replaced_and_stop() -> None:
    project(PLAIN)
    with serving_workers() as (process, url), http_of(url) as client:
        first = _workers(process)
        assert len(first) == 2
        session = client.post("/v1/sessions", json={}).json()["id"]
        said = {"text": "Hi", "stream": False}
        assert client.post(f"/v1/sessions/{session}/chat", json=said).is_success
        os.kill(first[0], signal.SIGKILL)
        wait_until(lambda: len(now := _workers(process)) == 2 and first[0] not in now)
        with http_of(url) as another:
            assert len(another.get(f"/v1/sessions/{session}/messages").json()["data"]) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
        assert not any(Path(f"/proc/{pid}").exists() for pid in first)


@pytest.mark.nightly
@pytest.mark.parametrize("storage", ["files", "postgres"])
def test_turns_of_one_session_keep_their_order_through_many_connections(
    storage: str, request: pytest.FixtureRequest
) -> None:
    project(PLAIN + _storage(storage, request), f"w{os.getpid()}-{storage}")
    identity = f"?identity=w{os.getpid()}-{storage}"
    with serving_workers() as (process, url), ThreadPoolExecutor(8) as pool:
        assert len(_workers(process)) == 2
        with http_of(url) as client:
            session = client.post(f"/v1/sessions{identity}", json={}).json()["id"]

        def say(number: int) -> str:
            with http_of(url) as client:
                said = {"text": f"text {number}", "stream": False}
                answer = client.post(f"/v1/sessions/{session}/chat{identity}", json=said)
                assert answer.is_success, answer.text
                return str(answer.json()["reply"])

        replies = list(pool.map(say, range(24)))
        with http_of(url) as client:
            told = client.get(f"/v1/sessions/{session}/messages{identity}&limit=100").json()["data"]
    assert [each["role"] for each in told] == ["user", "assistant"] * 24
    assert Counter(each["content"] for each in told[::2]) == Counter(f"text {n}" for n in range(24))
    for question, answer in zip(told[::2], told[1::2], strict=True):
        assert answer["content"] == f"You said: {question['content']}" == replies[int(question["content"][5:])]


@pytest.mark.nightly
@pytest.mark.parametrize("storage", ["files", "postgres"])
def test_a_worker_that_is_killed_in_a_stream_ends_it_and_loses_nothing_that_was_acknowledged(
    storage: str, request: pytest.FixtureRequest, openai_url: str
) -> None:
    name = f"k{os.getpid()}-{storage}"
    model = (
        PLAIN.replace("scripted", "openai/stalls-later")
        + f'[providers.openai]\napi_key = "x"\napi_base = "{openai_url}"\n'
    )
    project(model + _storage(storage, request), name)
    with serving_workers() as (process, url), http_of(url) as client:
        session = client.post(f"/v1/sessions?identity={name}", json={"title": "mine"}).json()["id"]
        path = f"/v1/sessions/{session}/chat?identity={name}"
        pids = _workers(process)
        with http_of(url) as speaker, speaker.stream("POST", path, json={"text": "talk to me"}) as response:
            told = events(response)
            assert next(told)[0] == "text"  # so the message is on the disk
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(httpx.HTTPError):  # not a whole answer
                list(told)
        wait_until(lambda: len(_workers(process)) == 2)
        with http_of(url) as another:
            joined = another.get(path)
            assert joined.status_code == 204 or (storage == "postgres" and "turn_lost" in joined.text)
            told_after = another.get(f"/v1/sessions/{session}/messages?identity={name}").json()["data"]
            assert told_after[0]["content"] == "talk to me"
            assert another.get(f"/v1/sessions?identity={name}").json()["data"][0]["title"] == "mine"
            with another.stream("POST", path, json={"text": "and again"}) as response:
                assert next(events(response))[0] == "text"  # the session goes on
                assert another.delete(path).json()["stopped"] == 1  # through either worker


@pytest.mark.nightly
def test_a_stop_lets_a_reply_finish_and_takes_no_new_requests() -> None:
    project(PLAIN.replace('"scripted"\n', f'"scripted"\nscript = ["{WORDS}"]\n', 1))
    with serving_workers() as (process, url), http_of(url) as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        with client.stream("POST", f"/v1/sessions/{session}/chat", json={"text": "talk to me"}) as response:
            told = events(response)
            next(told)
            process.send_signal(signal.SIGTERM)
            assert [name for name, _ in told][-1] == "done"
        assert process.wait(PATIENCE_S) == 143
    said = json.loads(run("sessions", "show", session, "--json").stdout)["entries"]
    assert said[1]["content"].strip() == WORDS.strip()


@pytest.mark.nightly
def test_workers_end_with_their_supervisor() -> None:
    project(PLAIN)
    with serving_workers() as (process, _):
        pids = _workers(process)
        process.kill()
        wait_until(lambda: not any(_is_alive(pid) for pid in pids))


def _storage(name: str, request: pytest.FixtureRequest) -> str:
    """Settings of the storage: a database of its own, for tokens of other tests would be asked for."""
    if name == "files":
        return ""
    request.getfixturevalue("postgres")
    return f'[storage]\nurl = "{fresh_database("workers")}"\n'


@contextmanager
def serving_workers() -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "chatbot", "serve", "--config", "config.toml", "--workers", "2", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[0]
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            process.wait(PATIENCE_S)


def _workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes of the workers."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def _is_alive(pid: int) -> bool:
    try:
        return not re.search(r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return False


def http_of(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=PATIENCE_S)


def _client(identities: Identities) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(identities), client=("127.0.0.1", 1)), base_url="http://localhost"
    )


async def _text(turn: LiveTurn) -> str:
    return "".join([event.text async for event in turn.events() if isinstance(event, TextDelta)])
