"""Memory by meaning as it comes: default settings, one-shot commands, and what is said where an encoder is missing."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from chatbot.models.weights import MINILM
from tests import process
from tests.command import ok, project

pytest_plugins = ["tests.servers.openai_server"]
pytestmark = pytest.mark.usefixtures("with_encoders")
SCRIPTED = '[model]\nname = "scripted"\n'


@pytest.fixture(autouse=True)
def _project() -> None:
    project(SCRIPTED)


def test_what_is_added_by_one_command_is_found_in_other_words_by_the_next() -> None:
    ok("memory", "add", "Peanuts make my throat swell up")
    assert "Peanuts" in ok("memory", "search", "what am I allergic to?")


def test_without_the_encoders_words_alone_count_and_doctor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatbot.models.local_encoder.PARTS", (replace(MINILM, module="no_such_package"),))
    ok("memory", "add", "Peanuts make my throat swell up")
    assert "Peanuts" in ok("memory", "search", "peanuts")
    told = ok("doctor")
    assert "search uses words only" in told
    assert "reindex --embed" not in told


@pytest.mark.nightly
def test_a_slow_import_of_litellm_does_not_turn_one_shot_commands_to_words(openai_url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Slow:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'litellm':\n"
        "            time.sleep(6)\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    Path("asked.toml").write_text(
        f'{SCRIPTED}[embedding]\nmodel = "mine/embeds"\n'
        f'[providers.mine]\nkind = "openai"\napi_key = "k"\napi_base = "{openai_url}"\n'
    )
    ok("memory", "add", "Peanuts make my throat swell up", "--config", "asked.toml")
    for arguments in (("memory", "search", "tea"), ("ask", "tea"), ("prompt", "--dry-run", "--new", "tea")):
        done = process.run(*arguments, "--config", "asked.toml", PYTHONPATH=str(tmp_path))
        assert (done.returncode, done.stderr) == (0, "")


def test_one_line_of_configuration_turns_it_off() -> None:
    project(SCRIPTED + '[embedding]\nmodel = ""\n')
    ok("memory", "add", "Peanuts make my throat swell up")
    assert "Peanuts" not in ok("memory", "search", "what am I allergic to?")
