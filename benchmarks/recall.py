# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "chatbot-runtime", "bm25s", "tantivy", "whoosh3==3.54.0",
# ]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Search by words, compared with other engines: `uv run benchmarks/recall.py --rows 1000,10000`.

Rows are generated, 33 words on average, from a Zipf vocabulary; the same each time. Printed is the CPU time of a query,
mean and median over the questions; all engines take turns with each question. Only ratios are meaningful. `cold` is the
first query of a new `TextIndex`. Peers that are not installed are named.
"""

import argparse
import random
import sqlite3
import statistics
import tempfile
import time
from array import array
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from chatbot.stores.cache import FolderShelf
from chatbot.stores.observations.index import TextIndex
from chatbot.stores.observations.lookups import Visible
from chatbot.stores.text.analysis import terms

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
QUESTIONS = 60
Search = Callable[[str], object]


def vocabulary(size: int = 40_000) -> list[str]:
    random_ = random.Random(1)
    words = {"".join(random_.choices(SYLLABLES, k=random_.choice((2, 3, 3, 4)))): None for _ in range(size * 2)}
    return list(words)[:size]


class Corpus:
    def __init__(self, rows: int) -> None:
        random_ = random.Random(rows)
        self.words = vocabulary()
        weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(self.words))))
        filler = ("the", "and", "to", "I", "a", "that", "it", "was", "of", "in", "you", "for")
        self.rows = []
        for _ in range(rows):
            content = random_.choices(self.words, cum_weights=weights, k=random_.randint(8, 26))
            words = content + random_.choices(filler, k=len(content))
            random_.shuffle(words)
            self.rows.append(" ".join(words))
        self.questions = {
            "2-4": [self._question(random_, 2, 4) for _ in range(QUESTIONS)],
            "8-12": [self._question(random_, 8, 12) for _ in range(QUESTIONS)],
        }

    def _question(self, random_: random.Random, low: int, high: int) -> str:
        words = [*{word for row in random_.choices(self.rows, k=2) for word in row.split() if terms(word)}]
        return " ".join(random_.sample(sorted(words), min(len(words), random_.randint(low, high))))


class Ours:
    name = "ours"

    def build(self, rows: list[str], folder: Path) -> int:
        self.folder = folder
        self.usual = terms(rows[0])[:1]
        index = TextIndex.opened(FolderShelf(folder))
        for plan in index.rebuild_plans(len(rows)):
            written = index.write(plan, [(n, n, {"narrative": terms(rows[n])}) for n in range(plan.start, plan.end)])
            assert written
            index.adopt(written)
        self.visible = Visible(bytearray(b"\1" * len(rows)))
        self.reopen()
        return size_of(folder)

    def reopen(self) -> None:
        self.index = TextIndex.opened(FolderShelf(self.folder))
        self.index.ranked(self.usual, self.visible)  # so that only the question's own postings are not loaded yet

    def search(self, question: str) -> object:
        return self.index.ranked(terms(question), self.visible, limit=10)


class Hidden(Ours):
    name = "hidden"

    def reopen(self) -> None:
        self.visible.flags[::100] = bytes(len(self.visible.flags[::100]))
        super().reopen()


class Fts5:
    name = "FTS5"

    def build(self, rows: list[str], folder: Path) -> int:
        self.db = sqlite3.connect(folder / "fts.db")
        self.db.execute("create virtual table t using fts5(text, tokenize='porter')")
        self.db.executemany("insert into t(rowid, text) values (?, ?)", enumerate(rows))
        self.db.commit()
        return size_of(folder)

    def search(self, question: str) -> object:
        query = " OR ".join(f'"{word}"' for word in question.split())
        return self.db.execute(
            "select rowid, bm25(t) from t where t match ? order by bm25(t) limit 10", (query,)
        ).fetchall()


class Tantivy:
    name = "tantivy"

    def build(self, rows: list[str], folder: Path) -> int:
        import tantivy

        schema = tantivy.SchemaBuilder()
        schema.add_integer_field("row", stored=True)
        schema.add_text_field("text", tokenizer_name="en_stem", index_option="freq")
        self.index = tantivy.Index(schema.build(), str(folder))
        writer = self.index.writer(num_threads=1)
        for number, text in enumerate(rows):
            writer.add_document(tantivy.Document(row=number, text=text))
        writer.commit()
        self.index.reload()
        self.searcher = self.index.searcher()
        return size_of(folder)

    def search(self, question: str) -> object:
        hits = self.searcher.search(self.index.parse_query(question, ["text"]), 10).hits
        return [self.searcher.doc(address)["row"] for _, address in hits]


class Bm25s:
    name = "bm25s"

    def build(self, rows: list[str], folder: Path) -> int:
        import bm25s

        self.index = bm25s.BM25()
        self.index.index([terms(row) for row in rows], show_progress=False)
        self.index.save(folder)
        return size_of(folder)

    def search(self, question: str) -> object:
        return self.index.retrieve([terms(question)], k=10, show_progress=False, n_threads=0)


class Whoosh:
    name = "Whoosh"

    def build(self, rows: list[str], folder: Path) -> int:
        from whoosh import fields, index

        made = index.create_in(str(folder), fields.Schema(text=fields.KEYWORD(scorable=True)))
        writer = made.writer(limitmb=128)
        for row in rows:
            writer.add_document(text=terms(row))
        writer.commit()
        self.searcher = made.searcher()
        return size_of(folder)

    def search(self, question: str) -> object:
        from whoosh.query.compound import Or
        from whoosh.query.terms import Term

        found = self.searcher.search(Or([Term("text", term) for term in terms(question)]), limit=10)
        return [hit.docnum for hit in found]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def cpu_us(search: Search, question: str) -> float:
    started = time.process_time()
    search(question)
    return (time.process_time() - started) * 1e6


def built(corpus: Corpus, folder: Path, without: list[str]) -> list[Any]:
    peers: list[Any] = []
    for peer in (Ours(), Hidden(), Fts5(), Tantivy(), Bm25s(), Whoosh()):
        if peer.name in without:
            continue
        (place := folder / peer.name).mkdir()
        started = time.process_time()
        try:
            size = peer.build(corpus.rows, place)
        except (ImportError, sqlite3.OperationalError) as error:
            print(f"  {peer.name:18} left out: {error}")
            continue
        seconds = time.process_time() - started
        rate, each = len(corpus.rows) / seconds, size / len(corpus.rows)
        print(f"  {peer.name:18} built {rate:9.0f} rows a CPU second, {each:6.0f} bytes a row")
        peers.append(peer)
    return peers


def compare(corpus: Corpus, peers: list[Any]) -> None:
    for length, questions in corpus.questions.items():
        times: dict[str, list[float]] = {}
        for question in questions:
            for peer in peers:
                if isinstance(peer, Ours):
                    peer.reopen()
                    times.setdefault(f"{peer.name}, cold", []).append(cpu_us(peer.search, question))
                else:
                    peer.search(question)
                times.setdefault(peer.name, []).append(min(cpu_us(peer.search, question) for _ in range(2)))
        base = statistics.fmean(times.get("FTS5", [1.0]))
        for name, each in times.items():
            mean, middle = statistics.fmean(each), statistics.median(each)
            print(f"  {length:>5} words  {name:24} mean {mean:8.0f} us  median {middle:8.0f} us", end="  ")
            print(f"{mean / base:6.3f} x FTS5")


def put_one_more(corpus: Corpus, ours: Ours) -> None:
    question, count = corpus.questions["8-12"][0], len(corpus.rows)
    ours.search(question)
    warm = min(cpu_us(ours.search, question) for _ in range(5))
    again = []
    for number in range(20):
        ours.visible.flags.append(1)
        ours.index.put(count + number, count + number, {"narrative": terms(corpus.rows[number])})
        again.append(cpu_us(ours.search, question))
    started = time.process_time()
    ours.index.uncovered(array("q", range(count)))
    print(f"  after one more row {statistics.median(again) / warm:.2f} x warm", end="; ")
    print(f"unindexed rows are found in {(time.process_time() - started) * 1e6:.0f} us", end="; ")
    started = time.process_time()
    TextIndex.opened(FolderShelf(ours.folder))
    print(f"opened and verified in {(time.process_time() - started) * 1e3:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1000,10000", help="numbers of rows, separated by commas")
    parser.add_argument("--without", default="", help="peers to leave out: Whoosh takes minutes for 100,000 rows")
    given = parser.parse_args()
    for rows in map(int, given.rows.split(",")):
        print(f"{rows} rows")
        corpus = Corpus(rows)
        with tempfile.TemporaryDirectory() as folder:
            peers = built(corpus, Path(folder), given.without.split(","))
            compare(corpus, peers)
            put_one_more(corpus, peers[0])


if __name__ == "__main__":
    main()
