"""Completion scripts, run by the machinery of the shells themselves."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from chatbot.cli.arguments import build_parser
from tests.command import ok

ASK = """
source ./chatbot.bash
complete -p chatbot >/dev/null || exit 9
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
function=$(complete -p chatbot | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function chatbot "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> set[str]:
    """What bash offers for the last word, asked as it asks: through the function that `complete` registered."""
    done = subprocess.run(["bash", "-c", ASK, "bash", *words], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.fixture
def script() -> None:
    Path("chatbot.bash").write_text(ok("completion", "bash"), encoding="utf-8")


def test_bash_completes_commands_actions_options_and_values(script: None) -> None:
    assert completed("chatbot", "mem") == {"memory"}
    assert {"search", "people", "stats"} <= completed("chatbot", "memory", "")
    assert completed("chatbot", "memory", "tasks", "ca") == {"cancel"}
    assert completed("chatbot", "--json", "doctor", "--f") == {"--fix"}
    assert completed("chatbot", "completion", "") >= {"bash", "zsh", "fish"}
    assert completed("chatbot", "memory", "add", "x", "--visibility", "") == {"private", "shared", "social"}
    assert completed("chatbot", "usage", "--html", "chat") == {"chatbot.bash"}
    assert completed("chatbot", "usage", "--days", "") == set()
    assert completed("chatbot", "nonsense", "mem") == {"memory"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_in_every_script(shell: str) -> None:
    script = ok("completion", shell)
    for action in build_parser()._actions:
        for name in action.choices or ():
            assert name in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=60)
    assert json.loads(ok("completion", shell, "--json"))["script"] + "\n" == script
