"""The command line as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


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


def project(config: str, *names: str, identity: str = 'clearance = "full"') -> None:
    """Write a configuration into the current folder, and the identities of these names, or `ada`."""
    Path("config.toml").write_text(config, encoding="utf-8")
    for name in names or ("ada",):
        folder = Path("identities", name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "identity.toml").write_text(identity, encoding="utf-8")
