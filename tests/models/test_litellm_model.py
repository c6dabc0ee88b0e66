"""Models behind LiteLLM over HTTP: what arrives, what is retried, how failures are said, what it costs; its import."""

import asyncio
import logging
import subprocess
import sys
import traceback
from contextlib import aclosing
from pathlib import Path
from ssl import SSLCertVerificationError
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from msgspec import convert

from chatbot.config import ModelSettings, ProviderSettings
from chatbot.errors import (
    ContextTooLong,
    KeyRefused,
    ModelError,
    ModelTimeout,
    ProviderFailed,
    RateLimited,
    RequestRefused,
    UnknownModel,
)
from chatbot.messages import (
    Delta,
    Finished,
    Message,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from chatbot.models import Price, call, litellm_import
from chatbot.models.call import TRANSIENT, translate
from chatbot.models.litellm_model import LiteLLMModel
from chatbot.models.provider import Provider
from tests.models.test_scripted import HELLO, text_of
from tests.patience import PATIENCE_S
from tests.servers.providers import KEY, model_at, providers_at, requests_at

pytest_plugins = ["tests.servers.openai_server"]

REPLY = "Hello, wörld 🎉."


async def reply_of(
    model: LiteLLMModel, messages: list[Message] = HELLO, *, seen: list[Any] | None = None, **asked: Any
) -> list[Delta]:
    """All of a reply; `seen` holds what came before a failure, None for each try that may be charged."""
    deltas: list[Any] = [] if seen is None else seen
    async with model, aclosing(model.stream(messages, **asked)) as stream:
        async for delta in stream:
            deltas.append(delta)  # noqa: PERF401 - `seen` holds them if it fails midway
    return deltas


def end_of(deltas: list[Delta]) -> Finished:
    assert isinstance(deltas[-1], Finished)
    return deltas[-1]


async def test_a_reply_arrives_in_pieces_and_ends_once_with_the_usage_that_is_reported(openai_url: str) -> None:
    deltas = await reply_of(model_at(openai_url, "says"))
    assert text_of(deltas) == REPLY
    assert [isinstance(delta, Finished) for delta in deltas] == [False] * 5 + [True]
    assert end_of(deltas).reason == "stop"
    assert end_of(deltas).model == "says"
    assert end_of(deltas).usage == Usage(120, 8, cached_tokens=100, cost_usd=None, estimated=False)


@pytest.mark.parametrize(
    "behaviour",
    ["says-without-usage", "reports-less-than-nothing", "reports-too-much", "reports-nonsense", "drops-after-the-end"],
)
async def test_usage_is_estimated_and_says_so_where_the_provider_reports_none(openai_url: str, behaviour: str) -> None:
    providers = providers_at(openai_url, input_usd_per_million=1.0, output_usd_per_million=2.0)
    model = LiteLLMModel(ModelSettings(name=f"openai/{behaviour}"), providers)
    deltas = await reply_of(model)
    assert text_of(deltas) == REPLY
    usage = end_of(deltas).usage
    assert usage.estimated
    assert usage.input_tokens == await model.count_tokens(HELLO)
    assert usage.output_tokens > 0
    assert usage.cost_usd == pytest.approx(usage.input_tokens * 1e-6 + usage.output_tokens * 2e-6)


async def test_tool_calls_pass_through_in_fragments(openai_url: str) -> None:
    deltas = await reply_of(
        model_at(openai_url, "calls-tools"), tools=[ToolSpec("search", "Search."), ToolSpec("clock", "")]
    )
    calls = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    named = [(0, "call_a", "search"), (1, "call_b", "clock")]
    assert [(call.index, call.id, call.name) for call in calls if call.name] == named
    assert "".join(call.arguments for call in calls if call.index == 0) == '{"query": "sea otters"}'
    assert text_of(deltas) == "Let me look. "
    assert end_of(deltas).reason == "tool_calls"


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [("runs-out-of-tokens", "length"), ("is-filtered", "content_filter"), ("says-nothing", "stop")],
)
async def test_the_reason_of_the_end_is_passed_on(openai_url: str, behaviour: str, reason: str) -> None:
    assert end_of(await reply_of(model_at(openai_url, behaviour))).reason == reason


