"""The command line as a process of its own, for what only a process has, and programs of others that tests run."""

import os
import shutil
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


def found(*names: str) -> str | None:
    """The path of the first of these programs of others that there is."""
    return next((path for name in names if (path := shutil.which(name))), None)


def found_or_installed(package: str, *names: str) -> str | None:
    """The same, after Debian's package was installed where there is none and we may."""
    if not found(*names) and os.geteuid() == 0 and shutil.which("apt-get"):
        for action in (["update"], ["install", "-y", package]):
            subprocess.run(["apt-get", "-q", *action], check=False, capture_output=True)
    return found(*names)
