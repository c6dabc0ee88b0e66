"""A chat that keeps nothing says so, unless that was asked for; and no setting beside it turns memory off."""

import json
from pathlib import Path

import pytest

from tests.command import from_json, project, run

SCRIPTED = '[model]\nname = "scripted"\n'
KEEPS_NOTHING = {
    "no stores": ("[agents.chat]\nmemory = []", "the agent 'chat' has no stores"),
    "a store that forgets": ('[agents.chat]\nmemory = ["in_memory"]', "in_memory forgets everything at the end"),
}


def _findings() -> list[dict[str, str]]:
    return [each for each in from_json("doctor") if "keeps nothing" in each["message"]]


@pytest.mark.parametrize(("text", "why"), KEEPS_NOTHING.values(), ids=KEEPS_NOTHING)
def test_a_chat_that_keeps_nothing_says_so_everywhere(text: str, why: str) -> None:
    project(SCRIPTED + text)
    told = run("ask", "hi")
    assert f"this chat keeps nothing: {why}" in told.stderr
    assert 'set [agents.chat] memory = ["basic_session", "observations"]' in told.stderr
    assert (told.returncode, "keeps nothing" in told.stdout) == (0, False)
    assert json.loads(run("ask", "--json", "hi").stdout)["kept"] is False
    assert [each["state"] for each in _findings()] == ["note"]


def test_a_chat_that_is_asked_to_keep_nothing_is_not_warned_about() -> None:
    project(SCRIPTED)
    assert from_json("ask", "--ephemeral", "hi")["kept"] is False
    assert not list(Path().rglob("transcript.md"))


@pytest.mark.parametrize("where", ["file", "identity", "environment"])
def test_any_other_setting_of_the_agent_leaves_its_memory_on(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = "[agents.chat]\nrecall_rows = 3\n"
    project(SCRIPTED + setting * (where == "file"), identity=setting * (where == "identity"))
    if where == "environment":
        monkeypatch.setenv("CHATBOT_AGENTS__CHAT__RECALL_ROWS", "3")
    assert from_json("ask", "My sister Ida collects blue stamps from Norway.")["kept"] is True
    assert "blue stamps" in next(Path("identities/ada/memory/sessions").glob("*/transcript.md")).read_text("utf-8")
    assert "blue stamps" in Path("identities/ada/memory/observations.jsonl").read_text("utf-8")
    assert _findings() == []
