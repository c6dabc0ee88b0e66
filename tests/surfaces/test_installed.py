"""A new user: an installed wheel, an empty home, a terminal, and nothing to go by but `--help`."""

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.servers.extraction_replies import REPLIES
from tests.terminal import Terminal

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `chatbot` of a wheel that was built from this tree, in an environment of its own.

    What it depends on is lent by the environment of the tests, so that no network is needed; the tree itself is not.
    """
    place = tmp_path_factory.mktemp("installed")
    build = ["uv", "build", "-q", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", str(place)]
    subprocess.run([*build, str(ROOT)], check=True, timeout=PATIENCE_S, env=os.environ | {"HOME": str(place)})
    (wheel,) = place.glob("*.whl")
    venv.create(place / "venv", symlinks=True)
    python = place / "venv/bin/python"
    install = ["uv", "pip", "install", "-q", "--no-deps", "--offline", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True, timeout=PATIENCE_S, env=os.environ | {"HOME": str(place)})
    (packages,) = (place / "venv/lib").glob("python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return place / "venv/bin/chatbot"


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

    def id_in(self, line: str) -> str:
        """The id that a command prints."""
        found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", told := self.run(line))
        assert found, told
        return found[0]

    def read_help(self, *commands: str) -> None:
        for command in commands or [""]:
            self.known += " " + self.run(f"{command} --help").translate(str.maketrans("[],|", "    ")) + " "

    def close(self) -> None:
        for terminal in self._open:
            terminal.close()


@pytest.fixture
def user(installed: Path) -> Iterator[NewUser]:
    user = NewUser(installed)
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
    assert "hit rate" in user.run("memory stats")
    assert "all" in user.run("usage")
    assert "in the prompt" in user.run("why")
    assert "_chatbot" in user.run("completion bash")
    assert "✗" not in user.run("doctor --fix")
    assert not list(Path.cwd().glob("[!.]*")), "nothing is left where the user happened to be"


@pytest.fixture
def settled(user: NewUser) -> NewUser:
    """The same, with a configuration."""
    user.read_help("", "init", "ask")
    user.run('init --name ada --model scripted --persona "You are Ada."')
    return user


@pytest.mark.nightly
def test_a_new_user_looks_after_sessions(settled: NewUser) -> None:
    user = settled
    user.run('ask "My boat Merle lies in the harbour of Kiel."')
    user.run('ask -c "The mooring fee is due in March."')
    user.run('ask --new "Which tea is for the evening?"')
    actions = ("list", "search", "show", "fork", "compare", "rename", "export", "import", "archive", "delete", "prune")
    user.read_help("sessions", *(f"sessions {action}" for action in actions))

    assert "chatbot -r" in user.run("sessions search mooring")
    assert "is now called" in user.run('sessions rename "My boat Merle lies in the harbour of Kiel." boat')
    assert "### 3 user" in user.run("sessions show boat --last 2")
    assert "goes on from" in user.run("sessions fork boat --at 2 --title yacht")
    assert "the same so far: 2 entries" in user.run("sessions compare boat yacht")
    for name in ("boat.md", "boat.jsonl", "boat.html"):
        assert "wrote" in user.run(f"sessions export boat -o {name}")
        assert "mooring fee" in Path(name).read_text(encoding="utf-8")
    assert "wrote" in user.run("sessions export --all -o all.zip")
    assert "would be archived" in user.run("sessions archive --title tea --dry-run")
    assert "archived" in user.run("sessions archive --title tea")
    assert "tea" not in user.run("sessions list")
    assert "restored" in user.run("sessions archive --title tea --archived --undo")
    deleting = user.start("sessions", "delete", "boat", "yacht", "--keep-memory")
    deleting.see("boat.*type yes:")
    deleting.type("yes\n")
    deleting.ended()
    assert "no sessions match" in user.run("sessions list --title boat")
    assert "2 sessions would be imported" in user.run("sessions import all.zip --dry-run")
    assert "2 sessions imported" in user.run("sessions import all.zip")
    assert "mooring fee" in user.run("sessions show boat")
    assert "nothing to delete" in user.run("sessions prune --empty --yes")
    user.read_help("usage")
    assert "$0.00" in user.run("usage --days 2")


@pytest.mark.nightly
def test_a_new_user_looks_after_what_is_remembered(settled: NewUser, monkeypatch: pytest.MonkeyPatch) -> None:
    user = settled
    actions = (
        *("add", "edit", "supersede", "confirm", "forget", "restore", "purge", "search", "list", "get", "timeline"),
        *(
            "history",
            "people",
            "tasks",
            "tasks add",
            "facts",
            "facts purge",
            "import",
            "export",
            "stats",
            "reindex",
            "extract",
        ),
    )
    user.read_help("memory", *(f"memory {action}" for action in actions), "maintain")
    fee = user.id_in('memory add "The mooring fee is due in March" --person Ida --tag boat --type note')
    new = user.id_in('memory add "The mooring fee is due in May" --person Ida')
    assert "changed" in user.run(f'memory edit {new} --narrative "The harbour master said so"')
    assert "replaces" in user.run(f"memory supersede {fee} {new}")
    assert "harbour master" in user.run(f"memory get {new}")
    assert "superseded" in user.run(f"memory history {new}")
    assert "due in May" in user.run(f"memory timeline {new}")
    assert "confirmed" in user.run(f"memory confirm {new}")
    assert "due in May" in user.run('memory search "mooring fee" --limit 1')
    assert "due in March" in user.run("memory list --status superseded")
    assert "would be forgotten" in user.run(f"memory forget {new} --dry-run")
    assert "forgotten" in user.run(f"memory forget {new}")
    assert "restored" in user.run(f"memory restore {new}")
    assert "Ida" in user.run("memory people ida")
    assert "is also known as" in user.run('memory people alias Ida "Ida Berg"')
    task = user.id_in('memory tasks add "Pay the fee" --due 2026-05-01')
    assert "in progress" in user.run(f"memory tasks start {task}")
    assert "completed" in user.run(f"memory tasks done {task}")
    assert "Pay the fee" in user.run("memory tasks --all")
    fact = user.id_in("memory facts add Ida owns Merle")
    assert "Ida · owns · Merle" in user.run("memory facts --subject Ida")
    assert "purged" in user.run(f"memory facts purge {fact} --yes")
    assert "wrote" in user.run("memory export -o memories.jsonl")
    assert "would be purged" in user.run(f"memory purge {new} --dry-run")
    purging = user.start("memory", "purge", new)
    purging.see("type yes:")
    purging.type("yes\n")
    purging.ended()
    Path("CLAUDE.md").write_text("# Style\n\nTabs, not spaces.\n", encoding="utf-8")
    assert "1 memory imported" in user.run("memory import CLAUDE.md")
    assert "already existed" in user.run("memory import memories.jsonl --dry-run")
    monkeypatch.setenv("CHATBOT_MODEL__SCRIPT", json.dumps([REPLIES["valid"]]))
    assert "identity added" in user.run("memory extract CLAUDE.md --add")
    assert "indexed" in user.run("memory reindex")
    assert "looked at" in user.run("maintain --dry-run")
    assert "hit rate" in user.run("memory stats --days 2")


@pytest.mark.nightly
def test_a_new_user_does_everything_in_one_chat(settled: NewUser, monkeypatch: pytest.MonkeyPatch) -> None:
    settled.run('init --name grace --persona "You are Grace."')
    monkeypatch.setenv("EDITOR", "sed -i s/harbour/dock/")
    chat = settled.start()
    chat.say("/help")
    told = chat.see("Ctrl-D quits")
    steps = (
        ("My boat Merle lies in the harbour of Kiel.", "You said.*scripted ·"),
        ("/edit", "the dock of Kiel.*the dock of Kiel"),
        ("/retry", "the dock of Kiel.*the dock of Kiel.*the dock of Kiel"),
        ("Ida is to pay the fee.", "You said: Ida"),
        ("/undo", "took back 'Ida is"),
        ("Which boat is mine?", "You said: Which"),
        ("/why", "model call"),
        ("/remember The mooring fee is due in March", "hides it again"),
        ("/recall mooring", "1 .*due in March"),
        ("/history 1", r"\(active\).*add"),
        ("/forget 1", "forgotten 0"),
        ("/memory add Fees --person Ida", "added"),
        ("/people", "mentions.*Ida"),
        ("/facts", "No facts yet"),
        ("/tasks add Pay the fee", "completes one"),
        ("/tasks done 1", "No open tasks"),
        ("/search dock", "/resume 1"),
        ("/rename boat", "renamed to 'boat'"),
        ("/context", "of a window of"),
        ("/compact", "summarized"),
        ("/export boat.md", "wrote .*boat.md"),
        ("/usage", "purpose.*chat"),
        ("/model", "scripted answers"),
        ("/model local/nowhere.gguf", "nowhere.gguf"),
        ("/fork yacht", "a copy of"),
        ("/new", "a new session"),
        ("/sessions", "boat.*resumes one"),
        ("/resume boat", "going on · boat"),
        ("/sessions compare boat yacht", "the same so far"),
        ("/tools", "memory_search"),
        ("/identity grace", "grace · scripted.*a new session"),
        ("/identity", "others: ada"),
        ("/exit", "go on with|❯ /exit"),
    )
    for line, seen in steps:
        if line.startswith("/"):
            assert f"{line.split()[0]} " in told, f"/help did not tell of {line}"
        chat.say(line)
        chat.see(re.escape(line) + ".*" + seen)
    chat.ended()
    assert "the dock of Kiel" in Path("boat.md").read_text(encoding="utf-8")


def test_without_any_configuration_the_chat_begins_and_says_what_to_do(user: NewUser) -> None:
    chat = user.start()
    chat.see("/setup finds keys")
    chat.see("❯")
    chat.type("\x04")
    chat.ended()
