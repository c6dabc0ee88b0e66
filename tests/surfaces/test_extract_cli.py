"""`chatbot memory extract`, as people and scripts use it."""

import json
from pathlib import Path

import pytest

from tests import command
from tests.servers.extraction_replies import REPLIES


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
    _configure(REPLIES["valid"])
    done = json.loads(command.run("memory", "extract", "-", "--add", "--json", stdin=b"Sam moved to Porto.").stdout)
    assert [fact["outcome"] for fact in done["facts"]] == ["added", "added"]
    assert done["calls"] == 1
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
        (["."], b"", 2, "cannot be read"),
        (["-"], b"", 2, "holds no text"),
        (["-"], b"\xff\xfe\x00", 2, "is not UTF-8 text"),
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
