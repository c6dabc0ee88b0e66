"""Every command as a process of its own: it starts, prints and ends as it does in process, where other tests run it."""

import argparse
import asyncio
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

SAID = "The bicycle has a flat tyre"
CONFIG = """
identity = "ada"
[model]
name = "scripted"
[agents.chat]
memory = ["basic_session", "observations"]
"""
COMMANDS: dict[str, tuple[int, str]] = {
    "": (2, ""),
    "ask": (0, "ask -c how --no-stream"),
    "sessions": (2, "sessions"),
    "sessions list": (0, "sessions list --json"),
    "sessions show": (0, "sessions show {session}"),
    "sessions search": (0, "sessions search bicycle"),
    "sessions compare": (0, "sessions compare {session} {session}"),
    "sessions rename": (0, "sessions rename {session} tyre"),
    "sessions move": (0, "sessions move {session} house"),
    "projects": (2, "projects"),
    "projects list": (0, "projects list"),
    "projects rename": (2, "projects rename none house"),
    "projects export": (0, "projects export none"),
    "projects erase": (2, "projects erase none --dry-run"),
    "sessions pin": (0, "sessions pin {session}"),
    "sessions mark": (0, "sessions mark {session} private"),
    "sessions fork": (0, "sessions fork {session} --json"),
    "sessions export": (0, "sessions export {session} --format jsonl"),
    "sessions import": (2, "sessions import missing.zip"),
    "sessions archive": (0, "sessions archive {session}"),
    "sessions delete": (2, "sessions delete {session}"),
    "sessions prune": (0, "sessions prune"),
    "why": (0, "why"),
    "prompt": (0, "prompt --dry-run --new bicycle"),
    "memory": (2, "memory"),
    "memory add": (0, "memory add tea --person Ida --json"),
    "memory edit": (0, "memory edit {row} --title milk"),
    "memory supersede": (0, "memory supersede {row} {other}"),
    "memory confirm": (0, "memory confirm {row}"),
    "memory forget": (0, "memory forget {row}"),
    "memory restore": (0, "memory restore {row}"),
    "memory purge": (2, "memory purge {row}"),
    "memory extract": (0, "memory extract -"),
    "memory search": (0, "memory search aisle --json"),
    "memory recall": (0, "memory recall aisle --json"),
    "memory list": (0, "memory list"),
    "memory get": (0, "memory get {row}"),
    "memory timeline": (0, "memory timeline {row}"),
    "memory history": (0, "memory history {row}"),
    "memory people": (0, "memory people"),
    "memory profile": (0, "memory profile"),
    "memory profile set": (0, "memory profile set home Lisbon"),
    "memory profile pin": (4, "memory profile pin home"),
    "memory profile unpin": (4, "memory profile unpin home"),
    "memory profile forget": (4, "memory profile forget home"),
    "memory profile history": (4, "memory profile history home"),
    "memory profile accept": (4, "memory profile accept {row}"),
    "memory profile reject": (4, "memory profile reject {row}"),
    "memory tasks": (0, "memory tasks"),
    "memory tasks add": (0, "memory tasks add Pay"),
    "memory tasks start": (0, "memory tasks start {task}"),
    "memory tasks done": (0, "memory tasks done {task}"),
    "memory tasks cancel": (0, "memory tasks cancel {task}"),
    "memory facts": (0, "memory facts"),
    "memory facts add": (0, "memory facts add Ida drives cars"),
    "memory facts remove": (0, "memory facts remove {fact}"),
    "memory facts purge": (2, "memory facts purge {fact}"),
    "memory import": (0, "memory import CLAUDE.md"),
    "memory export": (0, "memory export"),
    "memory stats": (0, "memory stats"),
    "memory reindex": (0, "memory reindex"),
    "maintain": (0, "maintain --dry-run"),
    "usage": (0, "usage --json"),
    "stores": (0, "stores"),
    "storage": (2, "storage"),
    "storage create": (3, "storage create"),
    "storage copy": (0, "storage copy identities/ada/memory copied"),
    "backup": (0, "backup copy.chatbot"),
    "restore": (2, "restore copy.chatbot"),
    "sync": (2, "sync"),
    "models": (0, "models --json"),
    "models list": (0, "models list"),
    "models alias": (5, "models alias fast"),
    "models weights": (0, "models weights"),
    "models get": (0, "models get minilm"),
    "setup": (2, "setup"),
    "keys": (2, "keys"),
    "keys set": (3, "keys set nobody"),
    "keys list": (0, "keys list"),
    "keys remove": (4, "keys remove openai"),
    "personas": (2, "personas"),
    "personas list": (0, "personas list"),
    "personas show": (0, "personas show tutor"),
    "personas use": (0, "personas use tutor"),
    "hooks": (0, "hooks"),
    "tools": (2, "tools"),
    "tools list": (0, "tools list --json"),
    "mcp": (2, "mcp --port 1"),
    "serve": (3, "serve --host 0.0.0.0"),
    "token": (2, "token"),
    "token add": (0, "token add phone --clearance public"),
    "token list": (0, "token list"),
    "token limit": (4, "token limit phone --day-usd 1"),
    "token revoke": (4, "token revoke phone"),
    "users": (2, "users"),
    "users list": (0, "users list --json"),
    "users limit": (0, "users limit alice --day-usd 1"),
    "users export": (4, "users export alice"),
    "users erase": (4, "users erase alice --yes"),
    "config": (0, "config"),
    "config show": (0, "config show"),
    "config path": (0, "config path"),
    "config set": (0, "config set terminal.vi true"),
    "config unset": (3, "config unset model.seed"),
    "config edit": (2, "config edit"),
    "config trust": (0, "config trust"),
    "doctor": (0, "doctor --json"),
    "init": (0, "init --here --name kim --model scripted"),
    "completion": (0, "completion bash"),
}
"""The exit code of each command for these arguments, in the project below."""
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
    "session": "ask --json --new bicycle",
    "row": "memory add milk-in-aisle-4",
    "other": "memory add milk-in-aisle-5",
    "task": "memory tasks add Call",
    "fact": "memory facts add Ida owns boats",
}


