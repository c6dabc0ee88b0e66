"""Processes of the contract kit: what is promised between processes is tried with real ones, some of which are killed.

An engine is named as `package.module:function`, a function from a folder to what is tested, so that a process of its
own can open it too.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PATIENCE_S = 200.0
"""How long to wait for what is sure to come; a busy machine fails no test."""
_RUN = """
import sys
from pathlib import Path
from chatbot.stores.testing.processes import opened
import {module} as worker
worker.{name}(opened(sys.argv[1], Path(sys.argv[2])), *sys.argv[3:])
"""


def opened(opener: str, folder: Path) -> Any:
    """Return what the function of that name opens in the folder."""
    module, _, name = opener.partition(":")
    return getattr(importlib.import_module(module), name)(folder)


def start(worker: str, opener: str, folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start a process that calls `worker` (`package.module:function`) with what `opener` opens, and the arguments."""
    module, _, name = worker.partition(":")
    command = [sys.executable, "-c", _RUN.format(module=module, name=name), opener, str(folder), *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines printed by a process that ends by itself. Fails if it failed."""
    printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, f"a process of the test ended with {process.returncode}"
    return printed.splitlines()


def killed_after(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Kill a process once it has printed so many lines; all that it had printed by then, whole lines alone."""
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    printed += process.stdout.readlines()
    process.communicate(timeout=PATIENCE_S)
    return [line.rstrip("\n") for line in printed if line.endswith("\n")]
