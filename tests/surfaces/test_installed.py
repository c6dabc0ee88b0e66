"""A new user: an installed wheel, an empty home, a terminal, and nothing to go by but `--help`."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surfaces.test_import_package import archives, python
from tests.terminal import Terminal

__all__ = ["archives", "python"]


class NewUser:
    """Types commands that `--help` has told of, each in a terminal of its own."""

    def __init__(self, command: Path) -> None:
        self._command = command
        self._open: list[Terminal] = []
        self.known = ""

    def start(self, *arguments: str) -> Terminal:
        for word in arguments:
            is_told = f"{word.partition('=')[0]} " in self.known or not word.startswith("--") or word == "--help"
            assert is_told, f"no --help told of {word}"
        for word in arguments[:2]:
            assert word.startswith("-") or not word.isalpha() or word in self.known, f"no --help told of {word}"
        self._open.append(Terminal(command=[str(self._command), *arguments]))
        return self._open[-1]

    def run(self, line: str) -> str:
        """Return the output of a command line, on one line."""
        terminal = self.start(*shlex.split(line))
        terminal.ended()
        return re.sub(r"[ \n]+", " ", terminal.text)

    def read_help(self, *commands: str) -> None:
        for command in commands or [""]:
            self.known += " " + self.run(f"{command} --help").translate(str.maketrans("[],|", "    ")) + " "

    def close(self) -> None:
        for terminal in self._open:
            terminal.close()


@pytest.fixture
def user(python: Path) -> Iterator[NewUser]:
    user = NewUser(python.with_name("chatbot"))
    yield user
    user.close()


@pytest.mark.nightly
def test_a_new_user_gets_everything_done(user: NewUser) -> None:
    user.read_help()
    questions = user.start("init")
    for question, answer in (("identity", "ada"), ("model: local", "scripted"), ("in one sentence", "You are Ada.")):
        questions.see(question)
        questions.type(f"{answer}\r")
    questions.see("now run: chatbot")
    questions.ended()

    chat = user.start()
    chat.see("ada · scripted")
    chat.say("Hi! My boat Merle lies in the harbour of Kiel.")
    chat.see("You said.*scripted ·")
    chat.say("/remember The mooring fee is due in March")
    chat.see("remembered")
    chat.say("/recall mooring")
    chat.see("The mooring fee is due in March")
    chat.say("/context")
    chat.see("of a window of")
    chat.say("/exit")
    chat.ended()

    user.read_help("ask", "sessions", "memory", "completion", "doctor", "why", "usage")
    assert "You said" in user.run('ask -c "Where is my boat?"')
    assert "My boat Merle" in user.run("sessions list")
    assert "mooring fee" in user.run("memory search mooring")
    assert "active" in user.run("memory stats")
    assert "all" in user.run("usage")
    assert "in the prompt" in user.run("why")
    assert "_chatbot" in user.run("completion bash")
    assert "✗" not in user.run("doctor --fix")
    assert not list(Path.cwd().glob("[!.]*")), "nothing is left where the user happened to be"


@pytest.mark.nightly
def test_without_any_configuration_the_chat_begins_and_says_what_to_do(user: NewUser) -> None:
    chat = user.start()
    chat.see("/setup finds keys")
    chat.see("❯")
    chat.type("\x04")
    chat.ended()
