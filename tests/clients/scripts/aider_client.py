# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["aider-chat>=0.86"]
# ///
"""Aider: an identity as its model, asked a question, and asked to edit a file."""

import os
import subprocess
import sys
import tempfile

QUIET = ("--no-git", "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-pretty")


def aider(*arguments: str) -> str:
    """Run the command in a folder of its own, and return its output, which it wraps, in one line."""
    command = [sys.executable, "-m", "aider", "--model", "openai/ada", "--yes-always", *QUIET, *arguments]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "HOME": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(done.stdout.split())


assert "4711" in aider("--chat-mode", "ask", "--message", "Which number has the locker at the gym?")
for stream in ("--stream", "--no-stream"):
    assert "Add a function that greets" in aider(stream, "--message", "Add a function that greets.", "greet.py")
