# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]", "bm25s", "PyStemmer"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""How much of what answers a question is recalled: one setting for every set, with and without the local encoders.

    uv run benchmarks/quality.py                                   # the sets that come with this script
    uv run benchmarks/quality.py locomo10.json longmemeval_s.json BEAM/chats/100K zyphra.json
    uv run benchmarks/quality.py locomo10.json --half unseen       # every other question only

A set may have any form that `forms.py` reads; questions without evidence are left out. Each memory is remembered
through the public API, every row has its vector before the first question, and `texts` are recalled as a chat does it:
the lines of the moment, the last one asked. "nonsense" is the share of 100 questions that nothing answers which recall
something all the same, and how many rows. R@k is the share of gold among the first k rows; "block" is the share of
questions with a gold row among the five that a prompt holds.

Beside it, in the same run and on the same texts: SQLite's FTS5 and bm25s.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sqlite3
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from forms import Case, Doc, Query, cases, with_evidence

from chatbot.memory import MemorySystem
from chatbot.memory.exchanges import QUESTION
from chatbot.memory.writing import Draft
from chatbot.models.local_encoder import LocalEmbedder

AGENT = "quality"
DEPTH = 10
BLOCK = 5
FORM = (
    "Ann Bob Cleo Dan Eve Finn Gil Hana Ivo Jana Kai Lea Max Nora Olaf Pia Quin Rosa Sven Tara Ugo Vera",
    "chess kayak printer passport garden violin boiler stamp telescope canoe oven lantern bicycle quilt",
)
"""Who, and about what."""
SETS = Path(__file__).parent / "sets"
_SYLLABLES = ("zyx", "quor", "blen", "thrap", "vosh", "ukle", "miv", "grond", "pesk", "yarl", "dwim", "folp", "snaz")
Ask = Callable[[list[str]], Awaitable[list[int]]]


@dataclass
class Score:
    """Figures of every question of a set."""

    rows: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, query: Query, found: list[int]) -> None:
        for k in (5, 10):
            self.rows[f"R@{k}"].append(len(query.gold.intersection(found[:k])) / len(query.gold))
        self.rows["block"].append(float(bool(query.gold.intersection(found[:BLOCK]))))

    def line(self) -> str:
        return "  ".join(f"{name} {100 * statistics.fmean(values):5.1f}" for name, values in self.rows.items())


def everyday() -> Case:
    """Facts told in passing over a year, four exchanges a session, asked for in other words."""
    told = _parts("everyday.txt")
    said = [(user, reply, question) for question, user, reply, _ in told]
    return _year(said, [[asked] for *_, asked in told])


def languages(*, in_english: bool) -> Case:
    """The same in 10 languages, asked for in the language of each or in English."""
    told = _parts("languages.txt")
    return _year([(user, reply, "") for user, reply, *_ in told], [[each[2 + in_english]] for each in told])


def nonsense(count: int = 100) -> list[str]:
    """Questions that nothing answers: made-up words, in the form of a question or alone."""
    chance = random.Random(3)
    words = ["".join(chance.choices(_SYLLABLES, k=2)) for _ in range(3 * count)]
    forms = ("What is the {} of the {}?", "{} {} {}", "Did the {} ever {}?", "how do I {} a {}")
    return [forms[number % len(forms)].format(*words[3 * number :]) for number in range(count)]


def _parts(name: str) -> list[list[str]]:
    lines = (SETS / name).read_text(encoding="utf-8").splitlines()
    told = [[part.strip() for part in line.split("|")] for line in lines if line[:1] not in {"#", ""}]
    random.Random(1).shuffle(told)
    return told


