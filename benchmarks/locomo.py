# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime", "whoosh3==3.54.0", "bm25s", "PyStemmer"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Measure which turns of LoCoMo's conversations are recalled: no model, no network, default settings.

    uv run benchmarks/locomo.py locomo10.json
    uv run benchmarks/locomo.py locomo10.json --embedder local/minilm
    uv run benchmarks/locomo.py locomo10.json --pipeline

The file is the authors' (snap-research/locomo, data/locomo10.json). Each conversation is a memory of its own, each of
its sessions a session, and each turn one row, at the time of its session. Questions of categories 1 to 4 are asked
through `recall`; a hit is a gold turn among the first k. Peers in the same run, on the same texts: Whoosh by default
(words joined by OR), SQLite's FTS5 and bm25s.

With `--pipeline`, two turns are an exchange: a message and its reply. They are remembered as they are, and once more in
conversations of a `Runtime` with all its hooks, which leave out small talk, summarize sessions, and maintain the memory
over the months. Results are then counted twice: with a rank for each row, and with a rank for each turn, so that a
summary of many turns gets no advantage.
"""

import argparse
import asyncio
import json
import math
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from clocked_runtime import AGENT, Line, Voice, begin, leave, runtime_in
from set_readers import CATEGORIES, Turn, conversation_turns

from chatbot.config import EmbeddingSettings
from chatbot.embedder import Embedder
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.memory import Memory
from chatbot.memory.writing import Draft
from chatbot.stores.access import SENSITIVITIES

DEPTH = 20
Asking = Callable[[str], Any]
Closing = Callable[[], Any]
Answer = list[tuple[str, ...]]
"""The turns that each thing holds that was found, the best first."""


@dataclass(frozen=True)
class Question:
    text: str
    category: int
    gold: frozenset[str]


@dataclass
class Score:
    """Sums over questions, by category."""

    found: defaultdict[int, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))
    seconds: list[float] = field(default_factory=list)

    def add(self, question: Question, answer: Answer, seconds: float) -> None:
        found: dict[str, int] = {}
        for rank, held in enumerate(answer, 1):
            found |= dict.fromkeys(question.gold.intersection(held).difference(found), rank)
        ranks = list(found.values())
        ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(question.gold), 10) + 1))
        self.found[question.category].append(
            {
                **{f"R@{k}": sum(rank <= k for rank in ranks) / len(question.gold) for k in (5, 10, 20)},
                "MRR": 1 / ranks[0] if ranks else 0.0,
                "nDCG@10": sum(1 / math.log2(rank + 1) for rank in ranks if rank <= 10) / ideal,
            }
        )
        self.seconds.append(seconds)

    def line(self, name: str) -> str:
        rows = [row for each in self.found.values() for row in each]
        total = " ".join(f"{metric} {100 * statistics.fmean(row[metric] for row in rows):5.1f}" for metric in rows[0])
        found = [[row["R@10"] for row in self.found[number]] for number in CATEGORIES]
        by_category = " / ".join(f"{100 * statistics.fmean(each):.0f}" if each else "-" for each in found)
        return f"{name:12} {total}   {by_category}   {1e3 * statistics.median(self.seconds):6.2f} ms"


def conversations(path: Path) -> Iterator[tuple[list[Turn], list[Question]]]:
    for sample in json.loads(path.read_text(encoding="utf-8")):
        turns = list(conversation_turns(sample["conversation"]))
        known = {turn.id for turn in turns}
        questions = []
        for asked in sample["qa"]:
            gold = frozenset(re.findall(r"D\d+:\d+", " ".join(asked.get("evidence", [])))) & known
            if asked["category"] in CATEGORIES and gold:
                questions.append(Question(str(asked["question"]), asked["category"], gold))
        yield turns, questions


async def ours(
    turns: list[Turn], folder: Path, embedder: Embedder | None
) -> tuple[Callable[[str], Any], Callable[[], Any], int]:
    """Remember a conversation through the public API; return functions to ask and to close, and the bytes taken."""
    last = turns[-1].at + timedelta(days=1)
    memory = MemorySystem(
        folder / "memory",
        clock=lambda: last,
        settings={"observations": {"cache": str(folder / "cache")}},
        embedder=embedder,
    )
    ids: dict[str, str] = {}
    for number in dict.fromkeys(turn.session for turn in turns):
        session = await memory.create_session(["basic_session", "observations"], "locomo")
        said = [turn for turn in turns if turn.session == number]
        drafts = [Draft(type="exchange", user_text=f"{turn.speaker}: {turn.text}", created_at=turn.at) for turn in said]
        for turn, kept in zip(said, await session.memory.remember_all(drafts), strict=True):
            ids.setdefault(kept.id, turn.id)
    asking = memory.memory("locomo")
    if embedder is not None:
        await asking.embed_memories()

    async def ask(question: str) -> Answer:
        recollection = await asking.recall(question, limit=DEPTH)
        return [(ids[hit.id],) for hit in recollection.hits]

    return ask, memory.aclose, _size(folder)


def exchanges(turns: list[Turn]) -> Iterator[list[Turn]]:
    """Return the turns of each session in pairs; a last one without a partner is alone."""
    for number in dict.fromkeys(turn.session for turn in turns):
        said = [turn for turn in turns if turn.session == number]
        yield from (said[at : at + 2] for at in range(0, len(said), 2))


async def plain(turns: list[Turn], folder: Path) -> tuple[Asking, Closing, Memory]:
    """Remember each exchange as it is."""
    now = turns[-1].at + timedelta(days=1)
    settings = {"observations": {"cache": str(folder / "cache")}}
    memory = MemorySystem(folder / "memory", clock=lambda: now, settings=settings)
    held: dict[str, list[str]] = {}
    sessions: dict[int, SessionHandle] = {}
    for pair in exchanges(turns):
        if pair[0].session not in sessions:
            sessions[pair[0].session] = await memory.create_session(["basic_session", "observations"], AGENT)
        user, reply = (*map(_line, pair), "")[:2]
        kept = await sessions[pair[0].session].memory.remember(
            type="exchange", created_at=pair[0].at, user_text=user, assistant_text=reply
        )
        held.setdefault(kept.id, []).extend(turn.id for turn in pair)
    memories = memory.memory(AGENT)
    return partial(_asked, memories, held), memory.aclose, memories


async def lived(turns: list[Turn], folder: Path) -> tuple[Asking, Closing, Memory]:
    """Run the conversations, each session with all hooks and at its time."""
    now = turns[0].at
    voice = Voice()
    runtime = runtime_in(folder, voice, lambda: now)
    await runtime.__aenter__()
    held: dict[str, list[str]] = {}
    for number in dict.fromkeys(turn.session for turn in turns):
        pairs = list(exchanges([turn for turn in turns if turn.session == number]))
        now = pairs[0][0].at
        session = await begin(runtime)
        chat = runtime.chat(session)
        for pair in pairs:
            now = pair[0].at
            voice.begin(Line("", _line(pair[1]) if len(pair) > 1 else "Yes."))
            said = await chat.turn(_line(pair[0]))
            if said.remembered:
                held.setdefault(said.remembered, []).extend(turn.id for turn in pair)
        await leave(runtime, session)
    now += timedelta(days=1)
    memories = runtime.memory.memory(AGENT)
    return partial(_asked, memories, held), runtime.aclose, memories


async def _counts(memories: Memory) -> Iterable[tuple[str, int]]:
    stats = await memories.stats(sensitivities=SENSITIVITIES)
    return [*stats.by_status.items(), *stats.by_type.items()]


def _line(turn: Turn) -> str:
    return f"{turn.speaker}: {turn.text}"


async def _asked(memories: Memory, held: dict[str, list[str]], question: str) -> Answer:
    """Return the turns of the results; for a summary, those of its sources."""
    rows = [hit.observation for hit in (await memories.recall(question, limit=DEPTH)).hits]
    return [
        tuple(turn for each in (row.id, *row.derived_from) for turn in held.get(each, ()))
        for row in rows
        if row is not None
    ]


def _opened(embedder: str) -> Embedder | None:
    if not embedder:
        return None
    from chatbot.models.embedders import open_embedder

    return open_embedder(EmbeddingSettings(model=embedder))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def whoosh(turns: list[Turn], folder: Path) -> Callable[[str], Answer]:
    from whoosh import fields, index
    from whoosh.qparser.default import QueryParser
    from whoosh.qparser.syntax import OrGroup

    folder.mkdir()
    made = index.create_in(str(folder), fields.Schema(id=fields.ID(stored=True), text=fields.TEXT))
    writer = made.writer()
    for turn in turns:
        writer.add_document(id=turn.id, text=f"{turn.speaker}: {turn.text}")
    writer.commit()
    searcher = made.searcher()
    parser = QueryParser("text", made.schema, group=OrGroup)

    def ask(question: str) -> Answer:
        found = searcher.search(parser.parse(re.sub(r"[^\w\s]", " ", question)), limit=DEPTH)
        return [(hit["id"],) for hit in found]

    return ask


def fts5(turns: list[Turn], _: Path) -> Callable[[str], Answer]:
    database = sqlite3.connect(":memory:")
    database.execute("create virtual table t using fts5(id unindexed, text, tokenize = porter)")
    database.executemany("insert into t values (?, ?)", [(turn.id, f"{turn.speaker}: {turn.text}") for turn in turns])

    def ask(question: str) -> Answer:
        words = " or ".join(f'"{word}"' for word in re.findall(r"\w+", question)).replace(" or ", " OR ")
        found = database.execute("select id from t where t match ? order by bm25(t) limit ?", (words, DEPTH))
        return [(row[0],) for row in found]

    return ask


def bm25s(turns: list[Turn], _: Path) -> Callable[[str], Answer]:
    import bm25s as library
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    texts = library.tokenize(
        [f"{turn.speaker}: {turn.text}" for turn in turns], stopwords="en", stemmer=stemmer, show_progress=False
    )
    retriever = library.BM25()
    retriever.index(texts, show_progress=False)

    def ask(question: str) -> Answer:
        asked = library.tokenize([question], stopwords="en", stemmer=stemmer, show_progress=False)
        found, _ = retriever.retrieve(asked, k=min(DEPTH, len(turns)), show_progress=False)
        return [(turns[number].id,) for number in found[0]]

    return ask


async def run(path: Path, *, peers: bool, embedder: str) -> None:
    scores: defaultdict[str, Score] = defaultdict(Score)
    remembering = size = count = 0.0
    for turns, questions in conversations(path):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            begin = time.process_time()
            ask, close, taken = await ours(turns, folder, _opened(embedder))
            remembering += time.process_time() - begin
            size, count = size + taken, count + len(turns)
            others = (
                {make.__name__: make(turns, folder / make.__name__) for make in (whoosh, fts5, bm25s)} if peers else {}
            )
            for question in questions:
                begin = time.process_time()
                answer = await ask(question.text)
                scores["chatbot"].add(question, answer, time.process_time() - begin)
                for peer, other in others.items():
                    begin = time.process_time()
                    answer = other(question.text)
                    scores[peer].add(question, answer, time.process_time() - begin)
            await close()
    print(f"{count:.0f} turns remembered in {remembering:.1f} s CPU, {size / count:.0f} bytes each")
    print(f"R@10 by category: {' / '.join(CATEGORIES.values())}; median CPU time a question\n")
    for name, score in scores.items():
        print(score.line(name))


async def run_pipeline(path: Path) -> None:
    """Compare the same exchanges as they are and run through hooks; counted by rows and by turns."""
    scores: defaultdict[str, Score] = defaultdict(Score)
    kept: Counter[str] = Counter()
    for turns, questions in conversations(path):
        for make in (plain, lived):
            with tempfile.TemporaryDirectory() as name:
                begun = time.process_time()
                ask, close, memories = await make(turns, Path(name))
                kept.update({f"{make.__name__} seconds": time.process_time() - begun})
                kept.update({f"{make.__name__} {name}": count for name, count in await _counts(memories)})
                for question in questions:
                    begun = time.process_time()
                    answer = await ask(question.text)
                    seconds = time.process_time() - begun
                    scores[f"{make.__name__}, by thing"].add(question, answer, seconds)
                    flat: Answer = [(turn,) for held in answer for turn in held or ("",)]
                    scores[f"{make.__name__}, by turn"].add(question, flat, seconds)
                await close()
    print(f"R@10 by category: {' / '.join(CATEGORIES.values())}; median CPU time a question\n")
    for name, score in scores.items():
        print(score.line(name))
    print(*(f"{what} {count:.0f}" for what, count in kept.items()), sep=", ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--embedder", default="", help="find by meaning too: local/minilm, or any of LiteLLM's models")
    parser.add_argument(
        "--pipeline", action="store_true", help="what the hooks make of it, beside exchanges as they are"
    )
    args = parser.parse_args()
    if args.pipeline:
        asyncio.run(run_pipeline(args.file))
        return
    asyncio.run(run(args.file, peers=not args.alone, embedder=args.embedder))


if __name__ == "__main__":
    main()
