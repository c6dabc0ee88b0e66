"""The helper process that holds LiteLLM: the same replies and errors, and nothing of what it need not know."""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from chatbot.config import ModelSettings
from chatbot.errors import KeyRefused, ProviderFailed
from chatbot.frames import read_frame
from chatbot.messages import CallOptions, Finished, Message, TextDelta, ToolCallDelta, ToolSpec
from chatbot.models.helper import Helper, HelperRequest, send
from chatbot.models.warm import WarmModel, socket_path
from tests.patience import PATIENCE_S
from tests.servers.providers import KEY, providers_at

pytest_plugins = ["tests.servers.openai_server"]
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")

IDLE_S = 600.0


def model_at(url: str, behaviour: str, **settings: Any) -> WarmModel:
    given = {"name": f"openai/{behaviour}", "retries": 0, "keep_warm_s": IDLE_S}
    return WarmModel(convert(given | settings, ModelSettings), providers_at(url), is_loaded=lambda: False)


@pytest.fixture
async def helper(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """One that runs in this process; its socket."""
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket has to be short
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        path = socket_path(IDLE_S)
        serving = asyncio.create_task(Helper(IDLE_S).serve(path))
        async with asyncio.timeout(PATIENCE_S):
            while not path.is_socket():  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.01)
        yield path
        serving.cancel()
        await asyncio.wait([serving])


async def test_replies_tools_options_and_prices_are_those_of_a_call_from_here(helper: Path, openai_url: str) -> None:
    prices = {"input_usd_per_million": 10.0, "output_usd_per_million": 100.0}
    async with model_at(openai_url, "says", **prices) as model:
        deltas = [delta async for delta in model.stream([Message("user", "hello")], options=CallOptions(seed=1))]
        assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == "Hello, wörld 🎉."
        assert isinstance(deltas[-1], Finished)
        assert deltas[-1].usage.cost_usd == pytest.approx(120 * 10e-6 + 8 * 100e-6)
        price = await model.price()
        assert price
        assert price.input_usd == pytest.approx(10e-6)
        assert await model.context_window() == 8192
        assert await model.unknown_options(CallOptions(seed=1)) == ()
        await model.check()
    async with model_at(openai_url, "calls-tools") as model:
        tools = [ToolSpec("weather", "Tells the weather.")]
        called = [delta async for delta in model.stream([Message("user", "hello")], tools=tools)]
        assert any(isinstance(delta, ToolCallDelta) for delta in called), called


@pytest.mark.parametrize(
    ("name", "helped"), [("ollama_chat/x", True), ("lm_studio/x", True), ("hosted_vllm/x", True), ("bedrock/x", False)]
)
def test_servers_without_a_key_are_helped_and_logins_by_the_environment_are_not(name: str, *, helped: bool) -> None:
    settings = convert({"name": name, "keep_warm_s": IDLE_S}, ModelSettings)
    assert WarmModel(settings)._can_be_helped() is helped


async def test_errors_are_those_of_a_call_from_here_and_hold_no_key(helper: Path, openai_url: str) -> None:
    async with model_at(openai_url, "denies") as model:
        with pytest.raises(KeyRefused) as caught:
            _ = [delta async for delta in model.stream([Message("user", "hello")])]
    assert KEY not in str(caught.value)


async def test_a_client_that_leaves_stops_the_model(helper: Path, openai_url: str) -> None:
    async with model_at(openai_url, "stalls-later", timeout_s=PATIENCE_S) as model:
        async with aclosing(model.stream([Message("user", "hello")])) as deltas:
            assert isinstance(await anext(deltas), TextDelta)
        async with asyncio.timeout(PATIENCE_S):
            while any("_send" in repr(task) for task in asyncio.all_tasks()):  # noqa: ASYNC110 - the helper's
                await asyncio.sleep(0.01)


async def test_what_is_no_request_is_hung_up_on_and_harms_nobody(helper: Path, openai_url: str) -> None:
    for sent in (b"", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x04nope"):
        reader, writer = await asyncio.open_unix_connection(helper)
        writer.write(sent)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
    reader, writer = await asyncio.open_unix_connection(helper)
    await send(writer, HelperRequest("aclose", ModelSettings(name="openai/x"), {}))  # no question, though a method
    with pytest.raises(asyncio.IncompleteReadError):
        await asyncio.wait_for(read_frame(reader), PATIENCE_S)
    writer.close()
    async with model_at(openai_url, "says") as model:
        assert await model.context_window() == 8192


async def test_a_helper_that_is_gone_is_told_and_not_asked_twice(helper: Path, openai_url: str) -> None:
    async with model_at(openai_url, "says") as model:
        asked = model._asked("price")
        helper.rename(helper.with_suffix(".gone"))
        with pytest.raises(ProviderFailed, match="helper"):
            _ = [answer async for answer in model._answers(asked)]


def test_a_folder_that_others_may_enter_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "chatbot").mkdir(mode=0o755)
    (tmp_path / "chatbot").chmod(0o755)
    with pytest.raises(PermissionError):
        socket_path(IDLE_S)
    (tmp_path / "chatbot").rmdir()
    (tmp_path / "chatbot").symlink_to(tmp_path)
    with pytest.raises(PermissionError):
        socket_path(IDLE_S)


@pytest.mark.nightly
async def test_the_second_question_finds_the_process_that_the_first_one_started(openai_url: str) -> None:
    Path("config.toml").write_text(
        f'[model]\nname = "openai/says"\nkeep_warm_s = 5\n[embedding]\nmodel = ""\n[providers.openai]\n'
        f'api_base = "{openai_url}"\napi_key = "env:MY_KEY"\n',
        encoding="utf-8",
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "MY_KEY": KEY, "OPENAI_API_KEY": KEY}
        command = [sys.executable, "-X", "importtime", "-m", "chatbot", "ask", "--config", "config.toml", "hello"]
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
            assert "Hello, w" in out.decode()
            assert not re.search(rb"litellm$", err, re.MULTILINE)
        [socket] = Path(folder, "chatbot").glob("*.sock")
        assert socket.stat().st_mode & 0o777 == 0o600
        [pid] = _processes_with(str(socket))
        assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        async with asyncio.timeout(PATIENCE_S):
            while _processes_with(str(socket)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        assert not socket.exists()


def _processes_with(argument: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if argument.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
