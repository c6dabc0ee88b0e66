"""Keys of several providers in one configuration, over HTTP: each call carries its own provider's and no other."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from chatbot.errors import ConfigError
from chatbot.runtime import Options, Setup
from tests.command import run

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


def test_the_key_of_the_configured_model_is_not_sent_with_another(urls: tuple[str, str, str]) -> None:
    one, two, _ = urls
    Path("asked.toml").write_text(
        '[model]\nname = "openai/says"\nretries = 0\n'
        f'[providers.openai]\napi_key = "sk-of-openai-0123"\napi_base = "{one}"\n'
        f'[providers.groq]\napi_base = "{two}"\napi_key = "env:OWN_OF_GROQ"\n',
        encoding="utf-8",
    )
    at = ("--config", "asked.toml")
    first = run("ask", *at, "hello")
    assert (first.returncode, keys_at(one), keys_at(two)) == (0, {"sk-of-openai-0123"}, set())
    other = run("ask", *at, "-m", "groq/says", "hello", OWN_OF_GROQ="key-of-groq-0123")
    assert (other.returncode, keys_at(two), len(asked_at(one))) == (0, {"key-of-groq-0123"}, 1)
    missing = run("ask", *at, "-m", "anthropic/claude-sonnet-4-5", "hello")
    assert "set ANTHROPIC_API_KEY, or api_key in [providers.anthropic]" in run("doctor", *at,
        CHATBOT_MODEL__NAME="anthropic/claude-sonnet-4-5").stdout  # fmt: skip
    assert "sk-of-openai" not in missing.stdout + missing.stderr
    assert len(asked_at(one)) == 1


@pytest.mark.usefixtures("with_encoders")
def test_chat_titles_extraction_and_embeddings_take_the_keys_of_their_providers(urls: tuple[str, str, str]) -> None:
    one, two, three = urls
    Path("asked.toml").write_text(
        f'[model]\nname = "openai/says"\n[providers.openai]\napi_key = "key-of-one"\napi_base = "{one}"\n'
        f'[extraction]\nenabled = true\nmodel = "mybox/takes-facts"\n'
        f'[providers.mybox]\nkind = "openai"\napi_key = "key-of-two"\napi_base = "{two}"\n'
        f'[embedding]\nmodel = "third/embeds"\n'
        f'[providers.third]\nkind = "openai"\napi_key = "key-of-three"\napi_base = "{three}"\n'
        'headers = {X-Of = "3"}\n'
        '[agents.chat]\nmemory = ["basic_session", "observations"]\ntitle_by_model = true\n',
        encoding="utf-8",
    )
    done = run("ask", "--config", "asked.toml", SAID)
    assert (done.returncode, done.stderr) == (0, "")
    assert (keys_at(one), keys_at(two), keys_at(three)) == ({"key-of-one"}, {"key-of-two"}, {"key-of-three"})
    assert len(asked_at(one)) == 2, "the reply and the title"
    assert {each["headers"].get("x-of") for each in asked_at(three)} == {"3"}
    usage = json.loads(run("usage", "--json", "--config", "asked.toml").stdout)
    assert {"chat", "title", "extract", "embed"} <= usage["by_purpose"].keys()


@pytest.mark.parametrize(
    "text",
    [
        '[providers]\nopenai = "sk-a-secret"',
        'providers = "sk-a-secret"',
        '[providers.openai]\napi_key = ["sk-a-secret"]',
        '[providers.openai]\napi_key = "sk-a-secret"\nmemory = 3',
        '[providers.openai]\nheaders = "sk-a-secret"',
        '[providers.openai.headers]\nX-Key = ["sk-a-secret"]',
        '[providers.opnai]\napi_key = "sk-a-secret"',
        '[providers.openai]\napi_key = "sk-a-secret"\nkind = "anthropic"',
        "CHATBOT_PROVIDERS__OPENAI {sk-a-secret",
        "CHATBOT_PROVIDERS__OPENAI__HEADERS {sk-a-secret",
    ],
)
def test_an_error_in_the_configuration_or_the_environment_shows_no_key(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, _, value = text.partition(" ")
    is_file = not text.startswith("CHATBOT_")
    Path("asked.toml").write_text(text if is_file else "", encoding="utf-8")
    if not is_file:
        monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match="providers" if is_file else "not valid TOML") as caught:
        Setup.resolve(Options(config=Path("asked.toml")))
    assert "sk-a-secret" not in str(caught.value)
