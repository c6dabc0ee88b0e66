"""Told in one session, asked in another days later, in a real terminal: the right thing is in the prompt, and why."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.terminal import Terminal

Start = Callable[[int], Terminal]
Later = Callable[..., Any]

QUESTION = "Which code does the locker at the pool have?"


LATER = """
import importlib.util, os, sys
from datetime import timedelta
from pathlib import Path
import chatbot

path = Path(chatbot.__file__).parent / "memory" / "scope.py"
spec = importlib.util.spec_from_file_location("chatbot.memory.scope", path)
scope = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(scope)
now = scope.utc_now
scope.utc_now = lambda: now() + timedelta(days=float(os.environ["DAYS_LATER"]))
from chatbot.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""The command line, so many days later than it is."""


@pytest.fixture(autouse=True)
def _home() -> None:
    Path("config.toml").write_text('[model]\nname = "scripted"\nscript = ["Noted."]\n', encoding="utf-8")
    Path("identities/ada").mkdir(parents=True)
    Path("identities/ada/identity.toml").write_text("", encoding="utf-8")
    Path("later.py").write_text(LATER, encoding="utf-8")


@pytest.fixture
def start() -> Iterator[Start]:
    """The chat in a terminal, so many days later."""
    opened: list[Terminal] = []

    def begin(days: int) -> Terminal:
        opened.append(Terminal(program="later.py", DAYS_LATER=str(days)))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


@pytest.fixture
def later() -> Later:
    """Run a command that prints JSON, so many days later."""

    def run(days: int, *arguments: str) -> Any:
        command = [sys.executable, "later.py", *arguments, "--json"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
            env=os.environ | {"DAYS_LATER": str(days)},
        )
        return json.loads(done.stdout)

    return run


def test_what_was_said_in_one_session_is_in_the_prompt_of_another_days_later_and_it_says_why(
    start: Start, later: Later
) -> None:
    first = start(0)
    first.say("The code of my locker at the swimming pool is 4711.")
    first.say("And my sister breeds alpacas in Uruguay.")
    first.leave()
    again = start(9)
    again.say("/new")
    again.say(QUESTION)
    again.see("Noted")
    again.say("/why")
    again.see(r"in the prompt: 1 memory sent")
    again.leave()
    why = later(9, "why")
    [row] = [row for row in why["memory"]["considered"] if row["id"] in why["memory"]["injected"]][:1]
    assert row["verdict"] == "recalled"
    assert row["parts"]["lexical"] > 1
    prompt = later(10, "prompt", "--dry-run", QUESTION, "--new")
    noted = prompt["messages"][-1]["content"]
    assert re.search(r"^- \d+ \w+ \d{4}: The code of my locker at the swimming pool is 4711\.$", noted, re.MULTILINE)
    assert "alpacas" not in noted, "it has too little of the evidence"
    assert noted.endswith(QUESTION)