async def test_the_request_carries_messages_tools_and_settings(openai_url: str) -> None:
    call = ToolCall("call_1", "clock", "{}")
    messages = [*HELLO, Message("assistant", "", tool_calls=(call,)), Message("tool", "noon", tool_call_id="call_1")]
    model = model_at(openai_url, "says", temperature=0.5, top_p=0.9, seed=7, max_output_tokens=50)
    await reply_of(model, messages, tools=[ToolSpec("clock", "The time.")], max_output_tokens=30)
    [request] = await requests_at(openai_url)
    body = request["body"]
    assert request["headers"]["authorization"] == f"Bearer {KEY}"
    told = [{name: value for name, value in message.as_openai().items() if value is not None} for message in messages]
    assert body["messages"] == told
    assert body["tools"] == [ToolSpec("clock", "The time.").as_openai()]
    assert (body["temperature"], body["top_p"], body["seed"], body["max_tokens"]) == (0.5, 0.9, 7, 30)
    assert body["stream_options"] == {"include_usage": True}
    await reply_of(model, max_output_tokens=1000)
    assert (await requests_at(openai_url))[1]["body"]["max_tokens"] == 50  # no more than the settings
    assert set(body) == {
        *("model", "messages", "tools", "temperature", "top_p", "seed", "max_tokens", "stream", "stream_options")
    }


@pytest.mark.parametrize(
    ("behaviour", "error", "message", "advice"),
    [
        ("denies", KeyRefused, "Incorrect API key", "refused the key from api_key in [providers.openai]: correct it"),
        ("forbids", KeyRefused, "may not use this model", "does not allow this with the key from api_key in"),
        ("is-unknown", UnknownModel, "does not exist", "has no such model: try one of `chatbot models list --find`"),
        ("refuses", RequestRefused, "Invalid value", ""),
        ("is-too-small", ContextTooLong, "maximum context length is 4096 tokens", "set context_window in [model]"),
        ("slows-down", RateLimited, "Rate limit reached", "asks to slow down: try again later, or choose another"),
        ("has-no-credit", RequestRefused, "Insufficient balance", "has no credit left: top it up, or choose another"),
        ("has-no-quota", RateLimited, "exceeded your current", "has no credit left: top it up, or choose another"),
        ("fails", ProviderFailed, "had an error", "failed: try again later, or choose another model"),
        ("is-overloaded", ProviderFailed, "overloaded", "failed: try again later, or choose another model"),
        ("fails-at-length", ProviderFailed, "openai/fails-at-length", "failed: try again later"),
        ("drops-at-once", ProviderFailed, "openai/drops-at-once", "failed: try again later"),
        ("never-answers", ModelTimeout, "no answer for 0.5 s", "still loads the model: try again, or raise timeout_s"),
    ],
)
async def test_a_failure_is_said_in_our_words_with_the_provider_s_message_the_server_and_what_to_try(
    openai_url: str, behaviour: str, error: type[ModelError], message: str, advice: str
) -> None:
    retries = 0 if issubclass(error, TRANSIENT) else 3  # what cannot get better is not tried again
    with pytest.raises(error, match=message) as caught:
        await reply_of(model_at(openai_url, behaviour, timeout_s=0.5 if error is ModelTimeout else 20, retries=retries))
    assert len(await requests_at(openai_url)) == 1
    said = str(caught.value)
    assert said.startswith(f"openai/{behaviour}: ")
    assert "litellm" not in said.lower()
    assert "OpenAIException" not in said
    assert said.isprintable()
    assert len(said) < 500
    assert KEY not in said
    assert advice in said
    assert (openai_url in said) is bool(advice)
    assert openai_url not in caught.value.in_public, "guests are not told of servers and keys"


NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("name", "settings", "advice"),
    [
        ("ollama_chat/x", {"api_base": NOBODY}, f"is {NOBODY} running? try `ollama serve`; its address is api_base in"),
        ("ollama_chat/x", {}, "is http://127.0.0.1:1 running? try `ollama serve`"),
        ("lm_studio/x", {"api_base": NOBODY}, "try `lms server start`; its address is api_base in [providers.lm_"),
        ("llamacpp/x", {"api_base": NOBODY, "kind": "openai"}, "try `llama-server -m FILE.gguf`"),
        ("mybox/x", {"api_base": NOBODY, "kind": "openai"}, f"is {NOBODY} running? its address is api_base in [prov"),
    ],
)
async def test_a_server_that_is_not_there_is_named_with_what_starts_it(
    monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, str], advice: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    providers = {name.partition("/")[0]: convert(settings, ProviderSettings)}
    with pytest.raises(ProviderFailed, match="no connection: Connect") as caught:
        await reply_of(LiteLLMModel(ModelSettings(name=name, retries=0), providers))
    assert advice in str(caught.value)
    assert "ssl" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "variable", "value", "address"),
    [
        ("ollama_chat/x", "OLLAMA_HOST", "127.0.0.1:{port}", "http://127.0.0.1:{port}"),
        ("ollama_chat/x", "OLLAMA_HOST", "0.0.0.0", "http://127.0.0.1:11434"),
        ("ollama_chat/x", "OLLAMA_HOST", "[::1", "http://127.0.0.1:11434"),
        ("ollama_chat/x", "OLLAMA_HOST", "http://[::1]:{port}/", "http://[::1]:{port}"), ("ollama_chat/x", "", "", ""),
        ("lm_studio/x", "", "", "http://127.0.0.1:1234/v1"),
        ("lm_studio/x", "LM_STUDIO_API_BASE", "http://127.0.0.1:5/v1", "http://127.0.0.1:5/v1"),
        ("hosted_vllm/x", "", "", "http://127.0.0.1:8000/v1"), ("llamacpp/x", "", "", "http://127.0.0.1:8080/v1"),
        ("local-7001/x", "", "", "http://127.0.0.1:7001/v1"), ("local-x/x", "", "", ""),
    ],
)  # fmt: skip
def test_a_server_on_this_machine_needs_no_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, variable: str, value: str, address: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, value.format(port=7000))
    assert Provider(name).address() == address.format(port=7000)


async def test_a_key_is_in_no_message_traceback_or_log(openai_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(KeyRefused) as caught:
        await reply_of(model_at(openai_url, "denies"))
    assert "[redacted]" in str(caught.value)
    assert openai_url not in caplog.text, "some providers take the key in the address"
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    for secret in (KEY, "hunter2"):
        assert secret not in "".join(traceback.format_exception(caught.value))
        assert secret not in caplog.text


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("no-provider-at-all", ""), ("opnai/gpt", ": did you mean 'openai'\\?"), ("nobody/knows-this", ""), ("/", ""),
        ("😀", ""),
    ],
)  # fmt: skip
async def test_a_name_without_a_known_provider_is_an_unknown_model(name: str, hint: str) -> None:
    model = LiteLLMModel(ModelSettings(name=name, retries=0))
    for refused in (model.check(), reply_of(model)):
        with pytest.raises(UnknownModel, match=f"no provider is known .*smollm2-135m{hint}$"):
            await refused


@pytest.mark.parametrize("behaviour", ["slows-down-once", "fails-once"])
async def test_a_transient_failure_is_tried_again(openai_url: str, behaviour: str) -> None:
    started = asyncio.get_running_loop().time()
    assert text_of(await reply_of(model_at(openai_url, behaviour, retries=1))) == REPLY
    assert len(await requests_at(openai_url)) == 2
    waits = 0.2 if behaviour == "slows-down-once" else 0  # as `Retry-After` says
    assert asyncio.get_running_loop().time() - started >= waits