def _year(said: list[tuple[str, str, str]], asked: list[list[str]]) -> Case:
    """Return a year of exchanges (user, reply, the bot's question before), and a question about each."""
    begin = datetime(2025, 1, 1, 9, tzinfo=UTC)
    docs = [
        Doc(number // 4, begin + timedelta(days=365 * number / len(said)), user, reply, question=question)
        for number, (user, reply, question) in enumerate(said)
    ]
    queries = [Query(texts, frozenset({number})) for number, texts in enumerate(asked)]
    return Case(begin + timedelta(days=370), docs, queries)


def notes(count: int = 5000) -> Case:
    """Notes of one form, remembered one after the other in one session: a person, a thing, a number."""
    names, things = (line.split() for line in FORM)
    chance = random.Random(2)
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    drawn = [(chance.choice(names), chance.choice(things)) for _ in range(count)]
    docs = [
        Doc(1, begin + timedelta(minutes=number), narrative=f"{name} talked about the {thing} with number {number}.")
        for number, (name, thing) in enumerate(drawn)
    ]
    asked = chance.sample(sorted(set(drawn)), 42)
    queries = [
        Query([f"What did {name} say about the {thing}?"], frozenset(i for i, each in enumerate(drawn) if each == pair))
        for pair in asked
        for name, thing in [pair]
    ]
    return Case(begin + timedelta(days=30), docs, queries)


async def remembered(case: Case, folder: Path, *, encoder: bool) -> tuple[MemorySystem, dict[str, int]]:
    """Remember the docs through the public API; return the open memory, and the number of each row's doc by id."""
    memory = MemorySystem(
        folder / "memory",
        clock=lambda: case.now,
        settings={"observations": {"cache": str(folder / "cache")}},
        embedder=LocalEmbedder() if encoder else None,
    )
    numbers: dict[str, int] = {}
    for place in dict.fromkeys(doc.session for doc in case.docs):
        session = None if place is None else await memory.create_session(["basic_session", "observations"], AGENT)
        here = [number for number, doc in enumerate(case.docs) if doc.session == place]
        kept = await (session or memory.memories(AGENT)).remember_all([_draft(case.docs[number]) for number in here])
        numbers |= {row.id: number for row, number in zip(kept, here, strict=True) if row.id not in numbers}
    if encoder:
        await memory.memories(AGENT).embed_memories()
        if missing := (await memory.memories(AGENT).vector_stats()).missing:
            raise SystemExit(f"{missing} rows have no vector")
    return memory, numbers


async def ours(case: Case, folder: Path, *, encoder: bool) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    """Remember the docs; return how to ask, and how to close."""
    memory, numbers = await remembered(case, folder, encoder=encoder)
    asking = memory.memories(AGENT)

    async def ask(texts: list[str]) -> list[int]:
        return [numbers[hit.id] for hit in (await asking.recall(texts, limit=DEPTH)).hits if hit.id in numbers]

    return ask, memory.aclose


def _draft(doc: Doc) -> Draft:
    if doc.narrative:
        return Draft(type="note", narrative=doc.narrative, created_at=doc.at)
    metadata = {QUESTION: doc.question} if doc.question else {}
    return Draft(type="exchange", user_text=doc.user, assistant_text=doc.reply, metadata=metadata, created_at=doc.at)


def fts5(case: Case) -> Ask:
    database = sqlite3.connect(":memory:")
    database.execute("create virtual table t using fts5(text, tokenize = porter)")
    database.executemany("insert into t values (?)", [(doc.text,) for doc in case.docs])

    async def ask(texts: list[str]) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", " ".join(texts)))
        found = database.execute("select rowid from t where t match ? order by bm25(t) limit ?", (words, DEPTH))
        return [row[0] - 1 for row in found]

    return ask


def bm25s(case: Case, depth: int = DEPTH) -> Ask:
    import bm25s as library
    import Stemmer

    stemmer = Stemmer.Stemmer("english")

    def tokens(texts: list[str]) -> Any:
        return library.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)

    retriever = library.BM25()
    retriever.index(tokens([doc.text for doc in case.docs]), show_progress=False)

    async def ask(texts: list[str]) -> list[int]:
        asked = tokens(["\n".join(texts)])
        found, _ = retriever.retrieve(asked, k=min(depth, len(case.docs)), show_progress=False)
        return [int(number) for number in found[0]]

    return ask


async def measure(name: str, found: list[Case], half: str, *, peers: bool) -> None:
    """Print one line for each way to search a set."""
    scores: defaultdict[str, Score] = defaultdict(Score)
    idle: defaultdict[str, list[int]] = defaultdict(list)
    for number, case in enumerate(found):
        queries = case.queries if half == "all" else case.queries[half == "unseen" :: 2]
        with tempfile.TemporaryDirectory() as folder:
            words, close_words = await ours(case, Path(folder, "words"), encoder=False)
            meaning, close_meaning = await ours(case, Path(folder, "meaning"), encoder=True)
            asking = {"words": words, "words and meaning": meaning}
            if peers:
                asking |= {"FTS5": fts5(case), "bm25s": bm25s(case)}
            for query in queries:
                for way, ask in asking.items():
                    scores[way].add(query, await ask(query.texts))
            for way, ask in (("words", words), ("words and meaning", meaning)):
                idle[way] += [len(await ask([question])) for question in nonsense()[number % 100 :: len(found)]]
            await close_words()
            await close_meaning()
    for way, score in scores.items():
        found_nothing = (
            f"  nonsense {statistics.fmean(map(bool, idle[way])):.2f} × {_mean_rows(idle[way])} rows"
            if idle[way]
            else ""
        )
        print(f"{name:16} {way:18} {score.line()}{found_nothing}", flush=True)


def _mean_rows(counts: list[int]) -> str:
    """How many rows a question recalls that recalls any."""
    return f"{statistics.fmean([each for each in counts if each] or [0]):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=Path, help="files in LoCoMo's or the common form")
    parser.add_argument("--half", choices=("all", "seen", "unseen"), default="all", help="every other question")
    parser.add_argument("--no-peers", action="store_true", help="leave out FTS5 and bm25s")
    parser.add_argument("--no-own", action="store_true", help="leave out the sets that come with this script")
    parser.add_argument("--notes", type=int, default=5000, help="notes of one form; 0 leaves that set out")
    given = parser.parse_args()

    async def run() -> None:
        if not given.no_own:
            await measure("everyday", [everyday()], given.half, peers=not given.no_peers)
            await measure("languages", [languages(in_english=False)], given.half, peers=not given.no_peers)
            await measure("in English", [languages(in_english=True)], given.half, peers=not given.no_peers)
        if given.notes and not given.no_own:
            await measure("notes", [notes(given.notes)], given.half, peers=not given.no_peers)
        for path in given.sets:
            await measure(
                path.stem, [with_evidence(case) for case in cases(path)], given.half, peers=not given.no_peers
            )

    asyncio.run(run())


if __name__ == "__main__":
    main()
