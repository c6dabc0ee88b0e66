"""Tokens of a release without memory for clients of OpenAI stay as they are, until their owner was asked once."""

import io
import json
from pathlib import Path

import pytest

from chatbot.cli.serve import ask_once
from chatbot.server.access_tokens import Tokens
from chatbot.stores.backends import open_place


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    tokens = Tokens.of(tmp_path)
    tokens.add("old", ["ada"], "full")
    tokens.add("meter", [], "public", metrics=True)
    open_place(tmp_path).document("tokens.json").change(_as_of_an_earlier_release)
    tokens.add("new", ["ada"], "full")
    return Tokens.of(tmp_path)


def _as_of_an_earlier_release(data: bytes | None) -> bytes:
    written = json.loads(data or b"")
    for token in written["tokens"]:
        del token["memory"]
    return json.dumps(written).encode()


@pytest.mark.parametrize(
    ("typed", "memory"), [("y\n", "on"), ("yes\n", "on"), ("\n", "off"), ("", "off"), ("?\n", "off")]
)
def test_in_a_terminal_the_owner_is_asked_once(
    tokens: Tokens, typed: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr", told)
    ask_once(tokens)
    assert "old" in told.getvalue()
    assert "meter" not in told.getvalue()
    assert {token.label: token.memory for token in tokens.all()} == {"old": memory, "meter": "off", "new": "off"}
    asked = len(told.getvalue())
    ask_once(tokens)
    assert len(told.getvalue()) == asked


def test_without_a_terminal_they_stay_as_they_are_and_it_is_told_how(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ask_once(tokens)
    assert "--memory on" in capsys.readouterr().err
    tokens.add("another", ["ada"], "full")  # a change of the file decides nothing
    assert [token.label for token in tokens.undecided()] == ["old"]
