"""Keys that a provider repeats in an error are in nothing that people read or that is kept."""

import json
from pathlib import Path

import pytest

from chatbot.models.call import translate
from chatbot.redaction import KEY_PREFIXES, redact, without_secrets
from chatbot.runtime import Options
from tests.command import run
from tests.servers.http_server import Serve
from tests.servers.key_forms import KEY_FORMS

pytest_plugins = ["tests.servers.openai_server"]

OWN = "an+own/key=of-no-known-form"
SENTENCES = (
    "{}",
    "Incorrect API key provided: {}.",
    "Invalid key {}, see the documentation",
    '{{"error": {{"message": "token {} is revoked"}}}}',
    "Authorization: Bearer {}",
    "https://api.example.com/v1?key={}&x=1",
    "`{}`",
    "({})",
)


def test_a_key_of_a_known_form_is_removed_from_what_a_provider_says() -> None:
    for form, key in KEY_FORMS.items():
        for sentence in SENTENCES:
            error = str(translate(Exception(sentence.format(key)), "openai/x"))
            assert key not in error, (form, sentence)
            assert key[6:-4] not in error, (form, sentence, "nor a part of it")


def test_the_same_forms_are_removed_from_what_is_remembered() -> None:
    loose = {"openai, masked", "openai, short", "perplexity", "langfuse"}  # too likely to be something else
    for form in KEY_FORMS.keys() - loose:
        assert KEY_FORMS[form] not in redact(f"The key is {KEY_FORMS[form]}, as I said.")[0], form


def test_a_key_that_was_cut_off_is_removed_by_its_beginning() -> None:
    for prefix in KEY_PREFIXES:
        assert "7Qx9Lm2Z" not in without_secrets(f"your key {prefix}7Qx9Lm2Z… is invalid"), prefix


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
    kept = [path for path in Path("identities").rglob("*") if path.is_file() and path.suffix in {".md", ".jsonl"}]
    assert {path.name for path in kept} >= {"transcript.md", "receipts.jsonl"}
    for path in kept:
        assert _keys_in(path.read_text("utf-8")) == [], path
    assert any("redacted" in path.read_text("utf-8") for path in kept)


def test_no_key_is_answered_over_http_or_logged(openai_url: str, http: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    _configure(openai_url)
    served = http(options=Options(config=Path("asked.toml")), is_scripted=False)
    with served.client() as client:
        answers = [
            client.post("/v1/chat/completions", json={"model": "ada", "messages": [{"role": "user", "content": "hi"}]}),
            client.post("/v1/chat/completions", json={"model": "ada", "stream": True,
                                                      "messages": [{"role": "user", "content": "hi"}]}),
        ]  # fmt: skip
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
    assert "providers.openai.api_key = '(set)'" in run("config", "--config", "asked.toml").stdout
    assert "providers.openai.headers.X-Other = '(set)'" in run("config", "--config", "asked.toml").stdout
    assert "'env:MY_VARIABLE'" in run("config", "--config", "asked.toml").stdout
