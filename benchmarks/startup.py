"""Start-up, compared with an empty Python: `uv run benchmarks/startup.py`. Medians of the CPU time of whole processes.

All take turns. Like every start but the first, these find their modules compiled, whatever the environment says: a
first round compiles them into a folder of its own. With `--uncompiled` nothing is written there, so each start compiles
the modules that were installed uncompiled. `--ask` times a whole `chatbot ask` with 0, 1,000 and 10,000 memories,
including the local encoders. `--full` also lists the newest of 10,000 sessions and searches 100,000 rows: once uniform
ones, and once varied ones, of which 200 came after the index was built, and one more before each search, untimed.
"""

import argparse
import json
import os
import pty
import random
import resource
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from observations import Texts

    from chatbot.runtime import Runtime

ROUNDS = 7
PROMPT = "❯".encode()
CHATBOT = [sys.executable, "-m", "chatbot"]


def finished(command: list[str], home: Path | None = None) -> Callable[[], None]:
    home_is = {"HOME": str(home)} if home else {}
    return lambda: subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=home,
        env=os.environ | home_is,
    ).check_returncode()


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
    """Make a session with a message."""
    script = {"CHATBOT_MODEL__SCRIPT": json.dumps([reply])}
    command = [*CHATBOT, "ask", "-m", "scripted", title]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, env=os.environ | script)


def prepare(home: str, *, uncompiled: bool) -> None:
    """Make an empty home, and compile the modules unless the command line forbids it."""
    os.chdir(home)
    os.environ.pop("XDG_DATA_HOME", None)
    os.environ |= {"HOME": home, "TERM": "xterm-256color"}
    if uncompiled:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    else:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(home) / "compiled")


async def fill(runtime: "Runtime", texts: "Texts", sessions: int, rows: int) -> None:
    """Add sessions and memories."""
    from chatbot.memory.writing import Draft

    for _ in range(sessions):
        await runtime.memory.create_session(["basic_session"], "chat", title=texts.some(4))
    notes = runtime.memory.memory("chat")
    for _ in range(0, rows, 1_000):
        await notes.remember_all([Draft(title=texts.some(5), narrative=texts.some(28)) for _ in range(1_000)])
    await notes.reindex()


async def live(runtime: "Runtime", texts: "Texts", rows: int) -> None:
    """Add varied memories, twenty a session, with labels; some are sensitive, some were used, some forgotten."""
    from chatbot.memory.writing import Draft

    chance = random.Random(rows)
    ids: list[str] = []
    for _ in range(0, rows, 20):
        session = await runtime.memory.create_session(["observations"], "chat")
        drafts = [
            Draft(
                title=texts.some(5),
                narrative=texts.some(28),
                type=chance.choice(("note", "exchange", "decision", "event")),
                tags=texts.some(2).split(),
                people=[chance.choice(("Ada", "Bob", "Eve"))],
                user_text=texts.some(8) if chance.random() < 0.5 else "",
                sensitivity="private" if chance.random() < 0.05 else "public",
            )
            for _ in range(20)
        ]
        ids += [kept.id for kept in await session.memory.remember_all(drafts)]
    notes = runtime.memory.memory("chat")
    await notes.note_use(chance.sample(ids, rows // 100))
    await notes.forget(*chance.sample(ids, rows // 50))


def spent_by(run: Callable[[], None]) -> float:
    """Return the seconds of CPU of the process that `run` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def compare(work: dict[str, Callable[[], None]], before: dict[str, Callable[[], None]] | None = None) -> None:
    """Print the medians, and their ratios to an empty Python; `before` runs untimed before each."""
    work = {"python -c pass": finished([sys.executable, "-c", "pass"]), **work}
    for run in work.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, run in work.items():
            if before and name in before:
                before[name]()
            taken[name].append(spent_by(run))
    least = statistics.median(taken["python -c pass"])
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:18} {median * 1e3:7.1f} ms   {median / least:5.1f} × python -c pass")


def ask(sizes: list[int]) -> None:
    """Print the CPU time of a whole `chatbot ask` with these numbers of memories, of which four are recalled."""
    for rows in sizes:
        home = Path.cwd() / f"rows-{rows}"
        home.mkdir()
        work_in(home, partial(know, rows=rows))
        run = finished([*CHATBOT, "ask", "-m", "scripted", "--new", "Who mended the stove in the cellar?"], home)
        run()
        taken = [spent_by(run) for _ in range(ROUNDS)]
        print(f"ask, {rows:6,} rows   {statistics.median(taken) * 1e3:7.1f} ms of CPU, {min(taken) * 1e3:.1f} at least")


async def know(runtime: "Runtime", rows: int) -> None:
    """Remember the rows of `footprint.py`, and embed them."""
    from footprint import drafts

    notes = runtime.memory.memory("chat")
    await notes.remember_all(drafts(rows))
    await notes.embed_memories()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uncompiled", action="store_true")
    parser.add_argument("--ask", metavar="ROWS", nargs="?", const="0,1000,10000", help="sizes, with commas between")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rows", type=int, default=100_000, help="memories that are searched with --full")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        prepare(home, uncompiled=args.uncompiled)
        if args.ask:
            ask([int(each) for each in args.ask.split(",")])
            return
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
        if args.full:
            full(Path(home), args.rows)


def full(home: Path, rows: int) -> None:
    """Measure with many sessions and memories."""
    from observations import Texts

    lived = home / "lived"
    lived.mkdir()
    texts, numbers = Texts(), count()
    search = [*CHATBOT, "memory", "search", texts.some(5)]
    work_in(home, partial(fill, texts=texts, sessions=rows // 10, rows=rows))
    work_in(lived, partial(live, texts=texts, rows=rows))
    work_in(lived, lambda runtime: runtime.memory.memory("chat").reindex())
    work_in(lived, partial(live, texts=texts, rows=200))
    os.environ["HOME"] = str(home)

    def one_more() -> None:
        finished([*CHATBOT, "memory", "add", f"one more, {next(numbers)}"], lived)()

    compare(
        {
            "sessions list": finished([*CHATBOT, "sessions", "list"]),
            "search, all alike": finished(search),
            "search, lived in": finished(search, lived),
        },
        {"search, lived in": one_more},
    )


def work_in(home: Path, work: "Callable[[Runtime], Awaitable[object]]") -> None:
    """Open the memory in a home, do something and close it."""
    import asyncio

    from chatbot.runtime import Options, Runtime

    async def opened() -> None:
        async with Runtime(Options(model="scripted")) as runtime:
            await work(runtime)

    os.environ["HOME"] = str(home)
    asyncio.run(opened())


if __name__ == "__main__":
    main()
