"""A chat that keeps nothing says so, unless that was asked for; and no setting beside it turns memory off."""

import json
import sys
from io import StringIO
from pathlib import Path

import pytest

from chatbot.cli.main import main
from tests.command import project
from tests.terminal import Terminal

SCRIPTED = '[model]\nname = "scripted"\n'
KEEPS_NOTHING = {
    "no stores": ("[agents.chat]\nmemory = []", "the agent 'chat' has no stores"),
    "a store that forgets": ('[agents.chat]\nmemory = ["in_memory"]', "in_memory forgets everything at the end"),
}
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO())


def _findings(captured: Captured) -> list[dict[str, str]]:
    main(["doctor", "--json"])
    found: list[dict[str, str]] = json.loads(captured.readouterr().out)
    return [each for each in found if "keeps nothing" in each["message"]]


@pytest.mark.parametrize(("text", "why"), KEEPS_NOTHING.values(), ids=KEEPS_NOTHING)
def test_a_chat_that_keeps_nothing_says_so_everywhere(text: str, why: str, capsys: Captured) -> None:
    project(SCRIPTED + text)
    assert main(["ask", "hi"]) == 0
    shown = capsys.readouterr()
    assert f"this chat keeps nothing: {why}" in shown.err
    assert 'set [agents.chat] memory = ["basic_session", "observations"]' in shown.err
    assert "keeps nothing" not in shown.out
    assert main(["ask", "--json", "hi"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] is False
    assert [each["state"] for each in _findings(capsys)] == ["note"]
    terminal = Terminal()
    terminal.see("this chat keeps nothing")
    terminal.close()


def test_a_chat_that_is_asked_to_keep_nothing_is_not_warned_about(capsys: Captured) -> None:
    project(SCRIPTED)
    assert main(["ask", "--ephemeral", "hi"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["ask", "--ephemeral", "--json", "hi"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] is False


@pytest.mark.parametrize("where", ["file", "identity", "environment"])
def test_any_other_setting_of_the_agent_leaves_its_memory_on(
    where: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = "[agents.chat]\nrecall_rows = 3\n"
    project(SCRIPTED + setting * (where == "file"), identity=setting * (where == "identity"))
    if where == "environment":
        monkeypatch.setenv("CHATBOT_AGENTS__CHAT__RECALL_ROWS", "3")
    assert main(["ask", "--json", "My sister Ida collects blue stamps from Norway."]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] is True
    assert "blue stamps" in next(Path("identities/ada/memory/sessions").glob("*/transcript.md")).read_text("utf-8")
    assert "blue stamps" in Path("identities/ada/memory/observations.jsonl").read_text("utf-8")
    assert _findings(capsys) == []
