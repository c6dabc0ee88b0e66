"""`chatbot serve` and `chatbot token` as processes: where they listen, how they stop, and what a kill loses."""

import asyncio
import errno
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack, suppress
from itertools import zip_longest
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chatbot.chat.dialogue import STOPPED
from chatbot.cli.run import cancel_on_signals
from chatbot.config import ServerSettings
from chatbot.errors import ConfigError
from chatbot.models import ScriptedModel
from chatbot.options import Options, Setup
from chatbot.runtime import Runtime
from chatbot.server.app import Envelope
from chatbot.server.callers import Tokens
from chatbot.server.errors import REQUEST
from chatbot.server.identities import Identities
from chatbot.server.serve import _until_cancelled, address_of, listen_on, require_token, serve, uvicorn_config
from tests import command
from tests.memory.test_meaning import LetterEmbedder
from tests.patience import PATIENCE_S
from tests.servers.http_server import events, server_process, serving

SCRIPT = "word " * 9000


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_others_may_not_reach_it_while_nobody_has_a_token(host: str) -> None:
    command.fails(3, "which requires a token: create one with `chatbot token add", "serve", "--host", host)


def test_a_database_without_the_tokens_of_the_folder_opens_to_nobody(tmp_path: Path) -> None:
    command.from_json("token", "add", "phone", "--clearance", "full")
    with pytest.raises(ConfigError, match=r"has no tokens, but .* copy them with `chatbot storage copy "):
        require_token("127.0.0.1", Tokens(tmp_path / "database"), Setup.resolve(Options()))


