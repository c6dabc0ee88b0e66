"""Every command as a process of its own: it starts, prints and ends as it does in process, where other tests run it."""

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatbot.cli.arguments import build_parser
from tests import command, process
from tests.effort import by_day
from tests.surfaces.test_help import parsers

SAID = "The bicycle has a flat tyre"
CONFIG = """
identity = "ada"
[model]
name = "scripted"
"""
LINES: dict[int, str] = {
    0: """
        ask -c how --no-stream; sessions list --json; sessions show {session}; sessions search bicycle;
        sessions rename {session} tyre; sessions move {session} house;
        projects list; projects export none; sessions pin {session}; sessions mark {session} private;
        sessions fork {session} --json; sessions export {session} --format jsonl; sessions archive {session};
        sessions prune; why; prompt --dry-run --new bicycle; memory add tea --person Ida --json;
        memory edit {row} --title milk; memory supersede {row} {other}; memory confirm {row}; memory forget {row};
        memory restore {row}; memory extract -; memory search aisle --json; memory recall aisle --json; memory list;
        memory get {row}; memory timeline {row}; memory history {row}; memory people; memory alias Ida Idi;
        memory profile; memory profile set home Lisbon; memory tasks; memory tasks add Pay; memory tasks start {task};
        memory tasks done {task}; memory tasks cancel {task}; memory facts; memory facts add Ida drives cars;
        memory facts remove {fact}; memory import CLAUDE.md; memory export; memory stats; memory reindex;
        maintain --dry-run; usage --json; stores; storage copy identities/ada/memory copied; backup copy.chatbot;
        models --json; models list; models weights; models get minilm; keys list; personas list; personas show tutor;
        personas use tutor; hooks; tools list --json; token add phone --clearance public; token list;
        users list --json; users limit alice --day-usd 1; config; config show; config path;
        config set terminal.vi true; config trust; doctor --json; init --here --name kim --model scripted;
        completion bash; keys; personas; tools; token; users
    """,
    2: """
        sessions; projects; sessions import missing.zip; sessions delete {session}; memory; memory purge {row};
        storage; restore copy.chatbot; sync; setup; mcp --port 1; config edit
    """,
    3: "storage create; keys set nobody; serve --host 0.0.0.0; config unset model.seed",
    4: """
        projects rename none house; projects erase none --dry-run; memory profile pin home;
        memory profile forget home; memory profile history home;
        memory profile accept {row}; memory profile reject {row}; keys remove openai; token limit phone --day-usd 1;
        token renew phone; token revoke phone; users export alice; users erase alice --yes
    """,
}
"""Arguments of each command by the exit code that they lead to, in the project below."""
_PASSING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"(cbt|tk)_[\w-]+", "TOKEN"),
    (r"20\d\d-\d\d-\d\d[T ][\d:.]+\d", "TIME"),
    (r'nonce="\w+"', "NONCE"),
    (r"memory \d+ ·", "memory N ·"),  # the tokens of a nonce vary
    (r"\d+\.\d+", "FLOAT"),
    (r"just now|\d+ minutes? ago", "AGE"),
)
"""Parts that differ between any two runs."""


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A project in which something was said and kept, and the ids of it."""
    folder = tmp_path_factory.mktemp("seeded") / "project"
    folder.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("HOME", str(folder))
        patch.chdir(folder)
        command.project(CONFIG)
        Path("CLAUDE.md").write_text("# Style\n\nTabs, not spaces.\n", encoding="utf-8")
        for path in (Path("identities"), Path("identities/ada"), Path("identities/ada/identity.toml")):
            path.chmod(path.stat().st_mode & 0o700)
        ids = {name: _id_in(command.ok(*line.split())) for name, line in SEED.items()}
    yield folder, ids
    shutil.rmtree(folder)


SEED = {
    "session": "ask --json --new bicycle", "row": "memory add milk-in-aisle-4", "other": "memory add milk-in-aisle-5",
    "task": "memory tasks add Call", "fact": "memory facts add Ida owns boats",
}  # fmt: skip


def _id_in(told: str) -> str:
    found = re.search(_PASSING[0][0], told[told.find('"session"') :] if '"session"' in told else told)
    assert found, told
    return found[0]


NAMES = {each.prog.removeprefix("chatbot").strip() for each in parsers(build_parser())}


def _command(line: str) -> str:
    """Return the name of the command in a line: as many of its words as name one."""
    words = line.split()
    return max((" ".join(words[:n]) for n in range(4) if " ".join(words[:n]) in NAMES), key=len)


COMMANDS: dict[str, tuple[int, str]] = {
    "": (2, ""),
    **{_command(line): (code, line) for code, text in LINES.items() for line in map(str.strip, text.split(";"))},
}
"""The same by the name of the command."""
BY_DAY = ("", "ask", "memory add", "doctor")
"""Ways of starting and ending: with a model and without, with input, in JSON, with an error of either kind."""


@pytest.mark.parametrize("name", by_day(COMMANDS, *BY_DAY))
def test_a_command_does_as_a_process_what_it_does_in_process(
    name: str, seeded: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, ids = seeded
    code, line = COMMANDS[name]
    arguments = [part.format(**ids) for part in line.split()]
    here = tmp_path / "project"
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    monkeypatch.setenv("HOME", str(here))
    told = []
    for run in (process.run, command.run):
        shutil.copytree(folder, here)
        monkeypatch.chdir(here)
        told.append(_lasting(run(*arguments, stdin=SAID)))
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(here)
    assert told[0] == told[1]
    assert told[0][0] == code, told[0]


def _lasting(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    out, err = done.stdout, done.stderr
    for pattern, name in _PASSING:
        out, err = re.sub(pattern, name, out), re.sub(pattern, name, err)
    return done.returncode, out, err


def test_every_command_of_the_grammar_is_tried() -> None:
    assert set(COMMANDS) == NAMES, "add to COMMANDS the exit code and arguments of each command"


def test_nothing_of_a_run_is_left_behind() -> None:
    command.project(CONFIG)
    before = dict(os.environ), sys.path[:], sys.argv, Path.cwd(), sys.stdout, logging.getLogger().handlers[:]
    assert command.ok("ask", "hello", CHATBOT_MODEL__SCRIPT='["A."]') == "A.\n"
    assert command.ok("ask", "hello") == "You said: hello\n"
    assert before == (dict(os.environ), sys.path[:], sys.argv, Path.cwd(), sys.stdout, logging.getLogger().handlers[:])


def test_what_nobody_handles_is_shown_on_standard_error_and_ends_as_it_does_in_a_process() -> None:
    command.project(CONFIG)
    Path("chatbot_broken.py").write_text("raise KeyError('gone')\n", encoding="utf-8")
    arguments = ("stores", "--config", "config.toml")
    broken = {"CHATBOT_AGENTS__CHAT__MEMORY": '["chatbot_broken:Store"]'}
    assert _lasting(process.run(*arguments, **broken)) == _lasting(command.run(*arguments, **broken))


def test_what_the_encoding_of_standard_output_lacks_is_escaped() -> None:
    command.project(CONFIG)
    assert process.run("ask", "♞ f3", PYTHONIOENCODING="latin-1").stdout == "You said: \\u265e f3\n"