async def test_a_wait_that_nobody_would_sit_through_is_not_begun(openai_url: str) -> None:
    with pytest.raises(RateLimited) as caught:
        await reply_of(model_at(openai_url, "slows-down-for-an-hour", retries=5))
    assert caught.value.retry_after_s == 3600
    assert len(await requests_at(openai_url)) == 1


@pytest.mark.parametrize(("asked", "wait"), [("-5", 0.0), ("nan", None), ("inf", None), ("1e300", 86_400.0)])
async def test_a_wait_that_makes_no_sense_is_none(openai_url: str, asked: str, wait: float | None) -> None:
    with pytest.raises(RateLimited) as caught:
        await reply_of(model_at(openai_url, f"asks-to-wait-{asked}", retries=0))
    assert caught.value.retry_after_s == wait


@pytest.mark.parametrize(
    "behaviour", ["drops-later", "drops-while-thinking", "ends-without-finishing", "stammers", "fails-midway"]
)
async def test_a_reply_that_breaks_off_is_never_whole_and_never_asked_again(openai_url: str, behaviour: str) -> None:
    seen: list[Delta] = []
    with pytest.raises(ProviderFailed, match="the reply broke off"):
        await reply_of(model_at(openai_url, behaviour, retries=3), seen=seen)
    assert isinstance(seen[0], TextDelta | ReasoningDelta)
    assert seen[0].text.startswith("Half")
    assert not any(isinstance(delta, Finished) for delta in seen)
    assert len(await requests_at(openai_url)) == 1


@pytest.mark.parametrize("behaviour", ["never-answers", "opens-and-stalls", "opens-and-drops", "opens-and-ends"])
async def test_what_ends_before_its_first_word_may_be_charged_and_is_tried_again(
    openai_url: str, behaviour: str
) -> None:
    async with model_at(openai_url, behaviour, timeout_s=2, retries=1) as model:  # a busy machine is slow
        stream = model.stream(HELLO, max_output_tokens=90)
        assert await anext(stream) is None
        with pytest.raises(ModelError, match=r"no answer for 2 s|broke off|holds no reply") as caught:
            await stream.asend(40)
    assert caught.value.is_charged
    assert [asked["body"]["max_tokens"] for asked in await requests_at(openai_url)] == [90, 40]


