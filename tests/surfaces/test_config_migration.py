"""`chatbot config migrate`: keys and addresses go into `[providers]`, and what is called with which stays the same."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from chatbot.cli.config_migration import migrate_text
from chatbot.config import Config, EmbeddingSettings, ExtractionSettings
from chatbot.errors import ConfigError
from chatbot.hooks.extraction.extraction_model import settings_of_model
from chatbot.models.provider import Provider
from tests.command import run

OLD = """\
# Mine.
identity = "ada"

[model]  # who answers
name = "openai/gpt-5-mini"   # the small one
api_key = "sk-abc"  # of the team
# it is calm
temperature = 0.2
"""
FILES = {
    "a key": OLD,
    "an address": '[model]\nname = "openai/m"\napi_base = "http://box/v1"\n',
    "a key and an address": '[model]\nname = "openai/m"\napi_key = "k"\napi_base = "http://box/v1"\n',
    "two providers": OLD + '[extraction]\nenabled = true\nmodel = "anthropic/c"\napi_key = "env:A"\n',
    "the same twice": OLD + '[extraction]\nmodel = "openai/nano"\napi_key = "sk-abc"\n',
    "two servers of one kind": '[model]\nname = "openai/m"\napi_base = "http://a/v1"\n[embedding]\nmodel = "openai/e"\n'
    'api_base = "http://b/v1"\n[extraction]\nmodel = "openai/x"\napi_base = "http://c/v1"\n',
    "an embedder elsewhere": '[model]\nname = "openai/m"\n[embedding]\nmodel = "openai/e"\napi_base = "http://b/v1"\n',
    "a chat elsewhere": '[model]\nname = "openai/m"\napi_base = "http://b/v1"\n[embedding]\nmodel = "openai/e"\n',
    "one key of two": OLD + '[extraction]\nmodel = "openai/e"\napi_key = "two"\n',
    "extraction by its other name": OLD + '[memory.extraction]\nmodel = "mistral/m"\napi_key = "m"\n',
    "a bare name": '[model]\nname = "gpt-4o"\napi_key = "k"\n',
    "an inline table": 'model = { name = "openai/m", api_key = "k" }\n',
    "dotted keys": 'model.name = "openai/m"\nmodel.api_key = "k"\n',
    "a provider that is there already": OLD + '[providers.openai]\napi_key = "sk-abc"\n',
    "a provider that is there otherwise": OLD + '[providers.openai]\napi_key = "other"\n',
    "a table behind": OLD + "[providers.mistral]\napi_key = 'm'\n[budget]\nday_usd = 1\n",
    "nothing to do": '[model]\nname = "local/smollm2-135m"\n[embedding]\nmodel = "local/minilm"\n',
    "a key that nothing is called with": '[extraction]\napi_key = "k"\n[model]\nname = "local/x.gguf"\napi_key = "l"\n',
}
NEVER_MOVED = {"nothing to do", "a key that nothing is called with"}


def calls_of(text: str) -> dict[str, dict[str, Any]]:
    """Return the arguments for LiteLLM of each section, as the configuration has it."""
    table = tomllib.loads(text)
    if "extraction" in table.get("memory", {}):
        table["extraction"] = table["memory"].pop("extraction")
    config = convert(table, Config)
    made: dict[str, Any] = {"model": Provider.of(config.model, config.providers)}
    if config.embedding != EmbeddingSettings():
        made["embedding"] = Provider.of(config.embedding, config.providers)
    if config.extraction != ExtractionSettings():
        own = settings_of_model(config.model, config.extraction)
        made["extraction"] = Provider.of(own, config.providers) if own else None
    return {section: provider.arguments() for section, provider in made.items() if provider}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "key-of-anthropic")
    monkeypatch.setenv("OPENAI_API_KEY", "usual-key-of-openai")


@pytest.mark.parametrize("name", FILES)
def test_what_is_called_with_which_key_stays_the_same(name: str) -> None:
    done = migrate_text(FILES[name])
    assert calls_of(done.text) == calls_of(FILES[name])
    assert bool(done.changes) is (name not in NEVER_MOVED)
    if done.changes:
        table = tomllib.loads(done.text)
        for section in ("model", "embedding", "extraction"):
            assert not {"api_key", "api_base"} & table.get(section, {}).keys()


@pytest.mark.parametrize("name", FILES)
def test_doing_it_again_changes_nothing(name: str) -> None:
    once = migrate_text(FILES[name])
    again = migrate_text(once.text)
    assert (again.text, again.changes) == (once.text, [])


@pytest.mark.parametrize("name", FILES)
def test_the_embedding_model_keeps_its_name_for_vectors_are_kept_under_it(name: str) -> None:
    before, after = tomllib.loads(FILES[name]), tomllib.loads(migrate_text(FILES[name]).text)
    assert before.get("embedding", {}).get("model") == after.get("embedding", {}).get("model")


def test_comments_and_all_else_stay() -> None:
    assert (
        migrate_text(OLD).text
        == """\
# Mine.
identity = "ada"

[model]  # who answers
name = "openai/gpt-5-mini"   # the small one
# it is calm
temperature = 0.2

[providers.openai]
api_key = "sk-abc" # of the team
"""
    )


def test_what_is_no_toml_is_an_error() -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        migrate_text("[model\n")


def test_the_file_is_rewritten_with_a_copy_beside_it_and_no_one_else_may_read_either() -> None:
    file = Path("asked.toml")
    file.write_text(OLD, encoding="utf-8")
    file.chmod(0o600)
    dry = run("config", "migrate", "--dry-run", "--config", "asked.toml")
    assert (dry.returncode, file.read_text("utf-8"), len(list(Path().glob("asked*")))) == (0, OLD, 1)
    assert "api_key of [model] → [providers.openai]" in dry.stdout
    done = json.loads(run("config", "migrate", "--json", "--config", "asked.toml").stdout)
    backup = Path(done["backup"])
    assert (backup.name, backup.read_text("utf-8")) == ("asked.toml.bak", OLD)
    assert "sk-abc" in file.read_text("utf-8")
    assert {path.stat().st_mode & 0o777 for path in (file, backup)} == {0o600}
    assert "sk-abc" not in json.dumps(done) + dry.stdout
    again = run("config", "migrate", "--config", "asked.toml")
    assert (again.returncode, "nothing to migrate" in again.stdout) == (0, True)
    file.write_text(OLD, encoding="utf-8")
    assert json.loads(run("config", "migrate", "--json", "--config", "asked.toml").stdout)["backup"].endswith(".bak1")
    assert not list(Path().glob(".asked*"))


def test_a_file_that_was_found_needs_leave_again() -> None:
    Path("config.toml").write_text(OLD, encoding="utf-8")
    assert "chatbot config trust" in run("config", "migrate").stdout
    assert "providers.openai.api_key" in run("config").stderr
    assert run("config", "trust").returncode == 0
    assert run("config").returncode == 0


def test_there_is_nothing_to_migrate_where_there_is_no_file() -> None:
    done = run("config", "migrate")
    assert (done.returncode, "no configuration file" in done.stderr) == (3, True)
