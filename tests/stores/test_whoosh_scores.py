"""Whoosh's own searcher reads our segments through a codec, and gives each row the score that ours gives."""

import random
from collections import Counter
from collections.abc import Iterator
from math import log
from pathlib import Path
from typing import Any

import pytest
from whoosh import scoring
from whoosh.codec import base
from whoosh.fields import FieldType, Schema
from whoosh.filedb.filestore import RamStorage
from whoosh.formats import Frequency
from whoosh.matching import ListMatcher
from whoosh.query.compound import Or
from whoosh.query.terms import Term
from whoosh.reading import SegmentReader, TermInfo, TermNotFound
from whoosh.searching import Searcher

from chatbot.stores.cache import FolderShelf
from chatbot.stores.observations.codec import build
from chatbot.stores.observations.segments import MANY, Segment
from chatbot.stores.text.bm25 import BOOSTS, BS, FIELDS, K1, LENGTHS, Document, rank

WORDS = [f"word{number}" for number in range(12)]


def test_scores_are_those_of_whoosh(tmp_path: Path) -> None:
    random_ = random.Random(7)
    rows = {row: _made(random_) for row in range(300)}
    segment = _saved(tmp_path / "index", rows)
    asked = WORDS[:5]
    ours = rank(rows, asked)
    words = [Term(name, word, boost) for word in asked for name, boost in zip(FIELDS, BOOSTS, strict=True)]
    lengths = {f"{name}_B": b for name, b in zip(FIELDS, BS, strict=True)}
    with Searcher(_reader(segment), weighting=ByDocument(K1=K1, **lengths)) as searcher:
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
    return {name: random_.choices(WORDS, k=random_.choice((1, 3, 9, 30, 200))) for name in fields}


def _saved(folder: Path, rows: dict[int, Document]) -> Segment:
    folder.mkdir()
    counted = ((row, row, {name: Counter(terms) for name, terms in text.items()}) for row, text in rows.items())
    shelf = FolderShelf(folder)
    with shelf.alone() as hands:
        return build(0, len(rows), counted).save(shelf, hands)


def _reader(segment: Segment) -> SegmentReader:
    schema = Schema(**{name: _Field(Frequency(), None, scorable=True) for name in FIELDS})
    return SegmentReader(RamStorage(), schema, _Whole(segment), generation=0, codec=_Codec(segment))


class _Field(FieldType):  # type: ignore[misc]
    """A field whose terms were analysed and counted before."""


class _Whole(base.Segment):  # type: ignore[misc]
    def __init__(self, segment: Segment) -> None:
        super().__init__("rows")
        self._rows = len(segment)

    def doc_count_all(self) -> int:
        return self._rows

    def deleted_count(self) -> int:
        return 0


class _Codec(base.Codec):  # type: ignore[misc]
    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def terms_reader(self, storage: object, segment: object) -> "_Terms":
        return _Terms(self._segment)

    def per_document_reader(self, storage: object, segment: object) -> "_Lengths":
        return _Lengths(self._segment)


class _Lengths(base.PerDocumentReader):  # type: ignore[misc]
    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def doc_count_all(self) -> int:
        return len(self._segment)

    doc_count = doc_count_all

    def has_deletions(self) -> bool:
        return False

    def is_deleted(self, docnum: int) -> bool:
        return False

    def deleted_docs(self) -> Iterator[int]:
        return iter(())

    def doc_field_length(self, docnum: int, fieldname: str, default: int = 0) -> int:
        return LENGTHS[int(self._segment.codes[FIELDS.index(fieldname), docnum])]

    def field_length(self, fieldname: str) -> int:
        return sum(self._lengths(fieldname))

    def min_field_length(self, fieldname: str) -> int:
        return min(self._lengths(fieldname))

    def max_field_length(self, fieldname: str) -> int:
        return max(self._lengths(fieldname))

    def _lengths(self, fieldname: str) -> list[int]:
        return [LENGTHS[code] for code in self._segment.codes[FIELDS.index(fieldname)].tolist()]


class _Terms(base.TermsReader):  # type: ignore[misc]
    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._lengths = _Lengths(segment)

    def __contains__(self, term: tuple[str, bytes]) -> bool:
        return bool(self._held(*term))

    def frequency(self, fieldname: str, text: bytes) -> int:
        return sum(self._held(fieldname, text).values())

    def doc_frequency(self, fieldname: str, text: bytes) -> int:
        return len(self._held(fieldname, text))

    def term_info(self, fieldname: str, text: bytes) -> TermInfo:
        held = self._held(fieldname, text)
        if not held:
            raise TermNotFound(f"{fieldname}:{text!r}")
        lengths = [self._lengths.doc_field_length(row, fieldname) for row in held]
        return TermInfo(
            weight=float(sum(held.values())),
            df=len(held),
            minlength=min(lengths),
            maxlength=max(lengths),
            maxweight=float(max(held.values())),
            minid=min(held),
            maxid=max(held),
        )

    def matcher(self, fieldname: str, text: bytes, format_: object, scorer: object = None) -> ListMatcher:
        held, info = self._held(fieldname, text), self.term_info(fieldname, text)
        weights = list(map(float, held.values()))
        return ListMatcher(list(held), weights, [b""] * len(held), format_, scorer=scorer, terminfo=info)

    def indexed_field_names(self) -> list[str]:
        return [name for name, total in zip(FIELDS, self._segment.entry.totals, strict=True) if total]

    def _held(self, fieldname: str, text: bytes) -> dict[int, int]:
        """From each document that has the term in the field to how often."""
        for _, (field, begin, end) in self._segment.runs_of([text.decode()]):
            if FIELDS[field] == fieldname:
                postings = self._segment.postings[begin:end]
                counts = (postings & MANY).tolist()
                for place, count in self._segment.many(begin, end):
                    counts[place - begin] = count
                return dict(zip((postings >> 16).tolist(), counts, strict=True))
        return {}
