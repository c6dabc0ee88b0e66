"""Keys of providers: each call carries its own provider's alone, and what repeats them shows or keeps none."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from chatbot.errors import ConfigError
from chatbot.runtime import Options, Setup
from chatbot.stores.text.redaction import KEY_PREFIXES, without_secrets
from tests.command import run
from tests.patience import PATIENCE_S
from tests.servers.http_server import serving
from tests.servers.key_forms import KEY_FORMS

pytest_plugins = ["tests.servers.openai_server"]

SAID = "I moved to Lisbon in May, and my sister Ellen keeps two alpacas there."


def asked_at(url: str) -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        async with asyncio.timeout(10), aiohttp.ClientSession() as session, session.get(f"{url}/requests") as response:
            asked: list[dict[str, Any]] = await response.json()
            return asked

    return asyncio.run(read())


def keys_at(url: str) -> set[str]:
    return {each["headers"]["Authorization"].removeprefix("Bearer ") for each in asked_at(url)}


@pytest.fixture
def urls(openai_url: str) -> tuple[str, str, str]:
    return openai_url, f"{openai_url}-second", f"{openai_url}-third"


@pytest.mark.usefixtures("with_encoders")
def test_chat_titles_extraction_and_embeddings_take_the_keys_of_their_providers(
    urls: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatbot.memory.meaning._QUERY_TIMEOUT_S", PATIENCE_S)  # the first call imports LiteLLM
    one, two, three = urls
    Path("asked.toml").write_text(
        f'[model]\nname = "openai/thinks"\n[providers.openai]\napi_key = "key-of-one"\napi_base = "{one}"\n'
        "thinks_first = true\n"
        f'[extraction]\nenabled = true\nmodel = "mybox/takes-facts"\n'
        f'[providers.mybox]\nkind = "openai"\napi_key = "key-of-two"\napi_base = "{two}"\n'
        f'[embedding]\nmodel = "third/embeds"\n'
        f'[providers.third]\nkind = "openai"\napi_key = "key-of-three"\napi_base = "{three}"\n'
        'headers = {X-Of = "3"}\n'
        '[agents.chat]\nmemory = ["basic_session", "observations"]\ntitle_by_model = true\n',
        encoding="utf-8",
    )
    done = run("ask", "--config", "asked.toml", SAID)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Yes.\n", ""), "nothing of the thoughts"
    assert (keys_at(one), keys_at(two), keys_at(three)) == ({"key-of-one"}, {"key-of-two"}, {"key-of-three"})
    assert len(asked_at(one)) == 2, "the reply and the title"
    assert {each["headers"].get("x-of") for each in asked_at(three)} == {"3"}
    usage = json.loads(run("usage", "--json", "--config", "asked.toml").stdout)
    assert {"chat", "title", "extract", "embed"} <= usage["by_purpose"].keys()


@pytest.mark.parametrize(
    "text",
    [
        '[providers]\nopenai = "sk-a-secret"', 'providers = "sk-a-secret"',
        '[providers.openai]\napi_key = ["sk-a-secret"]', '[providers.openai]\napi_key = "sk-a-secret"\nmemory = 3',
        '[providers.openai]\nheaders = "sk-a-secret"', '[providers.openai.headers]\nX-Key = ["sk-a-secret"]',
        '[providers.opnai]\napi_key = "sk-a-secret"', '[providers.openai]\napi_key = "sk-a-secret"\nkind = "anthropic"',
        "CHATBOT_PROVIDERS__OPENAI {sk-a-secret", "CHATBOT_PROVIDERS__OPENAI__HEADERS {sk-a-secret",
    ],
)  # fmt: skip
def test_an_error_in_the_configuration_or_environment_shows_no_key(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable, _, value = text.partition(" ")
    is_file = not text.startswith("CHATBOT_")
    Path("asked.toml").write_text(text if is_file else "", encoding="utf-8")
    if not is_file:
        monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match="providers" if is_file else "not valid TOML") as caught:
        Setup.resolve(Options(config=Path("asked.toml")))
    assert "sk-a-secret" not in str(caught.value)


OWN = "an+own/key=of-no-known-form"


def test_a_key_that_was_cut_off_is_removed_by_its_beginning() -> None:
    for prefix in KEY_PREFIXES:
        assert "7Qx9Lm2Z" not in without_secrets(f"your key {prefix}7Qx9Lm2Z… is invalid"), prefix
    assert "wx9z" not in without_secrets("Incorrect API key provided: sk-ab****************wx9z.")


@pytest.mark.parametrize("written", [OWN, "an%2Bown%2Fkey%3Dof-no-known-form", json.dumps(OWN)])
def test_a_key_that_is_known_is_removed_however_it_is_written(written: str) -> None:
    assert "no-known-form" not in without_secrets(f"wrong: {written}", [OWN])


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.",
        "The model `gpt-5-mini` does not exist or you do not have access to it.",
        "Rate limit reached for gpt-4o-2024-08-06 in organization on tokens per min (TPM): Limit 30000, Used 29000.",
        "Invalid value: 'messages[0].role'. Supported values are: 'system', 'assistant' and 'user'.",
        "anthropic/claude-sonnet-4-5-20250929 is overloaded, request id req_011CSHoEeqs5C35K2UUqR7Fy",
    ],
)
def test_what_is_no_key_stays(text: str) -> None:
    assert without_secrets(text) == text


def _configure(url: str) -> None:
    Path("asked.toml").write_text(
        '[model]\nname = "openai/repeats-keys"\nretries = 0\n'
        f'[providers.openai]\napi_base = "{url}"\napi_key = "{OWN}"\n'
        '[providers.openai.headers]\nX-Other = "another-secret-of-mine"\n',
        encoding="utf-8",
    )


def _keys_in(text: str) -> list[str]:
    return [name for name, key in {**KEY_FORMS, "own": OWN, "header": "another-secret-of-mine"}.items() if key in text]


def test_no_key_is_printed_or_kept_where_a_provider_repeats_them(openai_url: str) -> None:
    _configure(openai_url)
    for json_ in ([], ["--json"]):
        done = run("ask", "--config", "asked.toml", *json_, "hello")
        assert (done.returncode, "redacted" in done.stdout + done.stderr) == (5, True)
        assert _keys_in(done.stdout + done.stderr) == []
    why = run("why", "--config", "asked.toml").stdout
    assert ("\nerror: openai" in why, "redacted" in why, _keys_in(why)) == (True, True, [])
    kept = [path for path in Path("identities").rglob("*") if path.is_file() and path.suffix in {".md", ".jsonl"}]
    assert {path.name for path in kept} >= {"transcript.md", "receipts.jsonl"}
    for path in kept:
        assert _keys_in(path.read_text("utf-8")) == [], path
    assert any("redacted" in path.read_text("utf-8") for path in kept)


def test_no_key_is_answered_over_http_or_logged(openai_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    _configure(openai_url)
    asked = {"model": "ada", "messages": [{"role": "user", "content": "hi"}]}
    options = Options(config=Path("asked.toml"))
    with serving(options=options, is_scripted=False) as served, served.client() as client:
        answers = [client.post("/v1/chat/completions", json=asked | {"stream": each}) for each in (False, True)]
    for answer in answers:
        assert "redacted" in answer.text
        assert _keys_in(answer.text) == []
    assert _keys_in(caplog.text) == []


def test_keys_and_headers_are_shown_by_no_command(openai_url: str) -> None:
    _configure(openai_url)
    Path("asked.toml").write_text(
        Path("asked.toml").read_text("utf-8")
        + '[providers.mistral]\napi_key = "env:MY_VARIABLE"\n'
        + '[mcp.servers.here]\ncommand = "sh"\nenv = { TOKEN = "another-secret-of-mine" }\n'
        + '[mcp.servers.there]\nurl = "http://127.0.0.1:9"\nheaders = { Authorization = "another-secret-of-mine" }\n',
        encoding="utf-8",
    )
    for command in (["config"], ["config", "--json"], ["config", "trust"], ["doctor"], ["doctor", "--json"],
                    ["doctor", "--network"], ["hooks"], ["usage"]):  # fmt: skip
        done = run(*command, "--config", "asked.toml", MY_VARIABLE="the-value-of-it")
        told = done.stdout + done.stderr
        assert _keys_in(told) == [], command
        assert "the-value-of-it" not in told
    assert 'providers.openai.api_key = "(set)"' in (told := run("config", "--config", "asked.toml").stdout)
    assert 'providers.openai.headers.X-Other = "(set)"' in told
    assert '"env:MY_VARIABLE"' in told
