"""`chatbot hooks`, and what `chatbot doctor` says of failures in another process."""

import json
from pathlib import Path

import pytest

from tests.command import project, run

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

OWN = """
from chatbot.hooks import Hook

class Raises(Hook):
    '''Raises whatever happens.'''
    topics = ("turn:end",)
    def __init__(self, context, *, why: str = "no reason"):
        super().__init__(context)
        self.why = why
    async def handle(self, event):
        raise RuntimeError(self.why)
"""


@pytest.fixture(autouse=True)
def _project() -> None:
    project(
        '[model]\nname = "scripted"\nscript = ["Noted."]\n'
        '[hooks."own_hooks:Raises"]\nwhy = "the moon is full"\npriority = 10\n[hooks.capture]\nenabled = false\n',
        identity='persona = "You are ada."',
    )
    Path("own_hooks.py").write_text(OWN, encoding="utf-8")


def test_hooks_are_listed_by_topic_in_their_order_and_nothing_is_written() -> None:
    done = run("hooks")
    assert (done.returncode, done.stderr) == (0, "")
    names = [line.split()[0] for line in done.stdout.splitlines() if " turn:end " in line]
    assert names == ["own_hooks:Raises", "exchange", "boundaries", "extraction", "summarize", "episode"]
    listed = {hook["name"]: hook for hook in json.loads(run("hooks", "--json").stdout)}
    assert listed["capture"]["enabled"] is False
    assert listed["inject"]["priority"] == 50
    own = listed["own_hooks:Raises"]
    assert (own["settings"], own["about"]) == ({"why": "the moon is full"}, "Raises whatever happens.")
    assert own["last_failure"] is None
    assert not Path("identities/ada/memory").exists()


def test_what_failed_in_one_process_is_shown_in_another() -> None:
    asked = run("ask", "Is the herring of Gotland pickled?")
    assert asked.returncode == 0
    assert asked.stdout == "Noted.\n"
    assert asked.stderr.count("the moon is full") == 1
    listed = {hook["name"]: hook for hook in json.loads(run("hooks", "--json").stdout)}
    assert "the moon is full" in listed["own_hooks:Raises"]["last_failure"]["message"]
    assert "the moon is full" in run("hooks").stdout
    doctor = run("doctor")
    assert doctor.returncode == 1
    assert "own_hooks:Raises failed at turn:end" in doctor.stdout
    Path("identities/ada/memory/hook_failures.jsonl").unlink()
    assert "none failed" in run("doctor").stdout
