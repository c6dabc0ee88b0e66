# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]", "bm25s", "PyStemmer"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Measure recall on every set with one setting, with and without the local encoders.

    uv run benchmarks/quality.py                                   # the sets that come with this script
    uv run benchmarks/quality.py locomo10.json longmemeval_s.json BEAM/chats/100K zyphra.json
    uv run benchmarks/quality.py --around locomo10.json            # the facts among the talk of its first conversation
    uv run benchmarks/quality.py --keep vectors.db locomo10.json   # embeds nothing twice, in later runs either

A set may have any form of `set_readers.py`; questions without evidence are left out. Each memory is filled through
the public API, every row has its vector before the first question, and `texts` are recalled as in a chat: the last
lines, of which the last is the question. R@k is the share of gold among the first k rows; "block" is the share of
questions with a gold row among the five in a prompt. Each figure is given for all questions and, in brackets, for the
half that may be used for tuning and for the other half: every other question, or every other memory if each has only
one question.

"made up" and "real words" are the shares of 100 and 50 questions without an answer for which rows are recalled anyway,
and how many rows.

Peers in the same run, on the same texts: SQLite's FTS5 and bm25s.
"""

import argparse
import asyncio
import math
import random
import re
import sqlite3
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from set_readers import Case, Doc, Query, cases, with_evidence
from vector_cache import KeptVectors

from chatbot.embedder import Embedder
from chatbot.memory import MemorySystem
from chatbot.memory.episode import QUESTION
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
CHAT = (
    "I had such a long day today, the train was late again and my phone died.",
    "Can you recommend a good podcast about history?",
    "The weather is lovely, we went to the park with the kids.",
    "How do I get red wine out of a carpet?",
    "Work was a mess, my boss changed the plan twice.",
    "Thanks, that helped a lot.",
)
"""Lines about something else that come before a question, two at a time."""
SETS = Path(__file__).parent / "sets"
_SYLLABLES = ("zyx", "quor", "blen", "thrap", "vosh", "ukle", "miv", "grond", "pesk", "yarl", "dwim", "folp", "snaz")
Ask = Callable[[list[str]], Awaitable[list[int]]]


@dataclass
class Score:
    """Figures of every question of a set, each with its half: 0 for tuning, 1 for testing."""

    rows: defaultdict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, query: Query, found: list[int], half: int) -> None:
        for k in (5, 10):
            self.rows[f"R@{k}"].append((half, len(query.gold.intersection(found[:k])) / len(query.gold)))
        self.rows["block"].append((half, float(bool(query.gold.intersection(found[:BLOCK])))))

    def line(self) -> str:
        return "  ".join(f"{name} {_in_halves(values)}" for name, values in self.rows.items())


def _in_halves(values: list[tuple[int, float]]) -> str:
    """Return the mean in hundredths and, in brackets, those of both halves."""
    means = [
        statistics.fmean([value for half, value in values if half in halves] or [math.nan])
        for halves in ({0, 1}, {0}, {1})
    ]
    total, *halves = (f"{100 * mean:.1f}" for mean in means)
    return f"{total:>5} ({', '.join(halves)})"


def everyday(name: str, around: Sequence[Doc] = (), *, in_chat: bool = False) -> Case:
    """Return facts mentioned over a year, asked for in other words; `in_chat`, after two lines about something else."""
    told = _parts(name)
    said = [(user, reply, question) for question, user, reply, _ in told]
    asked = [[*(CHAT[number % 3 :: 3] if in_chat else ()), each] for number, (*_, each) in enumerate(told)]
    return _year(said, asked, around)


def languages(*, in_english: bool) -> Case:
    """Return the same in 10 languages, asked for in the language of each or in English."""
    told = _parts("languages.txt")
    return _year([(user, reply, "") for user, reply, *_ in told], [[each[2 + in_english]] for each in told])


def five_languages(language: int) -> Case:
    """Return 40 lines in English among 160 of other people, asked for in one of five languages."""
    told = _parts("five_languages.txt")
    talk = [
        Doc(number // 4, datetime(2025, 1, 1, tzinfo=UTC), line)
        for number, line in enumerate(_lines("other_talk.txt")[:160])
    ]
    return _year([(user, "", "") for user, *_ in told], [[each[1 + language]] for each in told], talk)


def chinese() -> Case:
    """Return 80 lines in Chinese without replies, of which 40 answer a question; the others are similar."""
    told = _parts("chinese.txt")
    return _year([(user, "", "") for user, *_ in told], [[each[1]] if each[1] else [] for each in told])


def nonsense() -> dict[str, list[str]]:
    """Return questions without an answer, of made-up and of real words."""
    made_up, real = (_lines("nonsense.txt")[begin : begin + 50] for begin in (0, 50))
    chance = random.Random(3)
    words = ["".join(chance.choices(_SYLLABLES, k=2)) for _ in range(150)]
    forms = ("What is the {} of the {}?", "{} {} {}", "Did the {} ever {}?", "how do I {} a {}")
    drawn = [forms[number % len(forms)].format(*words[3 * number :]) for number in range(50)]
    return {"made up": [*drawn, *made_up], "real words": real}


def _lines(name: str) -> list[str]:
    lines = (SETS / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line[:1] not in {"#", ""}]


def _parts(name: str) -> list[list[str]]:
    told = [[part.strip() for part in line.split("|")] for line in _lines(name)]
    random.Random(1).shuffle(told)
    return told


def _year(said: list[tuple[str, str, str]], asked: list[list[str]], around: Sequence[Doc] = ()) -> Case:
    """Return a year of exchanges (user, reply, the bot's question before), four a session, and the questions for each.

    The conversation `around` them is spread over the same year.
    """
    begin = datetime(2025, 1, 1, 9, tzinfo=UTC)
    docs = [
        Doc(number // 4, begin + timedelta(days=365 * number / len(said)), user, reply, question=question)
        for number, (user, reply, question) in enumerate(said)
    ]
    more = [
        replace(doc, session=len(docs) + (doc.session or 0), at=begin + timedelta(days=365 * number / len(around)))
        for number, doc in enumerate(around)
    ]
    queries = [Query(texts, frozenset({number})) for number, texts in enumerate(asked) if texts]
    return Case(begin + timedelta(days=370), [*docs, *more], queries)


def notes(count: int = 5000) -> Case:
    """Return notes of one form in one session: a person, a thing, a number."""
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


async def remembered(case: Case, folder: Path, *, encoder: Embedder | None) -> tuple[MemorySystem, dict[str, int]]:
    """Remember the docs through the public API; return the open memory, and each row's doc number by its id."""
    memory = MemorySystem(
        folder / "memory",
        clock=lambda: case.now,
        settings={"observations": {"cache": str(folder / "cache")}},
        embedder=encoder,
    )
    numbers: dict[str, int] = {}
    for place in dict.fromkeys(doc.session for doc in case.docs):
        session = None if place is None else await memory.create_session(["basic_session", "observations"], AGENT)
        here = [number for number, doc in enumerate(case.docs) if doc.session == place]
        kept = await (session.memory if session else memory.memory(AGENT)).remember_all(
            [_draft(case.docs[number]) for number in here]
        )
        numbers |= {row.id: number for row, number in zip(kept, here, strict=True) if row.id not in numbers}
    if encoder is not None:
        await memory.memory(AGENT).embed_memories()
        if missing := (await memory.memory(AGENT).vector_stats()).missing:
            raise SystemExit(f"{missing} rows have no vector")
    return memory, numbers


async def ours(case: Case, folder: Path, *, encoder: Embedder | None) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    """Remember the docs; return functions to ask and to close."""
    memory, numbers = await remembered(case, folder, encoder=encoder)
    asking = memory.memory(AGENT)

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


async def measure(name: str, found: list[Case], encoder: Embedder, *, peers: bool) -> None:
    """Print a line for each way to search a set."""
    scores: defaultdict[str, Score] = defaultdict(Score)
    idle: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, case in enumerate(found):
        with tempfile.TemporaryDirectory() as folder:
            words, close_words = await ours(case, Path(folder, "words"), encoder=None)
            meaning, close_meaning = await ours(case, Path(folder, "meaning"), encoder=encoder)
            asking = {"words": words, "words and meaning": meaning}
            if peers:
                asking |= {"FTS5": fts5(case), "bm25s": bm25s(case)}
            for place, query in enumerate(case.queries):
                for way, ask in asking.items():
                    scores[way].add(query, await ask(query.texts), (place if len(case.queries) > 1 else number) % 2)
            for way, ask in (("words", words), ("words and meaning", meaning)):
                for kind, questions in nonsense().items():
                    idle[way][kind] += [len(await ask([each])) for each in questions[number % 50 :: len(found)]]
            await close_words()
            await close_meaning()
    for way, score in scores.items():
        recalled = "".join(f"  {kind} {_share(counts)}" for kind, counts in idle[way].items())
        print(f"{name:22} {way:18} {score.line()}{recalled}", flush=True)


def _share(counts: list[int]) -> str:
    """Return the share of questions that recall rows, and how many rows each of these recalls."""
    some = [each for each in counts if each]
    return f"{len(some) / len(counts):.2f} × {statistics.fmean(some or [0]):.1f}" if counts else "-"


def own_sets(around: Sequence[Doc], notes_of_one_form: int) -> Iterator[tuple[str, Case]]:
    """Return the sets that come with this script, by name."""
    for name in ("everyday", "everyday_second"):
        yield name, everyday(f"{name}.txt", around)
        yield f"{name}, in a chat", everyday(f"{name}.txt", around, in_chat=True)
    yield "languages", languages(in_english=False)
    yield "in English", languages(in_english=True)
    for number, language in enumerate(("English", "German", "Spanish", "French", "Chinese")):
        yield f"five, in {language}", five_languages(number)
    yield "chinese", chinese()
    if notes_of_one_form:
        yield "notes", notes(notes_of_one_form)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=Path, help="files in LoCoMo's or the common form")
    parser.add_argument("--around", type=Path, help="a set whose first memory is put around the everyday facts")
    parser.add_argument("--keep", type=Path, help="a file that keeps the vectors of texts for later runs")
    parser.add_argument("--no-peers", action="store_true", help="leave out FTS5 and bm25s")
    parser.add_argument("--no-own", action="store_true", help="leave out the sets that come with this script")
    parser.add_argument("--notes", type=int, default=5000, help="notes of one form; 0 leaves that set out")
    given = parser.parse_args()
    encoder: Embedder = KeptVectors(LocalEmbedder(), given.keep) if given.keep else LocalEmbedder()
    around = next(iter(cases(given.around))).docs if given.around else []

    async def run() -> None:
        for name, case in () if given.no_own else own_sets(around, given.notes):
            await measure(name, [case], encoder, peers=not given.no_peers)
        for path in given.sets:
            await measure(path.stem, [with_evidence(case) for case in cases(path)], encoder, peers=not given.no_peers)

    asyncio.run(run())


if __name__ == "__main__":
    main()
