# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime", "whoosh3==3.54.0"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Measure the public API: remembering, loading in bulk, opening, and searching while a batch is indexed.

    uv run benchmarks/observations.py --rows 10000,100000

Peers in the same run: a bare append with fdatasync, SQLite with FTS5 (WAL, synchronous FULL), and a Whoosh commit each.
`BENCH_DIR` names a folder on the disk to measure.
"""

import argparse
import asyncio
import os
import random
import resource
import shutil
import sqlite3
import statistics
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chatbot.memory import MemorySystem
from chatbot.memory.memory import Memory
from chatbot.memory.writing import Draft

_WORDS = 20_000
_SINGLE = 150
_ASKED = 40


class Texts:
    """Deterministic texts; the frequencies of their words follow Zipf's law."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        letters = string.ascii_lowercase
        self._words = ["".join(self._random.choices(letters, k=self._random.randint(3, 9))) for _ in range(_WORDS)]
        self._weights = [1 / (rank + 2.7) for rank in range(_WORDS)]
        self._cumulated = [0.0]
        for weight in self._weights:
            self._cumulated.append(self._cumulated[-1] + weight)
        del self._cumulated[0]

    def some(self, words: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._cumulated, k=words))


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="observations-", dir=os.environ.get("BENCH_DIR")))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def memory_in(path: Path) -> MemorySystem:
    return MemorySystem(path / "memory", settings={"observations": {"cache": str(path / "cache")}})


async def measure(rows: int, texts: Texts) -> None:
    with folder() as path:
        print(f"\n{rows:,} rows")
        async with memory_in(path) as memory:
            notes = memory.memory("bench")
            drafts = [Draft(title=texts.some(5), narrative=texts.some(28)) for _ in range(rows)]
            begin = time.process_time()
            await notes.remember_all(drafts)
            loaded = time.process_time()
            await notes.search(texts.some(6))
            indexed = time.process_time()
            without, whole = rows / (loaded - begin), rows / (indexed - begin)
            print(f"  bulk load       {without:8.0f} rows per CPU second, {whole:.0f} with the index")
            journal, cache = _size(path / "memory") / rows, _size(path / "cache") / rows
            print(f"  bytes per row   {journal:8.0f} journal, {cache:.0f} cache")
            await questions(notes, drafts, texts, path)
            await singles(notes, texts, path)
        opener = await asyncio.create_subprocess_exec(sys.executable, __file__, "--open", str(path))
        await opener.wait()


async def questions(notes: Memory, drafts: list[Draft], texts: Texts, path: Path) -> None:
    """Compare a whole search by 10 words with FTS5's own query for them over the same rows; they take turns."""
    database = sqlite3.connect(path / "questions.db")
    database.execute("create virtual table t using fts5(title, body, tokenize = porter)")
    database.executemany("insert into t values (?, ?)", [(draft.title, draft.narrative) for draft in drafts])
    spent: dict[str, list[float]] = {"search": [], "fts5": []}
    for question in [texts.some(10) for _ in range(_ASKED)]:
        await notes.search(question, count_use=False)
        with timed(spent["search"], time.process_time):
            await notes.search(question, count_use=False)
        words = " OR ".join(f'"{word}"' for word in question.split())
        for _ in range(2):
            with timed(spent["fts5"], time.process_time):
                database.execute("select rowid from t where t match ? order by rank limit 10", (words,)).fetchall()
    ours, theirs = (statistics.median(each) for each in spent.values())
    print(f"  whole search    {ours * 1e3:8.2f} ms of CPU = {ours / theirs:.3f} x fts5's own query")
    database.close()
    (path / "questions.db").unlink()


async def singles(notes: Memory, texts: Texts, path: Path) -> None:
    """Compare one remember, durable and visible to the next search, with its peers; they take turns."""
    database = sqlite3.connect(path / "fts.db", isolation_level=None)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = full")
    database.execute("create virtual table t using fts5(title, body, tokenize = porter)")
    bare = os.open(path / "bare", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    commit = _whoosh_commit(path / "whoosh")
    spent: dict[str, list[float]] = {"remember": [], "bare": [], "fts5": [], "whoosh": []}
    for number in range(_SINGLE):
        title, body = texts.some(5), texts.some(28)
        with timed(spent["bare"]):
            os.write(bare, (title + body).encode() + b"\n")
            os.fdatasync(bare)
        with timed(spent["remember"]):
            await notes.remember(title, narrative=body)
        with timed(spent["fts5"]):
            database.execute("insert into t values (?, ?)", (title, body))
        if number % 5 == 0:
            with timed(spent["whoosh"]):
                commit(title, body)
    medians = {name: statistics.median(each) for name, each in spent.items()}
    ours = medians.pop("remember")
    ratios = ", ".join(f"{ours / other:.3f} x {name}" for name, other in medians.items())
    print(f"  one remember    {ours * 1e6:8.0f} us = {ratios}")
    os.close(bare)


async def opening(path: Path) -> None:
    """Measure opening, the first search, and searches while a batch is indexed, in a process of its own."""
    texts = Texts()
    begin = time.process_time()
    async with memory_in(path) as memory:
        notes = memory.memory("bench")
        await notes.get(["01900000-0000-7000-8000-000000000000"])
        opened = time.process_time()
        await notes.search(texts.some(6), count_use=False)
        searched = time.process_time()
        print(f"  opening         {opened - begin:8.3f} s CPU, {searched - opened:.3f} until the first answer")
        print(f"  memory          {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:8.0f} MB at most")
        questions = [texts.some(10) for _ in range(60)]
        quiet = [await _search(notes, question) for question in questions]
        await notes.remember_all([Draft(title=texts.some(33)) for _ in range(1_500)])
        busy = [await _search(notes, question) for question in questions]
        median, during = statistics.median(quiet), statistics.median(busy)
        print(f"  search          {median * 1e3:8.2f} ms, {during * 1e3:.2f} ms while a batch is indexed")
        print(f"  longest search  {max(quiet) * 1e3:8.0f} ms, {max(busy) * 1e3:.0f} ms while a batch is indexed")


async def _search(notes: Memory, question: str) -> float:
    begin = time.perf_counter()
    await notes.search(question, count_use=False)
    return time.perf_counter() - begin


def _whoosh_commit(path: Path) -> Callable[[str, str], None]:
    from whoosh import fields, index

    path.mkdir()
    made = index.create_in(str(path), fields.Schema(title=fields.TEXT, body=fields.TEXT))

    def commit(title: str, body: str) -> None:
        writer = made.writer()
        writer.add_document(title=title, body=body)
        writer.commit()

    return commit


@contextmanager
def timed(spent: list[float], clock: Callable[[], float] = time.perf_counter) -> Iterator[None]:
    begin = clock()
    yield
    spent.append(clock() - begin)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000,10000", help="how many rows, one or several numbers")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.open:
        asyncio.run(opening(args.open))
        return
    for rows in map(int, args.rows.split(",")):
        asyncio.run(measure(rows, Texts()))


if __name__ == "__main__":
    main()
