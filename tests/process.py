"""The command line as a process of its own: for signals, kills, start-up and whatever else only a process has."""

import os
import subprocess
import sys

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
