"""Completion scripts, run by the machinery of the shells themselves."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatbot.cli.arguments import COMMANDS
from tests.command import from_json, ok
from tests.effort import by_day
from tests.patience import PATIENCE_S
from tests.process import found_or_installed
from tests.terminal import Terminal

ASK = """
source ./chatbot.bash
complete -p chatbot >/dev/null || exit 9
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
function=$(complete -p chatbot | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function chatbot "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


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
        "chatbot mem": {"memory"},
        "chatbot memory tasks ca": {"cancel"},
        "chatbot --json doctor --f": {"--fix"},
        "chatbot memory add x --visibility ": {"private", "shared", "social"},
        "chatbot sessions export x -o chat": {f"chatbot.{shell}"},
        "chatbot usage --days ": set(),
        "chatbot -i grace sessions li": {"list"},
    }.items():
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