def _id_in(told: str) -> str:
    found = re.search(_PASSING[0][0], told[told.find('"session"') :] if '"session"' in told else told)
    assert found, told
    return found[0]


BY_DAY = ("", "ask", "prompt", "memory add", "models", "doctor", "mcp", "serve", "init")
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
    assert {each.removeprefix("chatbot").strip() for each in _names(build_parser())} == set(COMMANDS)


def _names(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield parser.prog
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _names(child)


def test_nothing_of_a_run_is_left_behind() -> None:
    command.project(CONFIG)
    before = dict(os.environ), sys.path[:], sys.argv, Path.cwd(), sys.stdout, logging.getLogger().handlers[:]
    assert command.ok("ask", "hello", CHATBOT_MODEL__SCRIPT='["A."]') == "A.\n"
    assert command.ok("ask", "hello") == "You said: hello\n"
    assert before == (dict(os.environ), sys.path[:], sys.argv, Path.cwd(), sys.stdout, logging.getLogger().handlers[:])


def test_a_plug_in_that_changed_is_imported_anew(config_is_asked_for: None) -> None:
    command.project(f'{CONFIG}[hooks."own:Own"]\n')
    for about in ("The first.", "Another one."):
        Path("own.py").write_text(
            f"from chatbot.hooks import Hook\nclass Own(Hook):\n    {about!r}\n    topics = ('turn:end',)\n"
            "    async def handle(self, event): ...\n",
            encoding="utf-8",
        )
        assert about in command.ok("hooks", "--json")


def test_what_nobody_handles_is_shown_on_standard_error_and_ends_as_it_does_in_a_process() -> None:
    command.project(CONFIG)
    Path("chatbot_broken.py").write_text("raise KeyError('gone')\n", encoding="utf-8")
    arguments = ("stores", "--config", "config.toml")
    broken = {"CHATBOT_AGENTS__CHAT__MEMORY": '["chatbot_broken:Store"]'}
    assert _lasting(process.run(*arguments, **broken)) == _lasting(command.run(*arguments, **broken))


async def test_a_command_runs_within_a_coroutine_too() -> None:
    command.project(CONFIG)
    assert command.ok("ask", "hello") == "You said: hello\n"
    assert asyncio.get_running_loop().is_running()
