"""The command line as a process of its own."""

import os
import subprocess
import sys


def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """`chatbot` with these arguments, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "chatbot", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def ok(*arguments: str, stdin: str = "", **environment: str) -> str:
    """What it printed, having found nothing wrong."""
    done = run(*arguments, stdin=stdin, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