def test_a_port_that_is_taken_is_told_and_so_is_a_host_that_cannot_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command.fails(3, "is not available", "serve", "--port", str(taken.getsockname()[1]))
    with pytest.raises(ConfigError, match="this cannot be the name of a host"):
        listen_on("a..b", 0)
    with pytest.raises(ConfigError, match=r"assign|family"):  # its zone is read, and no machine here has it
        listen_on(f"fe80::99%{socket.if_nameindex()[0][1]}", 0)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_with_a_token_others_may_reach_it_and_it_stops_in_order_and_keeps_what_was_said(
    end: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("config.toml").write_text(f'[model]\nname = "scripted"\nscript = ["{SCRIPT}"]\n', encoding="utf-8")
    token = command.from_json("token", "add", "phone", "--clearance", "full")["token"]
    with server_process("-m", "chatbot", "serve", "--port", "0", "--host", "0.0.0.0") as (process, [url, *_]):
        local, own = url.replace("0.0.0.0", "127.0.0.1"), {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=local, timeout=PATIENCE_S, headers=own) as client:
            for headers, status in (({}, 200), ({"Authorization": ""}, 401), ({"Host": "evil.example"}, 421)):
                assert client.get("/v1/models", headers=headers).status_code == status
            session = client.post("/v1/sessions", json={}).json()["id"]
            with client.stream("POST", f"/v1/sessions/{session}/chat", json={"text": "talk to me"}) as response:
                told = events(response)
                next(told)
                process.send_signal(end)
                with suppress(httpx.HTTPError):  # it is cut off where it does not end in time
                    list(told)
        assert process.wait(PATIENCE_S) == (143 if end == signal.SIGTERM else 130)
    assert "still closing" not in capfd.readouterr().err, "one signal counts once"
    said = command.from_json("sessions", "show", session)["entries"]
    words = said[1]["content"].split()
    marks = [] if len(words) == len(SCRIPT.split()) else [("error", STOPPED)]  # if it did not end in time
    assert {*words} == {"word"}
    assert [(entry["role"], entry["content"]) for entry in said[2:]] == marks


def test_it_says_at_its_start_who_is_not_remembered_and_the_log_names_time_and_request_of_a_failure(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with server_process("-m", "chatbot", "serve", "--port", "0", "-m", "local/none.gguf") as (_, [url, *_]):
        asked = {"model": "ada", "messages": [{"role": "user", "content": "hi"}]}
        answer = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=PATIENCE_S)
    assert answer.status_code == 503
    request = f"{answer.headers['x-request-id']} POST /v1/chat/completions"
    log = capfd.readouterr().err
    assert "clients that name no session are not remembered" in " ".join(log.split())
    [line] = [each for each in log.splitlines() if request in each]
    assert re.match(r"[-\d]{10}T[:\d]{8}[+-]\d{4} ERROR chatbot\.server\.errors \[req_.*\]: 503 missing_model: ", line)


async def test_the_log_names_no_key_no_project_and_no_file_of_an_address() -> None:
    async def say(_: Request) -> Response:
        return Response(REQUEST.get())

    app = httpx.ASGITransport(Envelope(Starlette(routes=[Route("/{rest:path}", say)])))
    async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
        for address in ("memories/by-key/", "profile/", "projects/", "sessions/1/files/"):
            assert (await client.get(f"/v1/{address}a/diagnosis%2F1?q=it")).text.endswith(f" GET /v1/{address}…]")
        assert (await client.get("/v1/sessions/1/chat")).text.endswith(" GET /v1/sessions/1/chat]")


async def test_a_request_that_the_end_cuts_off_is_answered_like_a_write_of_unknown_outcome() -> None:
    has_begun = asyncio.Event()

    async def endless(_: Request) -> Response:
        has_begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    app = Envelope(Starlette(routes=[Route("/v1/chat/completions", endless, methods=["POST"])]))
    server = uvicorn.Server(uvicorn_config(app, ServerSettings(), grace_s=0))
    with listen_on("127.0.0.1", 0) as sock:
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            asking = asyncio.create_task(client.post(f"{address_of('127.0.0.1', sock)}/v1/chat/completions"))
            await has_begun.wait()
            server.should_exit = True
            answer = await asking
            await serving
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "outcome_unknown")
    assert answer.json()["error"]["message"].startswith("the server stopped before this was complete")
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("keys", ["", "123"], ids=["plain", "with keys"])
def test_a_stream_that_the_end_cuts_off_ends_with_the_error_event_of_its_protocol_and_no_traceback_in_the_log(
    keys: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CHATBOT_SERVER__SHUTDOWN_S", "0")
    asked = {"model": "ada", "stream": True}
    bodies = {
        "/v1/chat/completions": asked | {"messages": [{"role": "user", "content": "talk"}]},
        "/v1/responses": asked | {"input": "talk"},
    }
    with ExitStack() as stack:
        with serving([SCRIPT] * 3, delay_s=0.05) as served:
            client = stack.enter_context(served.client())
            session = client.post("/v1/sessions", json={}).json()["id"]
            bodies[f"/v1/sessions/{session}/chat"] = {"text": "talk"}
            told = []
            for (path, body), key in zip_longest(bodies.items(), keys):
                headers = {"Idempotency-Key": key} if key else {}
                stream = stack.enter_context(client.stream("POST", path, json=body, headers=headers))
                told.append(events(stream))
            assert all(next(each) for each in told)
        [*_, (_, failed), done], [*_, last], [*_, (name, error)] = (list(each) for each in told)
    assert (failed["error"]["code"], done) == ("outcome_unknown", ("", "[DONE]"))
    assert (last[0], last[1]["response"]["error"]["code"]) == ("response.failed", "outcome_unknown")
    assert (name, error["error"]["code"]) == ("error", "outcome_unknown")
    assert "Cancel 3 running task" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_token_is_shown_once_and_kept_as_a_hash_that_others_cannot_read() -> None:
    made = command.from_json("token", "add", "phone", "--for", "ada", "--clearance", "familiar", "--rate", "7")
    assert made["token"].startswith("cbt_")
    assert (made["clearance"], made["rate_per_minute"], made["identities"]) == ("familiar", 7, ["ada"])
    file = next(Path.home().rglob("tokens.json"))
    assert made["token"] not in file.read_text(encoding="utf-8")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    listed = command.ok("token", "list")
    assert made["id"] in listed
    assert "phone" in listed
    assert made["token"] not in listed
    assert "sha256" not in command.ok("token", "list", "--json")
    renewed = command.from_json("token", "renew", "phone")
    assert {name for name in made if made[name] != renewed[name]} == {"token"}
    assert made["id"] in command.ok("token", "revoke", "phone")
    assert "No tokens yet" in command.ok("token", "list")


def test_what_is_wrong_with_a_token_is_told() -> None:
    command.from_json("token", "add", "twin", "--clearance", "public")
    command.fails(2, "--clearance", "token", "add", "phone")
    command.fails(4, "identity", "token", "add", "phone", "--clearance", "full", "--for", "nobody")
    command.fails(4, "no tokens are called", "token", "revoke", "nothing")
    command.fails(2, "choose another label", "token", "add", "twin", "--clearance", "public")


WITHOUT_EXTRA = """
import sys
sys.modules[sys.argv[1]] = None
from chatbot.cli.main import main
raise SystemExit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(("package", "start", "extra"), [("fastapi", "serve", "web"), ("mcp", "mcp", "mcp")])
def test_without_the_extra_the_one_command_that_brings_it_is_told(package: str, start: str, extra: str) -> None:
    arguments = [sys.executable, "-c", WITHOUT_EXTRA, package, start]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"pip install 'chatbot-runtime[{extra}]'" in done.stderr


def test_mcp_over_http_needs_no_extra_but_its_own() -> None:
    Path("config.toml").write_text('[model]\nname = "scripted"\n', encoding="utf-8")
    arguments = ("-c", WITHOUT_EXTRA, "fastapi", "mcp", "--http", "--port", "0")
    with server_process(*arguments, told="stderr") as (process, words):
        assert httpx.get(words[-1]).status_code == 405  # a client that would only listen
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


class SlowModel(ScriptedModel):
    """Ready when it is told to be."""

    def __init__(self) -> None:
        super().__init__(["Hello."])
        self.asked, self.loaded = asyncio.Event(), asyncio.Event()

    async def ready(self) -> None:
        self.asked.set()
        await self.loaded.wait()


@pytest.mark.usefixtures("with_encoders")
async def test_it_is_announced_when_the_model_and_the_encoders_are_loaded() -> None:
    model, embedder = SlowModel(), LetterEmbedder()
    Path("config.toml").write_text("", encoding="utf-8")
    announced: asyncio.Queue[str] = asyncio.Queue()
    async with Identities(
        Options(port=0), open_runtime=lambda options: Runtime(options, model=model, embedder=embedder)
    ) as identities:
        serving = asyncio.create_task(serve(identities, ready=announced.put_nowait))
        async with asyncio.timeout(PATIENCE_S):
            await model.asked.wait()
            assert announced.empty()
            model.loaded.set()
            assert (await announced.get()).startswith("http://127.0.0.1:")
        assert embedder.calls
        serving.cancel()
        await asyncio.wait([serving])


def test_a_signal_in_the_moment_of_the_announcement_ends_it() -> None:
    async def main() -> None:
        cancel_on_signals()
        async with Identities(Options(port=0, model="scripted")) as identities:
            await serve(identities, ready=lambda _: signal.raise_signal(signal.SIGTERM))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


async def test_a_second_ctrl_c_waits_for_no_request_and_a_third_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server, is_ready = uvicorn.Server(uvicorn.Config("none")), asyncio.Event()
    request, ended = asyncio.create_task(asyncio.Event().wait()), asyncio.get_running_loop().create_future()
    server.server_state.tasks.add(request)  # type: ignore[arg-type]
    monkeypatch.setattr(server, "serve", lambda _: asyncio.wait([request]))
    monkeypatch.setattr("chatbot.server.serve.server_of", lambda _: server)
    async with Identities(Options(port=0, model="scripted")) as identities:
        serving = asyncio.create_task(serve(identities, ready=lambda _: is_ready.set()))
        await is_ready.wait()
        before = signal.getsignal(signal.SIGINT)
        serving.cancel()
        await asyncio.wait([serving], timeout=0.1)
        signal.raise_signal(signal.SIGINT)
        await asyncio.wait([serving])
        monkeypatch.setattr("os._exit", ended.set_result)
        signal.raise_signal(signal.SIGINT)  # while the rest is closed
        assert await ended == 130
        signal.signal(signal.SIGINT, before)


async def test_without_a_free_descriptor_one_line_of_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def accept(_: socket.socket) -> None:
        loop.call_soon(serving.cancel)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    loop = asyncio.get_running_loop()
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(socket.socket, "accept", accept)
    with listen_on("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname()):
        server = uvicorn.Server(uvicorn_config(Starlette(), ServerSettings(), grace_s=0))
        serving = asyncio.create_task(_until_cancelled(server, sock))
        await asyncio.wait([serving])
    reported = [line for line in caplog.messages if "accept" in line]
    assert reported == [
        "no connection can be accepted: Too many open files: raise the limit of open files, as with `ulimit -n`"
    ]


async def test_an_identity_that_cannot_be_opened_keeps_no_door_shut() -> None:
    def fails(_: Options) -> Runtime:
        raise ConfigError("broken")

    async with Identities(Options(port=0), open_runtime=fails) as identities:
        await identities.warm()
