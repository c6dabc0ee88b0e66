"""`chatbot tools list`: what the model would be offered."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests import command

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

OWN = '''
async def weather(city: str) -> str:
    """Say how the weather will be."""
    return f"sun in {city}"
'''


@pytest.fixture(autouse=True)
def _project() -> None:
    command.project(
        '[model]\nname = "scripted"\n'
        '[agents.own]\ntools = ["own_tools:weather"]\n'
        '[agents.bare]\nmemory = ["basic_session"]\n'
        "[agents.none]\ntools = []\n",
        identity='persona = "You are ada."',
    )
    Path("own_tools.py").write_text(OWN, encoding="utf-8")


run = partial(command.run, "tools", "list")


def test_the_tools_of_the_agent_are_listed_with_what_they_do_and_nothing_is_written() -> None:
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert names[0] == "memory_search"
    assert len(names) == 6
    assert "Search memory" in done.stdout
    listed = json.loads(run("--json").stdout)
    assert [tool["name"] for tool in listed["tools"]] == names
    assert "query" in listed["tools"][0]["parameters"]["properties"]
    assert not Path("identities/ada/memory").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--agent", "own"], "Say how the weather will be."),
        (["--agent", "bare"], "the stores of the agent 'bare' keep no memories"),
        (["--agent", "none"], "name some in [agents.none] tools"),
        (["-m", "local/smollm2-135m"], "the model local/smollm2-135m takes no tools"),
    ],
)
def test_an_agent_has_its_own_tools_or_is_told_why_it_has_none(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert words in done.stdout
