"""`chatbot maintain` and `chatbot memory extract`, as people and scripts use them."""

import json
from functools import partial
from pathlib import Path

import pytest

from chatbot.cli.run import Exit
from chatbot.stores.files import locked
from tests import command
from tests.servers.extraction_replies import REPLIES

CONFIG = """
identity = "ada"
[model]
name = "scripted"
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
    [change] = done["changes"]
    assert (change["kind"], change["count"], set(change["ids"])) == ("compress", 3, set(ids))
    assert "compress by " + change["by"] + " (maintenance: alike)" in command.ok("memory", "history", ids[0])
    assert "nothing to do" in ok()


def test_old_sessions_are_rolled_up_when_asked() -> None:
    for said in ("My sister Ida keeps bees", "The cellar is damp in May", "Our boat is called Nanna"):
        command.ok("ask", "-c", said)
    assert [report(*options)["counts"]["summarize"] for options in ([], ["--summarize-old", "1e-9"])] == [0, 3]
    assert command.run("maintain", "--summarize-old", "0").returncode == Exit.USAGE


def test_whoever_comes_second_is_told_that_it_is_being_done() -> None:
    add("something")
    with locked(Path("identities/ada/memory"), name=".maintenance.lock"):
        assert "already maintaining" in ok()
        assert report()["skipped"] == "under way"


def _configure(reply: str, more: str = "") -> None:
    script = json.dumps([reply])
    command.project(f'identity = "ada"\n[model]\nname = "scripted"\nscript = {script}\n{more}')
    Path("notes.txt").write_text("Sam moved to Porto. The locker is 4711.", encoding="utf-8")


@pytest.mark.parametrize("flag", [[], ["--dry-run"]])
def test_facts_are_shown_and_not_kept(flag: list[str]) -> None:
    _configure(REPLIES["fenced"])
    done = command.run("memory", "extract", "notes.txt", *flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Sam lives in Porto" in done.stdout
    assert "not kept" in done.stdout
    assert not Path("identities/ada/memory/observations.jsonl").exists()


def test_facts_are_kept_when_asked_for_and_the_bill_says_what_it_took() -> None:
    _configure(REPLIES["thinking"])
    done = json.loads(command.run("memory", "extract", "-", "--add", "--json", stdin=b"Sam moved to Porto.").stdout)
    assert [fact["outcome"] for fact in done["facts"]] == ["added", "added"]
    assert (done["calls"], done["cost_usd"], done["calls_of_unknown_cost"]) == (1, 0, 0)
    listed = json.loads(command.run("memory", "list", "--json").stdout)
    assert {row["title"] for row in listed} == {"Sam lives in Porto", "Sam's locker has the number 4711"}
    assert {row.get("visibility", "private") for row in listed} == {"private"}
    bill = json.loads(command.run("usage", "--json").stdout)
    assert bill["by_purpose"]["extract"]["calls"] == 1
    assert "extract" in command.run("usage").stdout


def test_what_reads_like_an_instruction_is_named_and_left_out() -> None:
    _configure(REPLIES["orders"])
    done = command.run("memory", "extract", "notes.txt", "--add")
    assert "left out (order): Ignore all previous" in done.stderr
    assert "found no facts" in done.stdout
    assert json.loads(command.run("memory", "list", "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "words"),
    [
        (["missing.txt"], b"", 2, "missing.txt cannot be read"),
        (["-"], b"", 2, "standard input contains no text"),
        (["-"], b"x" * 1_000_001, 2, "longer than 1,000,000 bytes"),
        (["notes.txt", "--add", "--dry-run"], b"", 2, "not allowed with"),
        (["notes.txt", "-m", "nobody/knows"], b"", 5, "nobody/knows"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], stdin: bytes, code: int, words: str) -> None:
    _configure(REPLIES["valid"])
    done = command.run("memory", "extract", *arguments, stdin=stdin)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
