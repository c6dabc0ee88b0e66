"""Start-up beside an empty Python: `uv run benchmarks/startup.py`. Medians of whole processes, taken in turn."""

from __future__ import annotations

import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 15
PROMPT = "❯".encode()
CHATBOT = [sys.executable, "-m", "chatbot"]


def finished(command: list[str]) -> Callable[[], None]:
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL).check_returncode()


def first_prompt() -> None:
    """Start the chat in a terminal and wait until its prompt is drawn."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [*CHATBOT, "-m", "scripted", "--ephemeral"])
    seen = b""
    while PROMPT not in seen:
        select.select([terminal], [], [], 20)
        data = os.read(terminal, 65_536)
        if b"\x1b[6n" in data:
            os.write(terminal, b"\x1b[1;1R")
        seen += data
    os.kill(process, 9)
    os.waitpid(process, 0)
    os.close(terminal)


def main() -> None:
    os.environ["TERM"] = "xterm-256color"
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        os.chdir(Path(home))
        work = {
            "python -c pass": finished([sys.executable, "-c", "pass"]),
            "chatbot --help": finished([*CHATBOT, "--help"]),
            "first prompt": first_prompt,
        }
        taken: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(ROUNDS):
            for name, run in work.items():
                started = time.perf_counter()
                run()
                taken[name].append(time.perf_counter() - started)
    least = statistics.median(taken["python -c pass"])
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:16} {median * 1e3:7.1f} ms   {median / least:5.1f} × python -c pass")


if __name__ == "__main__":
    main()
