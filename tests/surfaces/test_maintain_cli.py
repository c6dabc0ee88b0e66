"""`chatbot maintain` as people and scripts use it."""

from functools import partial
from pathlib import Path

import pytest

from chatbot.cli.exits import Exit
from chatbot.stores.files import locked
from tests import command

CONFIG = """
identity = "ada"
[model]
name = "scripted"
[agents.bare]
memory = ["basic_session"]
[maintenance]
compression_min_age_days = 0
"""

ok = partial(command.ok, "maintain")
report = partial(command.from_json, "maintain")


@pytest.fixture(autouse=True)
def _project() -> None:
    command.project(CONFIG)


def add(title: str, *arguments: str) -> str:
    return str(command.from_json("memory", "add", title, *arguments)["id"])


def test_it_says_what_it_would_do_then_does_it_then_has_nothing_to_do() -> None:
    ids = [add(f"the green kettle in the kitchen leaks {each}") for each in ("again", "badly", "much")]
    told = ok("--dry-run")
    assert "would be" in told
    assert all(each in told for each in ("compressed", "alike", *ids))
    assert report("--dry-run")["counts"]["compress"] == 3
    done = report()
    [deed] = done["deeds"]
    assert (deed["kind"], deed["count"], set(deed["ids"])) == ("compress", 3, set(ids))
    assert "compress by " + deed["by"] + " (maintenance: alike)" in command.ok("memory", "history", ids[0])
    assert "nothing to do" in ok()


def test_rules_come_from_the_configuration() -> None:
    old = add("it rained", "--type", "event")
    with Path("config.toml").open("a", encoding="utf-8") as config:
        config.write('rules = [{types = ["event"], archive_after_days = 1e-9}]\n')
    assert report()["deeds"] == [
        {"kind": "archive", "count": 1, "why": "event untouched for 1e-09 days", "by": None, "ids": [old]}
    ]


def test_old_sessions_are_rolled_up_when_asked() -> None:
    assert "summarize" in report("--summarize-old")["counts"]
    done = command.run("maintain", "--summarize-old", "0")
    assert done.returncode == Exit.USAGE


def test_whoever_comes_second_is_told_that_it_is_being_done() -> None:
    add("something")
    with locked(Path("identities/ada/memory"), name=".maintenance.lock"):
        assert "already maintaining" in ok()
        assert report()["skipped"] == "under way"


def test_an_agent_that_keeps_no_observations_has_nothing_to_maintain() -> None:
    done = command.run("maintain", "--agent", "bare")
    assert done.returncode == Exit.CONFIG
    assert "keeps memories" in done.stderr