async def test_silence_litellm_notices_is_no_lost_connection(openai_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MARGIN_S", -1.7)
    with pytest.raises(ModelTimeout, match="still loads the model"):
        await reply_of(model_at(openai_url, "never-answers", timeout_s=2, retries=0))


async def test_silence_midway_is_a_timeout_and_final(openai_url: str) -> None:
    seen: list[Delta] = []
    with pytest.raises(ModelTimeout):
        await reply_of(model_at(openai_url, "stalls-later", timeout_s=0.5, retries=3), seen=seen)
    assert text_of(seen) == "Wait a"
    assert len(await requests_at(openai_url)) == 1


async def test_cancelling_the_reader_hangs_up_on_the_provider(openai_url: str) -> None:
    has_begun = asyncio.Event()

    async def read() -> None:
        async for _ in model.stream(HELLO):
            has_begun.set()

    async with model_at(openai_url, "stalls-later") as model:
        reader = asyncio.create_task(read())
        async with asyncio.timeout(PATIENCE_S):
            await has_begun.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as http:
            assert (await http.get(f"{openai_url}/hung-up")).ok


async def test_closing_one_model_leaves_the_connections_of_the_other(openai_url: str) -> None:
    async with model_at(openai_url, "says") as other, aclosing(other.stream(HELLO)) as deltas:
        assert await anext(deltas) == TextDelta("Hello")
        await reply_of(model_at(openai_url, "says"))
        assert text_of([delta async for delta in deltas]) == REPLY.removeprefix("Hello")


@pytest.mark.parametrize(
    ("settings", "prices", "window", "price"),
    [
        ({"name": "openai/gpt-4o-mini"}, {}, 128_000, Price(0.15e-6, 0.6e-6)),
        ({"name": "openai/gpt-4o-mini"}, {"output_usd_per_million": 4}, 128_000, Price(0.15e-6, 4e-6)),
        ({"name": "openai/never-heard-of"}, {}, 8192, None),
        ({"name": "openai/never-heard-of"}, {"input_usd_per_million": 3}, 8192, None),
        ({"name": "dashscope/qwen3-max"}, {}, 258_048, None),
        ({"name": "fireworks_ai/accounts/fireworks/routers/auto"}, {}, 8192, None),
        (
            {"name": "openai/gpt-4o-mini", "context_window": 1000},
            {"input_usd_per_million": 3, "output_usd_per_million": 4},
            1000,
            Price(3e-6, 4e-6),
        ),
    ],
)
async def test_window_and_price_come_from_the_settings_or_the_table_of_litellm(
    settings: dict[str, Any], prices: dict[str, Any], window: int, price: Price | None
) -> None:
    model = LiteLLMModel(convert(settings, ModelSettings), providers_at("", **prices) if prices else None)
    assert (await model.context_window(), await model.price()) == (window, price)


async def test_a_known_model_is_billed_by_the_table_and_caching_saves(openai_url: str) -> None:
    usage = end_of(await reply_of(model_at(openai_url, "gpt-4o-mini"))).usage
    assert usage.cost_usd == pytest.approx(20 * 0.15e-6 + 100 * 0.075e-6 + 8 * 0.6e-6)


async def test_cached_tokens_cost_what_the_settings_say(openai_url: str) -> None:
    own = providers_at(
        openai_url, input_usd_per_million=1.0, cached_input_usd_per_million=0.1, output_usd_per_million=5.0
    )
    model = LiteLLMModel(ModelSettings(name="openai/says"), own)
    assert end_of(await reply_of(model)).usage.cost_usd == pytest.approx(20e-6 + 100 * 0.1e-6 + 8 * 5e-6)


async def test_a_model_that_was_not_found_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (await litellm_import.litellm()).model_cost
    model = LiteLLMModel(ModelSettings(name="openai/heard-of-later"))
    assert await model.context_window() == 8192
    monkeypatch.setitem(table, "openai/heard-of-later", table["gpt-4o-mini"])
    assert await model.context_window() == 128_000


async def test_a_later_model_in_a_loop_gets_no_client_that_was_closed() -> None:
    clients = []
    for _ in range(2):
        async with LiteLLMModel(ModelSettings(name="anthropic/x")) as model:
            clients.append((await model._litellm()).module_level_aclient)
    assert clients[0] is not clients[1]


def test_clients_are_closed_with_the_last_model_that_uses_their_loop_or_after_its_end() -> None:
    first, second = (LiteLLMModel(ModelSettings(name="anthropic/x")) for _ in range(2))
    closed: list[int] = []

    async def use(number: int) -> None:
        async def close() -> None:
            await asyncio.sleep(0)
            closed.append(number)

        litellm, *_ = await asyncio.gather(first._litellm(), first._litellm(), second._litellm())
        litellm.in_memory_llm_clients_cache.set_cache("client", SimpleNamespace(close=close))
        await second.aclose()

    for number, so_far in enumerate(([], [0], [0, 1])):
        asyncio.run(use(number))
        assert closed == so_far
    asyncio.run(first.aclose())
    assert closed == [0, 1, 2]


@pytest.mark.parametrize("form", ["b'{}'", "{}"])
def test_of_a_body_that_is_given_as_the_message_only_its_own_message_is_said(form: str) -> None:
    body = form.replace("{}", '{"type":"error","error":{"type":"overloaded_error","message":"Over\\ud83dloaded"}}')
    assert str(translate(Exception(f"AnthropicException - {body}"), "anthropic/x")) == "anthropic/x: Over\ufffdloaded"


def test_a_call_that_this_machine_cannot_make_says_what_to_set_or_install() -> None:
    for cause, advice in (
        (SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"), "set SSL_CERT_FILE to a file"),
        (ModuleNotFoundError("No module named 'google.auth'"), "No module named 'google.auth': install the package"),
    ):
        error = Exception(f"litellm.APIConnectionError: {cause}\nTraceback (most recent call last):")
        error.__context__ = cause
        said = str(Provider("openai/x").with_advice(translate(error, "openai/x")))
        assert (advice in said, "Traceback" in said, "online" in said) == (True, False, False)


def run(program: str, *, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    search = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    command = [sys.executable, "-W", "error", "-c", search + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.nightly
def test_the_event_loop_keeps_ticking_while_litellm_is_imported() -> None:
    ran = run("""
import asyncio, time
from chatbot.config import ModelSettings
from chatbot.models import litellm_import, open_model

async def main():
    started = last = time.perf_counter()
    open_model("openai/gpt-4o").warm()
    gaps = []
    while not litellm_import.begin_import().done():
        await asyncio.sleep(0.002)
        gaps.append(time.perf_counter() - last)
        last = time.perf_counter()
    print(len(gaps), max(gaps) / (last - started))

asyncio.run(main())
""")
    assert ran.returncode == 0, ran.stderr
    ticks, longest_share = ran.stdout.split()
    assert int(ticks) > 100
    assert float(longest_share) < 0.4


@pytest.mark.nightly
@pytest.mark.parametrize("moment", ["litellm", "litellm.utils", "openai.resources"])
def test_leaving_while_it_is_imported_is_quick_and_quiet(moment: str) -> None:
    """Else the locks of an import that never ends would hold up what is torn down."""
    ran = run(f"""
import sys, time
from chatbot.models import litellm_import
litellm_import.begin_import()
while {moment!r} not in sys.modules:
    time.sleep(0.001)
""")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_an_import_that_fails_is_told_each_time_and_tried_again_if_something_was_short(tmp_path: Path) -> None:
    (tmp_path / "litellm").mkdir()
    (tmp_path / "litellm" / "__init__.py").write_text("""
import os
if os.environ.setdefault("TRIES", "0") == "0":
    os.environ["TRIES"] = "1"
    raise OSError("too many open files")
raise ImportError('half of it is missing')
""")
    program = """
import asyncio
from chatbot.config import ModelSettings, ProviderSettings
from chatbot.errors import ProviderFailed
from chatbot.messages import Message
from chatbot.models import open_model

async def main():
    providers = {"openai": ProviderSettings(api_key="k")}
    async with open_model(ModelSettings(name="openai/gpt-4o", retries=0), providers) as model:
        for _ in range(3):
            try:
                await anext(model.stream([Message("user", "hello")]))
            except ProviderFailed as error:
                print(error)

asyncio.run(main())
"""
    ran = run(program, path=tmp_path)
    short = "litellm cannot be imported (OSError: too many open files): try again once that is mended"
    said = "litellm cannot be imported (ImportError: half of it is missing): reinstall chatbot-runtime"
    assert (ran.stdout.splitlines(), ran.stderr) == ([short, said, said], "")


@pytest.mark.nightly
def test_nothing_is_fetched_and_no_file_of_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("READ_FROM_A_FILE=1")
    ran = run(f"""
import os, socket
os.chdir({str(tmp_path)!r})
def refuse(*args, **kwargs):
    raise AssertionError("the network was asked")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from chatbot.models import litellm_import
print(litellm_import.begin_import().result().__name__, os.environ.get("READ_FROM_A_FILE"))
""")
    assert (ran.stdout, ran.stderr) == ("litellm None\n", "")
