"""The command line as a process of its own: for signals, kills, start-up and whatever else only a process has."""

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.patience import PATIENCE_S


def run(*arguments: str, stdin: str | bytes = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `chatbot` with these arguments to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "chatbot", *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
        env=os.environ | environment,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def wait_for_others() -> None:
    """Say in a worker of `begin_together` that it is ready, and wait."""
    print("ready", flush=True)  # noqa: T201 - to the test
    sys.stdin.readline()


def begin_together(workers: Sequence[subprocess.Popen[str]]) -> None:
    """Let all workers begin at the same moment."""
    pipes = [(each.stdin, each.stdout) for each in workers]
    for _, told in pipes:
        assert told is not None
        assert told.readline() == "ready\n"
    for telling, _ in pipes:
        assert telling is not None
        telling.write("go\n")
        telling.flush()
