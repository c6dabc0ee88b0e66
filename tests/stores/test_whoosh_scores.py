"""Whoosh's own searcher gives each row of an index of its own the score that ours gives."""

import random
from math import log
from typing import Any

import pytest
from whoosh import scoring
from whoosh.analysis import SpaceSeparatedTokenizer
from whoosh.fields import TEXT, Schema
from whoosh.filedb.filestore import RamStorage
from whoosh.query.compound import Or
from whoosh.query.terms import Term

from chatbot.stores.text.bm25 import BOOSTS, BS, FIELDS, K1, LENGTHS, Document, rank

WORDS = [f"word{number}" for number in range(12)]


def test_scores_are_those_of_whoosh() -> None:
    random_ = random.Random(7)
    rows = {row: _made(random_) for row in range(300)}
    asked = WORDS[:5]
    ours = rank(rows, asked)
    index = RamStorage().create_index(Schema(**{name: TEXT(SpaceSeparatedTokenizer()) for name in FIELDS}))
    with index.writer() as writer:
        for document in rows.values():
            writer.add_document(**{name: " ".join(words) for name, words in document.items()})
    words = [Term(name, word, boost) for word in asked for name, boost in zip(FIELDS, BOOSTS, strict=True)]
    lengths = {f"{name}_B": b for name, b in zip(FIELDS, BS, strict=True)}
    with index.searcher(weighting=ByDocument(K1=K1, **lengths)) as searcher:
        theirs = {hit.docnum: hit.score for hit in searcher.search(Or(words), limit=None)}
    assert theirs == pytest.approx(ours, abs=1e-9)
    unique = [row for row in theirs if sum(abs(score - theirs[row]) < 1e-9 for score in theirs.values()) == 1]
    assert [row for row in sorted(ours, key=lambda row: -ours[row]) if row in unique] == unique


class ByDocument(scoring.BM25F):  # type: ignore[misc]
    """Counts the documents that hold a term in any field, as our idf does."""

    def idf(self, searcher: Any, _field: str, term: Any) -> float:
        reader = searcher.reader()
        fields = [name for name in FIELDS if (name, term) in reader]
        held = {row for name in fields for row in reader.postings(name, term).all_ids()}
        return log(searcher.doc_count_all() / (len(held) + 1)) + 1


def _made(random_: random.Random) -> Document:
    fields = random_.sample(FIELDS, random_.randint(0, 3))
    return {name: random_.choices(WORDS, k=random_.choice(LENGTHS[1:80:13])) for name in fields}
