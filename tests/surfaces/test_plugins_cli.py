"""`chatbot hooks` and `chatbot tools list`: what would run, and what is wrong with it."""

import json
from pathlib import Path

import pytest

from tests.command import from_json, ok, project, run

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

OWN = """
from chatbot.hooks import Hook
from chatbot.stores.basic_session import BasicSessionStore

class Keys(BasicSessionStore):
    def __init__(self, home, *, token: str = "", nodes: list = ()):
        super().__init__(home)

class Raises(Hook):
    '''Raises whatever happens.'''

    topics = ("turn:end",)

    def __init__(self, context, *, why: str = "no reason", token: str = ""):
        super().__init__(context)
        self.why = why

    async def handle(self, event):
        print("I looked")
        raise RuntimeError(self.why)

async def weather(city: str) -> str:
    '''Say how the weather will be.'''
    return f"sun in {city}"
"""


@pytest.fixture(autouse=True)
def _project() -> None:
    project(
        '[model]\nname = "scripted"\nscript = ["Noted."]\n'
        '[hooks."own_plugins:Raises"]\nwhy = "the moon is full"\ntoken = "mine"\npriority = 10\n'
        "[hooks.capture]\nenabled = false\n"
        '[agents.own]\ntools = ["own_plugins:weather"]\n'
        '[agents.bare]\nmemory = ["basic_session"]\n'
        "[agents.none]\ntools = []\n",
        identity='persona = "You are ada."',
    )
    Path("own_plugins.py").write_text(OWN, encoding="utf-8")


def test_hooks_are_listed_by_topic_in_their_order_and_nothing_is_written() -> None:
    names = [line.split()[0] for line in ok("hooks").splitlines() if " turn:end " in line]
    assert names[:3] == ["own_plugins:Raises", "exchange", "boundaries"]
    listed = {hook["name"]: hook for hook in from_json("hooks")}
    assert (listed["capture"]["enabled"], listed["inject"]["priority"]) == (False, 50)
    own = listed["own_plugins:Raises"]
    assert own["settings"] == {"why": "the moon is full", "token": "(set)"}
    assert (own["about"], own["last_failure"]) == ("Raises whatever happens.", None)
    assert not Path("identities/ada/memory").exists()


def test_a_key_of_a_store_is_masked_in_every_list_and_table() -> None:
    nodes = 'nodes = ["postgresql://ada:mine@db", {password = "mine"}, {password = "env:SECRET"}]'
    project(f'[agents.chat]\nmemory = ["own_plugins:Keys"]\n[memory."own_plugins:Keys"]\ntoken = "mine"\n{nodes}\n')
    [store] = [each for each in from_json("stores") if each["used"]]
    masked = ["postgresql://ada:***@db", {"password": "(set)"}, {"password": "env:SECRET"}]
    assert store["settings"] == {"token": "(set)", "nodes": masked}
    assert "mine" not in ok("stores") + ok("config")


@pytest.mark.parametrize("setting", ['token = "mine"', 'priority = [{token = "mine"}]'])
def test_a_key_in_a_setting_of_the_wrong_type_is_not_printed(setting: str) -> None:
    project(f'[hooks."own_plugins:Raises"]\n{setting}\n')
    Path("own_plugins.py").write_text(OWN.replace('token: str = ""', "token: int = 0"), encoding="utf-8")
    done = run("hooks")
    assert (done.returncode, "expected a whole number" in done.stderr, "mine" in done.stderr) == (3, True, False)


@pytest.mark.parametrize("background", [False, True])
def test_what_failed_in_one_process_is_shown_there_and_in_another(*, background: bool) -> None:
    Path("own_plugins.py").write_text(f"{OWN}\nRaises.background = {background}\n", encoding="utf-8")
    asked = run("ask", "--json", "Is the herring of Gotland pickled?")
    assert (json.loads(asked.stdout)["reply"], asked.stderr.count("the moon is full")) == ("Noted.", 1)
    assert (asked.returncode, "I looked\n" in asked.stderr) == (0, True)
    listed = {hook["name"]: hook for hook in from_json("hooks")}
    assert "the moon is full" in listed["own_plugins:Raises"]["last_failure"]["message"]
    assert "the moon is full" in ok("hooks")
    doctor = run("doctor")
    assert (doctor.returncode, "own_plugins:Raises failed at turn:end" in doctor.stdout) == (1, True)
    Path("identities/ada/memory/hook_failures.jsonl").unlink()
    assert "none failed" in run("doctor").stdout


def test_the_tools_of_the_agent_are_listed_with_what_they_do_and_nothing_is_written() -> None:
    shown = ok("tools", "list")
    names = [line.split()[0] for line in shown.splitlines()[1:]]
    assert (names[0], len(names)) == ("memory_search", 5)
    assert "Search memory" in shown
    listed = from_json("tools", "list")
    assert [tool["name"] for tool in listed["tools"]] == names
    assert "query" in listed["tools"][0]["parameters"]["properties"]
    assert not Path("identities/ada/memory").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--agent", "own"], "Say how the weather will be."),
        (["--agent", "bare"], "the stores of the agent 'bare' keep no memories"),
        (["--agent", "none"], "name some in [agents.none] tools"),
        (["-m", "local/smollm2-135m"], "the model local/smollm2-135m does not support tools"),
    ],
)
def test_an_agent_has_its_own_tools_or_is_told_why_it_has_none(arguments: list[str], words: str) -> None:
    assert words in ok("tools", "list", *arguments)
