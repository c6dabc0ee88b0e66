"""Start-up beside an empty Python: `uv run benchmarks/startup.py`. Medians of whole processes, taken in turn.

Every start but the very first finds its modules compiled, and so do these, whatever the environment says: what is
compiled goes to a folder of its own, which one round before the others fills. `--uncompiled` writes none, so that
what is not compiled where it is installed is compiled at every start. `--full` also lists the newest of 10,000
sessions, and searches 100,000 rows.
"""

from __future__ import annotations

import json
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


def prompt(*flags: str) -> Callable[[], None]:
    return lambda: _wait_for_prompt(flags)


def _wait_for_prompt(flags: tuple[str, ...]) -> None:
    """Start the chat in a terminal and wait until its prompt is drawn."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [*CHATBOT, *flags])
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


def remember(title: str, reply: str) -> None:
    """Have a session in which something was said."""
    script = {"CHATBOT_MODEL__SCRIPT": json.dumps([reply])}
    command = [*CHATBOT, "ask", "-m", "scripted", title]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, env=os.environ | script)


def prepare(home: str) -> None:
    """An empty home, and modules compiled unless the command line says otherwise."""
    os.chdir(home)
    os.environ.pop("XDG_DATA_HOME", None)
    os.environ |= {"HOME": home, "TERM": "xterm-256color"}
    if "--uncompiled" in sys.argv:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    else:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(home) / "compiled")


def fill(sessions: int, rows: int) -> None:
    """As many sessions, and as many things remembered."""
    import asyncio

    from observations import Texts

    from chatbot.memory.writing import Draft
    from chatbot.runtime import Runtime
    from chatbot.setup import Options

    async def work() -> None:
        texts = Texts()
        async with Runtime(Options(model="scripted")) as runtime:
            for _ in range(sessions):
                await runtime.memory.create_session(["basic_session"], "chat", title=texts.some(4))
            notes = runtime.memory.memories("chat")
            for _ in range(0, rows, 1_000):
                await notes.remember_all([Draft(title=texts.some(5), narrative=texts.some(28)) for _ in range(1_000)])
            await notes.reindex()

    asyncio.run(work())


def compare(work: dict[str, Callable[[], None]]) -> None:
    """Print the medians, and what they are of an empty Python."""
    work = {"python -c pass": finished([sys.executable, "-c", "pass"]), **work}
    for run in work.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, run in work.items():
            started = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - started)
    least = statistics.median(taken["python -c pass"])
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:18} {median * 1e3:7.1f} ms   {median / least:5.1f} × python -c pass")


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        prepare(home)
        remember("short", "yes")
        remember("long", "word " * 60)
        compare(
            {
                "chatbot --help": finished([*CHATBOT, "--help"]),
                "prompt, ephemeral": prompt("-m", "scripted", "--ephemeral"),
                "prompt, short past": prompt("-r", "short"),
                "prompt, long past": prompt("-r", "long"),
            }
        )
        if "--full" in sys.argv:
            from observations import Texts

            fill(10_000, 100_000)
            words = Texts().some(5)
            compare(
                {
                    "sessions list": finished([*CHATBOT, "sessions", "list"]),
                    "memory search": finished([*CHATBOT, "memory", "search", words]),
                }
            )


if __name__ == "__main__":
    main()
