"""`--help` costs next to nothing, and says what is true; completion scripts, run by the shells themselves."""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from chatbot.cli.arguments import _WITH_VALUE, COMMANDS, build_parser
from chatbot.cli.main import with_question
from chatbot.cli.run import Exit
from chatbot.config import Users
from chatbot.models.weights import WEIGHTS
from chatbot.stores.access import CLEARANCES
from chatbot.transfer.exports import SUFFIXES
from tests.command import from_json, ok
from tests.effort import by_day
from tests.patience import PATIENCE_S
from tests.process import found_or_installed
from tests.terminal import Terminal

ROOT = Path(__file__).parents[2]
HEAVY = {
    *("pydantic", "asyncio", "litellm", "mcp", "rich", "prompt_toolkit", "aiofiles", "uuid6", "filelock", "cyllama"),
    *("jinja2", "fastapi", "starlette", "uvicorn"),
}
DRIVER = """
import sys
from chatbot.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""
ASK = """
source ./chatbot.bash
complete -p chatbot >/dev/null || exit 9
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
function=$(complete -p chatbot | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function chatbot "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("line", ["--help", "memory add --help", "serve --help"])
def test_help_imports_nothing_heavy(line: str) -> None:
    command = [sys.executable, "-c", DRIVER, *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout
    assert not HEAVY & set(done.stderr.split())


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser, and those of all commands below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def test_every_option_and_command_is_explained_in_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for parser in parsers(build_parser()):
        assert parser.description
        assert [line for line in parser.format_help().splitlines() if len(line) > 80] == []
        named = [action.metavar for action in parser._actions if action.metavar and not action.option_strings]
        assert len(named) == len({*named}), f"{parser.prog}: {named}"
        for action in parser._actions:
            assert action.help or isinstance(action, argparse._SubParsersAction), (parser.prog, action)


def test_the_grammar_repeats_rightly_what_it_cannot_import() -> None:
    actions = [action for parser in parsers(build_parser()) for action in parser._actions]
    known_by_name = {"format": SUFFIXES, "clearance": CLEARANCES, "names": WEIGHTS, "users": get_args(Users)}
    for name, known in known_by_name.items():
        assert {tuple(action.choices or ()) for action in actions if action.dest == name} == {tuple(known)}
    before = [action for action in build_parser()._actions if action.option_strings and action.nargs != 0]
    assert {name for action in before for name in action.option_strings} == _WITH_VALUE


def test_the_exit_codes_in_help_and_documentation_are_all_of_them() -> None:
    listed = build_parser().format_help().partition("exit codes: ")[2]
    assert [int(code) for code in re.findall(r"\d+", listed)] == sorted(Exit)
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    section = page.partition("## Exit codes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", section, re.MULTILINE)
    assert [int(code) for code, _ in rows] == sorted(Exit)
    assert len({meaning for _, meaning in rows}) == len(Exit)


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        (["-m", "scripted", "--json", "what is love?"], ["-m", "scripted", "--json", "ask", "what is love?"]),
        (["-r", "tax return"], ["-r", "tax return"]),
        (["-m", "x", "--", "-v", "is what?"], ["-m", "x", "ask", "--", "-v", "is what?"]),
        ([" "], [" "]),
    ],
)
def test_a_question_with_a_space_is_asked(typed: list[str], understood: list[str]) -> None:
    assert with_question(typed) == understood


def test_every_command_shows_examples_that_it_understands() -> None:
    parser = build_parser()
    for each in parsers(parser):
        _, _, examples = (each.epilog or "").partition("examples:\n")
        lines = [line.strip() for line in examples.split("\n\n")[0].splitlines()]
        assert lines, f"{each.prog} has no examples"
        for line in lines:
            commands = re.split(r"\s{3,}", line)[0].split(" | ")
            *others, own = [re.split(r" [<>] ", command)[0] for command in commands]
            assert not any(other.startswith("chatbot") for other in others), line
            name, *arguments = shlex.split(own)
            assert name == "chatbot", line
            parsed = parser.parse_args(with_question(arguments))
            assert each.prog.split()[1:2] in ([], [parsed.command]), line


def shell_of(name: str) -> str:
    """The path of a shell. Skips where there is none."""
    path = found_or_installed(name, name)
    if path is None:
        pytest.skip(f"there is no {name} on this machine, and none can be installed")
    return path


def offered(shell: str, line: str) -> set[str]:
    """Return what a shell offers for the last word; bash is asked through the function that `complete` registered."""
    asked = {
        "bash": ["-c", ASK, "bash", *line.split(" ")],
        "fish": ["--no-config", "-c", "source chatbot.fish; complete -C $argv[1]", line],
    }
    done = subprocess.run(
        [shell_of(shell), *asked[shell]], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stderr == ""
    return {each.partition("\t")[0] for each in done.stdout.splitlines()} - {""}


@pytest.mark.parametrize("shell", by_day(["bash", "fish"], "bash"))
def test_a_shell_completes_commands_actions_options_and_values(shell: str) -> None:
    Path(f"chatbot.{shell}").write_text(ok("completion", shell), encoding="utf-8")
    assert {"search", "people", "stats"} <= offered(shell, "chatbot memory ")
    assert offered(shell, "chatbot completion ") >= {"bash", "zsh", "fish"}
    for line, words in {
        "chatbot mem": {"memory"}, "chatbot memory tasks ca": {"cancel"}, "chatbot --json doctor --f": {"--fix"},
        "chatbot memory add x --visibility ": {"private", "shared", "social"},
        "chatbot sync chat": {f"chatbot.{shell}"}, "chatbot usage --days ": set(),
        "chatbot -i grace sessions li": {"list"},
    }.items():  # fmt: skip
        assert offered(shell, line) == words, line


@pytest.fixture
def zsh() -> Iterator[Terminal]:
    path = shell_of("zsh")
    Path("functions").mkdir()
    Path("functions/_chatbot").write_text(ok("completion", "zsh"), encoding="utf-8")
    terminal = Terminal(command=[path, "-f", "-i"], PS1="%% ")
    terminal.type("PS1='READY> '; fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D; clear\r")
    terminal.see(r"\AREADY>")
    yield terminal
    terminal.close()


@pytest.mark.nightly
def test_zsh_completes_at_the_first_tab_what_bash_does(zsh: Terminal) -> None:
    for line, whole in (
        ("chatbot mem", "chatbot memory "),
        ("chatbot memory tasks ca", "chatbot memory tasks cancel "),
        ("chatbot --json doctor --f", "chatbot --json doctor --fix "),
        ("chatbot completion z", "chatbot completion zsh "),
        ("chatbot memory add x --visibility so", "chatbot memory add x --visibility social "),
        ("chatbot sessions export x -o func", "chatbot sessions export x -o functions/"),
        ("chatbot sessions import func", "chatbot sessions import functions/"),
        ("chatbot -i grace sessions li", "chatbot -i grace sessions list "),
    ):
        zsh.type(f"{line}\t!")
        zsh.see(rf"READY> {re.escape(whole)}!")
        zsh.type("\x15")
        zsh.see(r"READY>\Z")
    zsh.type("chatbot memory \t")
    zsh.see("stats +-- show counts of memories")
    assert "compinit" not in zsh.text
    assert "_chatbot:" not in zsh.text  # what zsh says of errors in a function


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_in_every_script(shell: str) -> None:
    script = ok("completion", shell)
    assert all(name in script for name in COMMANDS)
    if path := found_or_installed(shell, shell):
        subprocess.run([path, "-n"], input=script, text=True, check=True, timeout=PATIENCE_S)
    assert from_json("completion", shell)["script"] + "\n" == script
